"""The group of every query: which queries have stores in common (AJoin, section 4).

Guarantees: queries are in one group unless they have a join in common and would lose by sharing it, according to
Equation 2 and to what their filters have in common. So the stores of a group hold no tuples that none of its queries
wants, no query-sets are computed that would always be empty, and tuples of use to all are stored once. A group that
goes on keeps its name, so that its stores keep theirs. Where a budget limits what is stored, groups whose inputs alone
would not fit are not formed. The same queries and figures give the same groups in every run.

There are three ways to come by groups. While a query is new, it is put where it gains most, and the others stay where
they are (`assigned_groups`). Once in a while, groups are revised from the present ones (`revised_groups`). When most
queries have changed, groups are formed from nothing (`separate_groups`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from weft.logical.query.query import Query
from weft.optimizer.groups.grouping import SharingCosts, groups
from weft.optimizer.groups.overlap import Overlap
from weft.optimizer.joint.space.storage import is_within, least_storage
from weft.stats.statistics import Statistics

__all__ = ["LEAST_GAIN", "assigned_groups", "revised_groups", "separate_groups"]

# Groups are revised if that saves at least this part of their cost; by less, they would change back and forth.
LEAST_GAIN = 0.1

# Groups without a join in common have stores in common if they want at least this part of the tuples alike.
LEAST_LIKENESS = 0.25

# How often at most every query is given the chance to change its group.
ROUNDS = 4

_Members = dict[str, list[str]]


def assigned_groups(
    queries: Mapping[str, Query],
    known: Mapping[str, str],
    overlap: Overlap,
    statistics: Statistics,
    *,
    budget: float | None = None,
) -> dict[str, str]:
    """The group of every query; those of ``known`` stay where they are, and each other one is placed by cost.

    A query that would lose in every group gets one of its own, if that was measured. Otherwise it shares eagerly, in
    the group where it seems to lose least: an estimate is no reason for stores of its own.
    """
    found = {name: group for name, group in known.items() if name in queries}
    waiting = [name for name in queries if name not in found]
    eager = not any(map(overlap.is_measured, waiting))
    if eager and len(set(found.values())) <= 1:
        group = next(iter(found.values()), "")
        return {name: found.get(name, group) for name in queries}
    costs, members = SharingCosts(queries, overlap, statistics), _members(found)
    for name in waiting:
        group = _place_of(costs, members, name)
        may_be_alone = overlap.is_measured(name) and _fits(
            [*members.values(), [name]], queries, statistics, budget
        )
        if group not in members and not may_be_alone:
            group = _least_loss(costs, members, name)
        members.setdefault(group, []).append(name)
        found[name] = group
    return {name: found[name] for name in queries}


def separate_groups(
    queries: Mapping[str, Query],
    overlap: Overlap,
    statistics: Statistics,
    current: Mapping[str, str] | None = None,
    budget: float | None = None,
) -> dict[str, str]:
    """The groups of queries, formed from nothing; a group of mostly the queries of a ``current`` one has its name.

    They are those of Figure 7a, or one group of all queries that is divided where that helps, whichever costs less:
    where filters pass tuples at random, no pair gains by sharing, but many queries do.
    """
    costs = SharingCosts(queries, overlap, statistics)
    candidates = (groups(queries, overlap, statistics), _divided(costs, [tuple(queries)]))
    best = _settled(costs, list(min(candidates, key=costs.total)))
    found = _named(costs, best, current or {})
    fits = _fits(_members(found).values(), queries, statistics, budget)
    return {name: found[name] if fits else "" for name in queries}


def revised_groups(
    queries: Mapping[str, Query],
    current: Mapping[str, str],
    overlap: Overlap,
    statistics: Statistics,
    *,
    least_gain: float = LEAST_GAIN,
    budget: float | None = None,
) -> dict[str, str] | None:
    """The groups that the overlap of today gives; None if they save less than a part of the present ones' cost.

    It begins with the present groups, and looks at every query and group rather than at every pair of queries. A group
    is divided where its two parts cost less, each by itself: no query would gain by leaving alone. Then queries move to
    groups where they gain more, and groups that gain by it are united.
    """
    before = assigned_groups(queries, current, overlap, statistics, budget=budget)
    costs = SharingCosts(queries, overlap, statistics)
    present = [tuple(names) for names in _members(before).values()]
    best = _settled(costs, _divided(costs, present))
    if costs.total(best) > costs.total(present) * (1 - least_gain):
        return None
    found = _named(costs, best, before)
    if found == before or not _fits(_members(found).values(), queries, statistics, budget):
        return None
    return {name: found[name] for name in queries}


# -- Moving queries between groups -------------------------------------------------------------------------------------


def _divided(costs: SharingCosts, present: Iterable[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Groups, each divided as often as that helps."""
    found, waiting = list[tuple[str, ...]](), [part for group in present for part in _connected(costs, group)]
    while waiting:
        group = waiting.pop(0)
        parts = _halves(costs, group)
        if all(parts) and costs.total(parts) < costs.total((group,)):
            waiting += parts
        else:
            found.append(group)
    return found


def _connected(costs: SharingCosts, group: Iterable[str]) -> list[tuple[str, ...]]:
    """The parts of a group that have no join in common."""
    parts: list[tuple[str, ...]] = []
    for name in group:
        near = [part for part in parts if costs.have_common(part, (name,))]
        parts = [part for part in parts if part not in near]
        parts.append((*(member for part in near for member in part), name))
    return parts


