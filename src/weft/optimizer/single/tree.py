"""The tree strategies of CLASH 5.3.3, which choose the intermediate results to store, and the list of all trees.

Guarantees: a strategy gives trees over all inputs, none of which stores a cross product; `evaluate.py` decides which of
them is cheapest, and with which layouts. Sizes are estimates of `Space.size`. Once the deadline of the space is over, a
strategy gives the trees it has, at least one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate, combinations
from operator import or_

from weft.optimizer.cost import probe_cost
from weft.optimizer.single.probe_order import greedy_order
from weft.optimizer.space import Space, Tree
from weft.stats.estimate import bits

__all__ = [
    "all_trees",
    "chain",
    "dissolve",
    "flat",
    "greedy_left_deep",
    "left_deep",
    "line_up",
    "make_tree",
    "materialise",
    "merge",
    "partitions",
]


# For operators of more stores than this, not all subsets of the stores are tried.
MANY = 8


def make_tree(operators: Iterator[tuple[int, ...]] | list[tuple[int, ...]]) -> Tree:
    """A tree of operators in canonical order: stores ascending, inner operators before those they feed."""
    ordered = (tuple(sorted(operator)) for operator in operators)
    return tuple(sorted(ordered, key=lambda operator: (sum(operator).bit_count(), operator)))


def _leaves(space: Space) -> list[int]:
    return [1 << i for i in range(space.count)]


def materialise(tree: Tree, operator: tuple[int, ...], stores: tuple[int, ...]) -> Tree:
    """The tree in which the join of some stores of an operator is stored too."""
    rest = [store for store in operator if store not in stores]
    return make_tree([other for other in tree if other != operator] + [stores, (sum(stores), *rest)])


def dissolve(tree: Tree, operator: tuple[int, ...]) -> Tree:
    """The tree in which the result of an inner operator is stored no more."""
    mask = sum(operator)
    above = next(other for other in tree if mask in other)
    merged = (*operator, *(store for store in above if store != mask))
    return make_tree([other for other in tree if other not in (operator, above)] + [merged])


def flat(space: Space) -> Iterator[Tree]:
    """One operator over all inputs; nothing but the inputs is stored (Figure 5.5b)."""
    yield make_tree([tuple(_leaves(space))])


def left_deep(space: Space) -> Iterator[Tree]:
    """Binary joins one after the other, the smallest result next, from every input (Figure 5.5a)."""
    yield from _generalised_left_deep(space, float("inf"))


def greedy_left_deep(space: Space) -> Iterator[Tree]:
    """Trees that are left-deep as far as the budget allows, with the remaining inputs at the root (Figure 5.6)."""
    yield from _generalised_left_deep(space, space.budget)


def _generalised_left_deep(space: Space, budget: float) -> Iterator[Tree]:
    for first in _leaves(space):
        spent = sum(space.size(leaf) for leaf in _leaves(space))
        prefix, operators = first, []
        rest = [leaf for leaf in _leaves(space) if leaf != first]
        # The join with the last input is the root, which is not stored and so costs no budget.
        while len(rest) > 1:
            chosen = min(
                space.next_steps(prefix, tuple(rest)), key=lambda leaf: (space.size(prefix | leaf), leaf)
            )
            spent += space.size(prefix | chosen)
            if spent > budget or not space.storable(prefix | chosen):
                break
            operators.append((prefix, chosen))
            rest.remove(chosen)
            prefix |= chosen
        yield make_tree([*operators, (prefix, *rest)])
        if space.deadline.over:
            return


def chain(space: Space) -> Iterator[Tree]:
    """Top-down materialisation along a linear join graph while the budget lasts (Algorithm 2).

    The thesis prints line 5 as "if B > SCost: break", which would stop at the first result that fits; its text says to
    stop at the first that does not, as is done here. It also omits that b grows with what was materialised.
    """
    line = line_up(space)
    tree = next(flat(space))
    spent = sum(space.size(leaf) for leaf in _leaves(space))
    while not space.deadline.over:
        found = [(space.size(sum(stores)), operator, stores) for operator, stores in _runs(space, tree, line)]
        if not found:
            break
        size, operator, stores = min(found)
        if spent + size > space.budget:
            break
        spent += size
        tree = materialise(tree, operator, stores)
    yield tree


def line_up(space: Space) -> list[int]:
    """The inputs in a row, each joined with one before it; the row begins at an end of the join graph if it has one."""
    leaves = _leaves(space)
    degree = {leaf: sum(space.linked(leaf, other) for other in leaves if other != leaf) for leaf in leaves}
    line = [min(leaves, key=lambda leaf: (degree[leaf], leaf))]
    while len(line) < len(leaves):
        rest = [leaf for leaf in leaves if leaf not in line]
        near = [leaf for leaf in rest if space.linked(line[-1], leaf)] or space.next_steps(
            sum(line), tuple(rest)
        )
        line.append(min(near, key=lambda leaf: (degree[leaf], leaf)))
    return line


def _runs(space: Space, tree: Tree, line: list[int]) -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """Runs of neighbouring stores of one operator, but not all of its stores, whose join can be materialised."""
    for operator in tree:
        row = sorted(operator, key=lambda store: min(line.index(1 << i) for i in bits(store)))
        for first, last in combinations(range(len(row)), 2):
            stores = tuple(row[first : last + 1])
            if len(stores) < len(row) and space.storable(sum(stores)):
                yield operator, stores


def merge(space: Space) -> Iterator[Tree]:
    """Trees made by merging stores into new operators while that saves enough and costs little (Algorithm 3).

    The bounds are those the thesis suggests: communication above half the fastest input, storage below twice the
    largest. Of several candidates the smallest result comes first.
    """
    least = max(space.rates) / 2
    most = 2 * max(space.size(leaf) for leaf in _leaves(space))
    tree = next(flat(space))
    while True:
        found = [
            (space.size(sum(stores)), operator, stores)
            for operator in tree
            for stores in _subsets(space, operator)
            if space.size(sum(stores)) < most and least < communication(space, stores)
        ]
        if not found:
            break
        _, operator, stores = min(found)
        tree = materialise(tree, operator, stores)
    yield tree


def _subsets(space: Space, operator: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Proper subsets of an operator's stores, without cross products, with two leaves or more, until the deadline."""
    most = len(operator) if len(operator) <= MANY else 4  # with many stores, there are too many subsets
    for count in range(2, most):
        for stores in combinations(operator, count):
            if space.deadline.over:
                return
            leaves = sum(store & (store - 1) == 0 for store in stores)
            if leaves >= 2 and space.storable(sum(stores)):
                yield stores


