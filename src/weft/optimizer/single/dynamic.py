"""The best tree for one rule of partitioning, by dynamic programming over sets of inputs.

Guarantees: with the layouts fixed by a rule, an operator's cost depends on the operators below it only through where
their results are, so only the best way to join each set of inputs is kept and built upon. The result may miss the best
tree for two reasons: a dearer way may end in a better place, and hops are shared by all inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from weft.errors import PlanError
from weft.optimizer.cost import hop_cost
from weft.optimizer.single.evaluate import climb, keeping_cost, storing_routes
from weft.optimizer.single.partitioning import PartitioningRule, spread_by
from weft.optimizer.single.probe_order import Route
from weft.optimizer.single.tree import line_up, make_tree, partitions
from weft.optimizer.space import Space, Tree
from weft.plan.schedule import Spread, start

__all__ = ["WIDE", "best_tree"]

# With more inputs than this, not all sets of them are considered.
WIDE = 6
# With more inputs, an operator other than the root joins only so many.
NARROW = 4


@dataclass(frozen=True, slots=True)
class _Way:
    """A way to join a set of inputs: its cost, where each input's results are, and the hop that completes them."""

    cost: float
    routes: dict[int, Route]
    complete: int
    operators: tuple[tuple[int, ...], ...]


def best_tree(space: Space, rule: PartitioningRule) -> Tree | None:
    """The best tree when every store is laid out by the rule; None if the deadline comes before it is found."""
    layouts = _Layouts(space, rule)
    ways = {1 << i: _leaf(space, i, layouts[1 << i]) for i in range(space.count)}
    for mask, splits in _all_sets(space) if space.count <= WIDE else _runs(space):
        if space.deadline.over:
            return None
        ways[mask] = _best_way(space, mask, splits, ways, layouts)
    return make_tree(list(ways[space.full].operators))


Splits = list[tuple[int, ...]]


def _all_sets(space: Space) -> Iterator[tuple[int, Splits]]:
    """All sets that can be joined without a cross product, smaller ones first, with all their splits."""
    for mask in sorted(range(1, space.full + 1), key=int.bit_count):
        if mask.bit_count() > 1 and (mask == space.full or space.storable(mask)):
            yield mask, [blocks for blocks in partitions(mask) if len(blocks) > 1]


def _runs(space: Space) -> Iterator[tuple[int, Splits]]:
    """The runs of neighbours in a row of all inputs, with few splits each, since many inputs have too many sets."""
    row = line_up(space)
    for length in range(2, len(row) + 1):
        for first in range(len(row) - length + 1):
            run = row[first : first + length]
            if length == len(row) or space.storable(sum(run)):
                halves = [(sum(run[:cut]), sum(run[cut:])) for cut in range(1, length)]
                whole = [tuple(run)] if length <= NARROW or length == len(row) else []
                yield sum(run), list(dict.fromkeys([*whole, *halves]))


def _best_way(space: Space, mask: int, splits: Splits, ways: dict[int, _Way], layouts: _Layouts) -> _Way:
    """The cheapest way to join a set; a split is priced only if its blocks alone cost less than the best so far."""
    possible = (split for split in splits if all(block in ways for block in split))
    priced = sorted((sum(ways[block].cost for block in split), split) for split in possible)
    best, bound = None, inf
    for base, split in priced:
        if base < bound:
            way = _join(space, mask, split, base, bound, ways, layouts)
            if way is not None:
                best, bound = way, way.cost + hop_cost(space.weights, way.complete)
    if best is None:
        raise PlanError("no way to join all inputs was found")
    return best


class _Layouts(dict[int, tuple[Spread, ...]]):
    """The layout that a rule gives to every store, computed when first asked for."""

    def __init__(self, space: Space, rule: PartitioningRule) -> None:
        super().__init__()
        self._space, self._rule = space, rule

    def __missing__(self, mask: int) -> tuple[Spread, ...]:
        self[mask] = (spread_by(self._space, mask, self._rule),)
        return self[mask]


def _leaf(space: Space, i: int, layout: tuple[Spread, ...]) -> _Way:
    return _Way(keeping_cost(space, 1 << i, layout[0]), {i: Route(0.0, start(layout[0]), ())}, 1, ())


def _join(
    space: Space,
    mask: int,
    blocks: tuple[int, ...],
    base: float,
    bound: float,
    ways: dict[int, _Way],
    layouts: _Layouts,
) -> _Way | None:
    """One operator over the best ways to its blocks; None if it costs the bound or more."""
    complete = {block: ways[block].complete for block in blocks}
    root = mask == space.full
    cost = base if root else base + keeping_cost(space, mask, layouts[mask][0])
    hops, ends = max(complete.values()), {}
    for block in blocks:
        for i, entry in ways[block].routes.items():
            found = climb(space, i, [Route(0.0, entry.place, ())], blocks, layouts, complete)
            pairs = (
                [(route, route.place.hop) for route in found]
                if root
                else list(storing_routes(space, i, mask, found, layouts[mask][0]))
            )
            best, hop = min(pairs, key=lambda pair: pair[0].cost + hop_cost(space.weights, pair[1]))
            cost, hops, ends[i] = cost + best.cost, max(hops, hop), best
            if cost + hop_cost(space.weights, hops) >= bound:
                return None
    operators = (*(operator for block in blocks for operator in ways[block].operators), blocks)
    return _Way(cost, ends, hops, operators)
