"""Queries over relations that join by the names of their attributes, as CLASH writes them: R(b), S(b, c), T(c).

Guarantees: the same arguments give the same queries. All relations have the same number of attributes, and every
attribute is in the same number of relations. A query is a connected set of relations, joined on all attributes they
have in common; a query that is drawn twice counts once.

7.3.3 does not say what joins its relations. If each query chose attributes at random (`_clash.random_queries`), hardly
two would have a join in common: over 100 relations 50 queries could save nothing, where the thesis saves 15 %. If a
relation's attributes decide what it joins with, as in all examples of the thesis, its figures are reproduced:
duplicates are frequent over 10 relations and rare over 100, and the savings are those of the thesis.
"""

from __future__ import annotations

from datetime import timedelta
from random import Random

from weft.logical.catalog import Catalog
from weft.logical.expr.expression import Expr
from weft.logical.expr.functions import call
from weft.logical.query.query import Input, Query, make_query, star
from weft.logical.schema import Schema, Stream
from weft.stats.statistics import Statistics, StreamStatistics

Attributes = dict[str, tuple[str, ...]]  # by relation


def natural_queries(
    seed: int, *, drawn: int, relations: int = 10, span: int = 3, attributes: int = 3, rate: float = 100.0
) -> tuple[tuple[Query, ...], Statistics]:
    """So many queries of ``span`` relations, without those drawn twice, and the statistics of their streams.

    All streams have the same rate; an equality's selectivity is 1 / rate.
    """
    rng = Random(seed)
    names = tuple(f"r{i:0{len(str(relations - 1))}}" for i in range(relations))
    has = _dealt(rng, names, attributes)
    streams = [
        Stream(name, Schema.parse(", ".join(f"{column} long" for column in has[name]))) for name in names
    ]
    catalog = Catalog(tuple(streams))
    chosen = dict.fromkeys(_connected(rng, has, span) for _ in range(drawn))
    known = {name: StreamStatistics(rate, dict.fromkeys(has[name], rate)) for name in names}
    statistics = Statistics(known, horizon=timedelta(seconds=1), origin="given")
    return tuple(_joined(catalog, has, some) for some in chosen), statistics


def _dealt(rng: Random, names: tuple[str, ...], attributes: int) -> Attributes:
    """The attributes of each relation, dealt out so that none has one twice; there are as many as relations."""
    deck = [f"a{i}" for i in range(len(names)) for _ in range(attributes)]
    rng.shuffle(deck)
    while twice := [i for i in range(len(deck)) if deck[i] in _hand(deck, i, attributes)]:
        i, j = twice[0], rng.randrange(len(deck))
        deck[i], deck[j] = deck[j], deck[i]
    hands = (deck[i * attributes : (i + 1) * attributes] for i in range(len(names)))
    return {name: tuple(sorted(hand)) for name, hand in zip(names, hands, strict=True)}


def _hand(deck: list[str], i: int, attributes: int) -> list[str]:
    """The attributes that a relation was dealt before its ``i``-th."""
    return deck[i - i % attributes : i]


def _connected(rng: Random, has: Attributes, span: int) -> tuple[str, ...]:
    """Some relations, each of which joins with one before it."""
    while True:
        chosen = {rng.choice(tuple(has))}
        while len(chosen) < span:
            known = {column for name in chosen for column in has[name]}
            near = [name for name in has if name not in chosen and known.intersection(has[name])]
            if not near:
                break
            chosen.add(rng.choice(near))
        else:
            return tuple(sorted(chosen))


def _joined(catalog: Catalog, has: Attributes, names: tuple[str, ...]) -> Query:
    inputs = {name: Input(name, catalog.stream(name)) for name in names}
    where: list[Expr] = []
    for column in sorted({column for name in names for column in has[name]}):
        owners = [inputs[name].column(column) for name in names if column in has[name]]
        where += [call("=", owners[0], other) for other in owners[1:]]
    return make_query(
        inputs.values(), where, star(column for input_ in inputs.values() for column in input_.columns)
    )
