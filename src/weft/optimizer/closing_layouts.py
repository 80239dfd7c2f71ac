"""How the inputs of a query with outer joins are stored, so that each partition can close its rows by itself.

Guarantees: of all combinations of layouts that `plan/homes.py` allows, the one that stores the fewest tuples a second
is chosen; a store that exists already costs nothing. Replicating every input is always allowed, so there always is a
choice.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from itertools import product

from weft.errors import PlanError
from weft.logical.expr.expression import Call, Expr, aliases
from weft.logical.expr.user_functions import has_user_call
from weft.logical.outer.outer import Closing
from weft.logical.query.join_tree import Join
from weft.logical.query.query import Query
from weft.plan.homes import locate_rows
from weft.plan.join_plan import Layout, Store
from weft.stats.statistics import Statistics

__all__ = ["choose_homes"]


def choose_homes(
    query: Query,
    closing: Closing,
    statistics: Statistics,
    partitions: int,
    present: Collection[Store] = (),
) -> tuple[Store, ...]:
    """The stores of a query's inputs from which its rows are closed, in the order of its inputs."""
    options = [_options(closing.tree, alias, partitions) for alias in query.aliases]
    best: tuple[tuple[float, int, str], tuple[Layout, ...]] | None = None
    for layouts in product(*options):
        if locate_rows(closing.tree, dict(zip(query.aliases, layouts, strict=True))) is None:
            continue
        price = (
            sum(
                _price(query, alias, layout, statistics, present)
                for alias, layout in zip(query.aliases, layouts, strict=True)
            ),
            sum(layout.kind != "partitioned" for layout in layouts),
            " ".join(map(str, layouts)),
        )
        if best is None or price < best[0]:
            best = price, layouts
    if best is None:
        raise PlanError("no way to store the inputs lets their unmatched rows be found")
    return tuple(Store((alias,), layout) for alias, layout in zip(query.aliases, best[1], strict=True))


def _options(tree: Join, alias: str, partitions: int) -> list[Layout]:
    keys = sorted({expr for term in tree.conditions for expr in _keys(term, alias)}, key=str)
    return [
        *(Layout("partitioned", partitions, key) for key in keys),
        Layout("scattered", partitions),
        Layout("replicated", partitions),
    ]


def _keys(expr: Expr, alias: str) -> Iterator[Expr]:
    """The values of an input that an equality compares, directly or as an argument of COALESCE."""
    if isinstance(expr, Call) and expr.function == "=":
        for side in expr.args:
            yield from _sides(side, alias)


def _sides(expr: Expr, alias: str) -> Iterator[Expr]:
    if aliases(expr) == {alias}:
        yield from () if has_user_call(expr) else (expr,)
    elif isinstance(expr, Call) and expr.function == "coalesce":
        for arg in expr.args:
            yield from _sides(arg, alias)


def _price(
    query: Query, alias: str, layout: Layout, statistics: Statistics, present: Collection[Store]
) -> float:
    """How many tuples a layout stores a second, copies included; 0 if the store exists already."""
    if Store((alias,), layout) in present:
        return 0.0
    rate = statistics.stream(query.input(alias).stream.name).rate
    return rate * (layout.partitions if layout.kind == "replicated" else 1)
