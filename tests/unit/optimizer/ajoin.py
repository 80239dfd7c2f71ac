"""The queries of AJoin's Figure 1 (Q1-Q3) and of its Figure 7 (Q4-Q6), as far as its text gives them.

The figures themselves are not in the text. It says of Q4-Q6 that Q4 and Q5 both join V with W but have no tuples in
common, that Q6 joins V with W in another group than Q2, and that a query of W ⋈ C may affect Q4 and Q6 alone.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from itertools import combinations

from weft.logical.catalog import Catalog
from weft.logical.expr.expression import aliases
from weft.logical.query.canonical import canonical
from weft.logical.query.query import Query
from weft.logical.schema import Schema, Stream
from weft.optimizer.groups.overlap import Measured
from weft.sql.bind import parse_query
from weft.stats.statistics import Statistics, StreamStatistics, predicate_name


def union_by_formula(sets: Sequence[str], common: Callable[[tuple[str, ...]], float]) -> float:
    """Crd by inclusion and exclusion (Equation 1): of n sets, 2ⁿ − 1 intersections.

    >>> union_by_formula("AB", {("A",): 5.0, ("B",): 4.0, ("A", "B"): 3.0}.__getitem__)
    6.0
    """
    found = 0.0
    for size in range(1, len(sets) + 1):
        sign = 1 if size % 2 else -1
        found += sign * sum(map(common, combinations(sets, size)))
    return found


def query_set(text: str) -> int:
    """A query-set as the paper prints it, the first query first.

    >>> bin(query_set("100100"))
    '0b1001'
    """
    return sum(1 << position for position, bit in enumerate(text) if bit == "1")


def common(sample: Measured, alias: str, names: Collection[str]) -> float:
    """The part of an input's sampled tuples that pass the filters of all of these queries."""
    wanted = sum(1 << sample.names.index(name) for name in set(names))
    counts = sample.samples[alias]
    return sum(count for bits, count in counts.items() if bits & wanted == wanted) / sum(counts.values())


CATALOG = Catalog(
    (
        Stream("V", Schema.parse("vID long, length long, geo string, lang string")),
        Stream("W", Schema.parse("usrID long, vID long, duration long, geo string")),
        Stream("C", Schema.parse("usrID long, length long, photo string, emojis long")),
        Stream("R", Schema.parse("usrID long, reaction string")),
    )
)

VW, WC, CR = "V.vID = W.vID", "W.usrID = C.usrID", "C.usrID = R.usrID"


def ask(tables: str, where: str) -> Query:
    """A canonical query."""
    return canonical(parse_query(f"SELECT * FROM {tables} WHERE {where}", CATALOG)).query


QUERIES = {
    "Q1": ask("V, W", f"{VW} AND W.geo = 'GER' AND V.lang = 'ENG'"),
    "Q2": ask("V, W, C", f"{VW} AND {WC} AND C.length > 5 AND V.geo = 'US' AND W.duration < 10"),
    "Q3": ask("W, C, R", f"{WC} AND {CR} AND W.geo = 'EU' AND R.reaction = 'angry' AND C.emojis > 0"),
    "Q4": ask("V, W, C", f"{VW} AND {WC} AND V.length > 60 AND W.duration > 50"),
    "Q5": ask("V, W", f"{VW} AND V.length < 10 AND W.duration > 90"),
    "Q6": ask("V, W, C", f"{VW} AND {WC} AND V.length > 50 AND W.duration > 40"),
}

# Out of ten tuples of each stream: which queries want them.
SAMPLE = Measured(
    tuple(QUERIES),
    {
        "V": {query_set("110000"): 3, query_set("000101"): 3, query_set("000010"): 2, 0: 2},
        "W": {query_set("111000"): 3, query_set("000101"): 3, query_set("000010"): 2, 0: 2},
        "C": {query_set("011000"): 4, query_set("000101"): 4, 0: 2},
        "R": {query_set("001000"): 3, 0: 7},
    },
)

# V ⋈ W is the smallest join, and whatever has R the largest; filters pass what the sample says.
STATISTICS = Statistics(
    {
        "V": StreamStatistics(100.0, {"vID": 1_000.0}),
        "W": StreamStatistics(100.0, {"vID": 1_000.0, "usrID": 1_000.0}),
        "C": StreamStatistics(200.0, {"usrID": 1_000.0}),
        "R": StreamStatistics(4_000.0, {"usrID": 1_000.0}),
    },
    {
        predicate_name(query, condition): SAMPLE.part(min(aliases(condition)), (name,))
        for name, query in QUERIES.items()
        for condition in query.filters
    },
    origin="given",
)