def communication(space: Space, stores: tuple[int, ...]) -> float:
    """Tuples per second that an operator over these stores sends to probe and to store (5.4)."""
    probes = (_probes(space, i, home, stores) for home in stores for i in bits(home))
    return space.estimator.rate(sum(stores)) + sum(probes)


def _probes(space: Space, i: int, home: int, stores: tuple[int, ...]) -> float:
    def tuples(known: int) -> float:
        return space.tuples(i, known)

    others = [store for store in stores if store != home]
    order = greedy_order(home, others, tuples, lambda _known, _store: 1, space.next_steps)
    known = [home, *accumulate(order, or_, initial=home)][1:-1]
    return probe_cost((tuples(mask), 1) for mask in known)


def all_trees(space: Space) -> Iterator[Tree]:
    """Every tree that stores no cross product (26 over a clique of four, 236 over one of five)."""
    for operators in _trees(space, space.full):
        yield make_tree(operators)


def _trees(space: Space, mask: int) -> Iterator[list[tuple[int, ...]]]:
    for blocks in partitions(mask):
        inner = [block for block in blocks if block & (block - 1)]
        if len(blocks) > 1 and all(space.storable(block) for block in inner):
            yield from _expand(space, inner, [blocks])


def _expand(
    space: Space, inner: list[int], operators: list[tuple[int, ...]]
) -> Iterator[list[tuple[int, ...]]]:
    if not inner:
        yield operators
        return
    for below in _trees(space, inner[0]):
        yield from _expand(space, inner[1:], [*operators, *below])


def partitions(mask: int) -> Iterator[tuple[int, ...]]:
    """All ways to split a set into blocks."""
    if not mask:
        yield ()
        return
    first = mask & -mask
    rest = mask ^ first
    subset = rest
    while True:
        for others in partitions(rest ^ subset):
            yield (first | subset, *others)
        if not subset:
            return
        subset = (subset - 1) & rest