def _halves(costs: SharingCosts, group: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """A group in two: around two queries that lose most by sharing, each other one where it loses less."""
    one = min(group, key=lambda name: costs.gain(group[:1], name))
    gains = {name: costs.gain((one,), name) for name in group}
    other = min((name for name in group if name != one), key=lambda name: gains[name], default=one)
    near = [name for name in group if name == one or gains[name] > costs.gain((other,), name)]
    near = [name for name in near if name != other or other == one]
    return tuple(near), tuple(name for name in group if name not in near)


def _settled(costs: SharingCosts, beginning: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Groups in which no query gains by moving to another, and no two groups by being united."""
    found = list(beginning)
    for _ in range(ROUNDS):
        moved = [_moved(costs, found, name) for name in [name for group in found for name in group]]
        found = [group for group in found if group]
        united = _united(costs, found)
        if not any(moved) and not united:
            break
    return found


def _moved(costs: SharingCosts, found: list[tuple[str, ...]], name: str) -> bool:
    """Move a query to the group that gains most by it; return whether that is another one."""
    place = next(i for i, group in enumerate(found) if name in group)
    whole = found[place]
    found[place] = tuple(member for member in whole if member != name)
    stays = costs.gain(found[place], name)
    gain, best = costs.best_group(found, name)
    if gain <= stays * (1 + 1e-9) and stays >= 0:
        found[place] = whole
        return False
    if gain <= 0:
        best = len(found)
        found.append(())
    found[best] = (*found[best], name)
    return True


def _united(costs: SharingCosts, found: list[tuple[str, ...]]) -> bool:
    """Unite the groups that gain by it, one pair after the other; return whether there were any."""
    any_united, place = False, 0
    while place < len(found):
        gains = [
            (costs.total((found[place], other)) - costs.total(((*found[place], *other),)), -i)
            for i, other in enumerate(found)
            if i > place and costs.have_common(found[place], other)
        ]
        gain, other_place = max(gains, default=(0.0, 0))
        if gain > 0:
            found[place] = (*found[place], *found.pop(-other_place))
            any_united = True
        else:
            place += 1
    return any_united


# -- One new query -----------------------------------------------------------------------------------------------------


def _place_of(costs: SharingCosts, members: Mapping[str, Sequence[str]], name: str) -> str:
    """The group that gains most by a query; else one that has no join in common with it; else a new one."""
    gains = {group: costs.gain(tuple(names), name) for group, names in members.items()}
    best = max(gains, key=lambda group: gains[group], default="")
    if gains.get(best, 0.0) > 0:
        return best
    apart = [group for group, names in members.items() if not costs.have_common(names, (name,))]
    return min(apart) if apart else _new_name(members)


def _least_loss(costs: SharingCosts, members: Mapping[str, Sequence[str]], name: str) -> str:
    """The group in which a query loses least, where there is no room for one of its own."""
    return max(members, key=lambda group: costs.gain(tuple(members[group]), name), default="")


# -- Names -------------------------------------------------------------------------------------------------------------


def _named(
    costs: SharingCosts, found: Iterable[tuple[str, ...]], current: Mapping[str, str]
) -> dict[str, str]:
    """The groups by name, large ones first: each has the name of the present group that most of its queries are in.

    Groups that have no join in common with those that have a name already go by that name as well, unless they want
    other tuples of the inputs that they share.
    """
    taken: _Members = {}
    for group in sorted(found, key=len, reverse=True):
        counts: dict[str, int] = {}
        for name in group:
            if name in current:
                counts[current[name]] = counts.get(current[name], 0) + 1
        wanted = sorted(counts, key=lambda one: (-counts[one], one))
        free = [one for one in (*wanted, *taken) if not costs.have_common(taken.get(one, ()), group)]
        like = {one: costs.likeness(taken[one], group) if one in taken else 1.0 for one in free}
        chosen = max(free, key=lambda one: like[one], default="")
        if like.get(chosen, 0.0) < LEAST_LIKENESS:
            chosen = _new_name({*taken, *current.values()})
        taken.setdefault(chosen, []).extend(group)
    return {name: group for group, names in taken.items() for name in names}


def _new_name(known: Iterable[str]) -> str:
    """A name that no group has; that of the first group is empty.

    >>> _new_name([]), _new_name([""]), _new_name(["", "group 2", "group 4"])
    ('', 'group 2', 'group 3')
    """
    taken = set(known)
    numbers = (f"group {i + 1}" if i else "" for i in range(len(taken) + 1))
    return next(name for name in numbers if name not in taken)


def _members(assigned: Mapping[str, str]) -> _Members:
    found: _Members = {}
    for name, group in assigned.items():
        found.setdefault(group, []).append(name)
    return found


def _fits(
    found: Iterable[Iterable[str]], queries: Mapping[str, Query], statistics: Statistics, budget: float | None
) -> bool:
    """Whether the inputs of all groups, each of which stores its own, are within a budget."""
    if budget is None:
        return True
    stored = (least_storage({name: queries[name] for name in group}, statistics) for group in found)
    return is_within(math.fsum(stored), budget)
