"""The best tree for one rule of partitioning, by dynamic programming over sets of inputs.

Guarantees: with the layouts fixed by a rule, an operator's cost depends on what is below it only through where its
tuples are when they leave it, so the best way to a set of inputs is kept and built upon. That is exact but for two
things it leaves open: a dearer way that ends in a better place, and the hops, which all inputs share.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from weft.optimizer.cost import hop_cost
from weft.optimizer.evaluate import climb, kept, stored
from weft.optimizer.partitioning import Rule, spread_by
from weft.optimizer.probe_order import Route
from weft.optimizer.space import Space, Tree
from weft.optimizer.tree import make_tree, partitions
from weft.plan.schedule import Spread, start
from weft.stats.estimate import bits

__all__ = ["best_tree"]

# Larger sets are split in two or not at all: all their partitions would be too many.
WIDE = 5


@dataclass(frozen=True, slots=True)
class _Way:
    """How a set of inputs is joined: its cost so far, where each input's results are, when they are complete."""

    cost: float
    routes: dict[int, Route]
    complete: int
    operators: tuple[tuple[int, ...], ...]


def best_tree(space: Space, rule: Rule) -> Tree:
    """The best tree when every store is laid out by the rule."""
    layouts = _Layouts(space, rule)
    ways = {1 << i: _leaf(space, i, layouts[1 << i]) for i in range(space.count)}
    for mask in sorted(range(1, space.full + 1), key=int.bit_count):
        if mask.bit_count() > 1 and (mask == space.full or space.connected(mask)):
            splits = (blocks for blocks in _splits(space, mask) if all(block in ways for block in blocks))
            found = (_join(space, mask, blocks, ways, layouts) for blocks in splits)
            ways[mask] = min(found, key=lambda way: way.cost + hop_cost(space.weights, way.complete))
    return make_tree(list(ways[space.full].operators))


class _Layouts(dict[int, tuple[Spread, ...]]):
    """The layout of every store, as a rule gives it when first asked."""

    def __init__(self, space: Space, rule: Rule) -> None:
        super().__init__()
        self._space, self._rule = space, rule

    def __missing__(self, mask: int) -> tuple[Spread, ...]:
        self[mask] = (spread_by(self._space, mask, self._rule),)
        return self[mask]


def _leaf(space: Space, i: int, layout: tuple[Spread, ...]) -> _Way:
    return _Way(kept(space, 1 << i, layout[0]), {i: Route(0.0, start(layout[0]), ())}, 1, ())


def _splits(space: Space, mask: int) -> Iterator[tuple[int, ...]]:
    if mask.bit_count() <= WIDE:
        yield from (blocks for blocks in partitions(mask) if len(blocks) > 1)
        return
    yield tuple(1 << i for i in bits(mask))
    first, others = mask & -mask, [1 << i for i in bits(mask & (mask - 1))]
    for count in range(len(others)):
        for some in combinations(others, count):
            block = first | sum(some)
            if space.connected(block) and space.connected(mask ^ block):
                yield (block, mask ^ block)


def _join(space: Space, mask: int, blocks: tuple[int, ...], ways: dict[int, _Way], layouts: _Layouts) -> _Way:
    """One operator over the best ways to its blocks."""
    complete = {block: ways[block].complete for block in blocks}
    cost = sum(ways[block].cost for block in blocks)
    hops, ends = max(complete.values()), {}
    for block in blocks:
        for i, entry in ways[block].routes.items():
            origin = [Route(0.0, entry.place, ())]
            found = climb(space, i, origin, blocks, layouts, complete)
            if mask != space.full:
                pairs = list(stored(space, i, mask, found, layouts[mask][0]))
            else:
                pairs = [(route, route.place.hop) for route in found]
            best, hop = min(pairs, key=lambda pair: pair[0].cost + hop_cost(space.weights, pair[1]))
            cost, hops, ends[i] = cost + best.cost, max(hops, hop), best
    if mask != space.full:
        cost += kept(space, mask, layouts[mask][0])
    operators = (*(operator for block in blocks for operator in ways[block].operators), blocks)
    return _Way(cost, ends, hops, operators)
