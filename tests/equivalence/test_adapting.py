"""However often the plan changes while queries run, and in whichever way: each answers as the definition says.

Statistics are drawn anew whenever a plan is made, so plans differ widely; batches are few and small, and in most of
them the plan changes, at once, by laying out stores anew, or by filling new ones side by side.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest

from tests.equivalence.campaign import campaign
from tests.equivalence.drive import Course, Setting, any_statistics, random_setting
from tests.equivalence.workload_check import check_workload
from tests.equivalence.workloads import Change, Workload, random_workload
from tests.shares import quick
from weft.optimizer.joint.methods import METHODS

BLOCKS, SEEDS = 2, 4
OUTER_SEEDS = 3
ALONE_SEEDS = 6

SHORT = (
    *("[RANGE 1 SECOND]", "[RANGE 2 SECONDS]", "[RANGE 3 SECONDS]", "[RANGE 5 SECONDS]", "[RANGE 8 SECONDS]"),
    *("[ROWS 1]", "[ROWS 2]", "[ROWS 4]"),
)

# What part of all cases, at least, must meet each of these.
WANTED = {
    "stores that are filled": 0.3,
    "intermediate results that are filled": 0.05,
    "stores that stay": 0.5,
    "stores that are filled side by side": 0.3,
    "intermediate results that are filled side by side": 0.05,
    "a store that is filled for more queries than use it": 0.05,
    "filled stores that took over": 0.15,
    "a newcomer while stores are filled": 0.05,
}
WANTED_ALONE = {"stores that are filled": 0.1, "stores that are filled side by side": 0.1}
WANTED_OUTER = {"stores that are filled side by side": 0.02, "a query with outer joins": 0.3}


def adapting(workload: Workload, method: str, seed: int) -> Setting:
    """Other statistics for every plan, and a plan for almost every batch."""
    setting, rng = random_setting(workload, method, seed), random.Random(f"{seed} adapting")
    names = [stream.name for stream in workload.streams.catalog.streams]
    options = replace(setting.options, partitions=rng.choice((1, 2, 3)))
    return replace(
        setting,
        options=options,
        statistics=lambda: any_statistics(rng, names),
        afresh=0.7,
        beside=rng.choice((0.0, 0.5, 1.0, 1.0)),
    )


def seldom(workload: Workload, seed: int) -> Workload:
    """The workload with most changes of queries left out, so that plans have time to change in between."""
    rng, kept, gone = random.Random(f"{seed} seldom"), list[Change](), set[str]()
    for number, change in enumerate(workload.changes):
        if number and rng.random() < 0.75:
            gone |= {*change.begin}
            kept.append(Change())
        else:
            kept.append(replace(change, stop=tuple(name for name in change.stop if name not in gone)))
    return replace(workload, changes=tuple(kept))


def adapted(course: Course) -> Iterator[str]:
    """What changes of plans a case met."""
    if course.filled:
        yield "filled stores that took over"
    for boundary in course.boundaries:
        filling = [store for store in boundary.decision.graph.stores if store.filling]
        if filling:
            yield "stores that are filled side by side"
        if any(len(store.aliases) > 1 for store in filling):
            yield "intermediate results that are filled side by side"
        if any(set(store.users) > set(store.filling) for store in filling):
            yield "a store that is filled for more queries than use it"
        before = boundary.before
        was_filling = before is not None and any(store.filling for store in before.graph.stores)
        known = set(before.members) if before is not None else set()
        if was_filling and {member.name for member in boundary.decision.graph.members} - known:
            yield "a newcomer while stores are filled"


def check(seed: int, met: Counter[str]) -> None:
    """One random workload by every method."""
    workload = random_workload(seed, ternary=0.2, windows=SHORT, batches=(8, 12, 16))
    check_workload(seldom(workload, seed), seed, met, adapting, adapted)


def check_outer(seed: int, met: Counter[str]) -> None:
    """One of queries most of which have outer joins."""
    workload = random_workload(seed, outer=0.6, windows=SHORT, batches=(6, 8, 12))
    check_workload(seldom(workload, seed), seed, met, adapting, adapted)


def check_alone(seed: int, met: Counter[str]) -> None:
    """One query alone, whose tuples carry no query-sets."""
    workload = random_workload(seed, windows=SHORT, batches=(8, 12))
    begin = dict(list(workload.changes[0].begin.items())[:1])
    changes = (Change(begin), *(Change() for _ in workload.changes[1:]))
    if begin:
        check_workload(replace(workload, changes=changes), seed, met, adapting, adapted)


def test_a_query_alone_whose_plan_changes_answers_like_the_definition() -> None:
    """Its tuples say nothing of whose they are, also those that are laid out anew."""
    campaign(check_alone, 0, ALONE_SEEDS, len(METHODS), WANTED_ALONE)


@pytest.mark.ci
@pytest.mark.parametrize("block", quick(range(BLOCKS)))
def test_queries_whose_plans_change_answer_like_the_definition(block: int) -> None:
    """A result lost or given twice because a store lacks what came before it, or because both plans found it."""
    campaign(check, block, SEEDS, len(METHODS), WANTED)


@pytest.mark.ci
def test_outer_joins_whose_plans_change_answer_like_the_definition() -> None:
    """A row padded though its partner is in a store that the new plan does not look at."""
    campaign(check_outer, 0, OUTER_SEEDS, len(METHODS), WANTED_OUTER)
