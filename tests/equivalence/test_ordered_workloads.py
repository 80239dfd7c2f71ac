"""Queries in every order that share what they have, come and go: each answers as if it were alone, and in its order."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.equivalence.drive import Course, Setting, random_setting, run
from tests.equivalence.merging import random_merging
from tests.equivalence.oracle import PERIOD
from tests.equivalence.ordered import PRECISIONS, Longs
from tests.equivalence.test_adapting import SHORT, adapted, adapting, seldom
from tests.equivalence.visibilities import Chronicle, came_in, difference, whenever
from tests.equivalence.workloads import Wish, Workload, random_workload
from tests.shares import seeds
from weft.logical.query.ordering import Ordering
from weft.logical.query.query import Output
from weft.optimizer.joint.methods import METHODS
from weft.testing import is_ordered

SEEDS = 24


def ordered_workload(workload: Workload, seed: int) -> Workload:
    """A workload with most of its queries ordered, all of which say which tuples their results are of."""
    rng = random.Random(seed)
    changes = tuple(
        replace(change, begin={name: _ordered(wish, rng) for name, wish in change.begin.items()})
        for change in workload.changes
    )
    return replace(workload, changes=changes)


def _ordered(wish: Wish, rng: random.Random) -> Wish:
    shown = tuple(Output(f"id_{i.alias}", i.column("id")) for i in wish.query.inputs)
    query = replace(wish.query, projection=(*shown, *wish.query.projection))
    wish = replace(wish, query=query, backfill=wish.backfill and rng.random() < 0.3)
    kinds = ["none"] if wish.backfill else ["none", "outer", "outer", "inner", "inner"]
    kinds += [] if any(i.stream.late == "join" for i in query.inputs) else ["event"] * 6
    kind = rng.choice(kinds)
    if kind == "none":
        return wish
    names = tuple(rng.sample(query.aliases, len(query.aliases))) if kind == "inner" else ()
    precision = 1 if kind == "event" else rng.choice(PRECISIONS)
    return replace(wish, ordering=Ordering(kind, precision, names))


def check(
    seed: int,
    met: Counter[str],
    given: Workload,
    settings: Callable[[Workload, str, int], Setting] = random_setting,
) -> None:
    """One workload by one method."""
    workload, method = ordered_workload(given, seed), METHODS[seed % len(METHODS)]
    lives = workload.lives()
    arrivals = [number * PERIOD for number in range(len(workload.changes))]
    chronicle = Chronicle(workload.streams, arrivals, lives)
    course = run(workload, settings(workload, method, seed))
    met.update(adapted(course))
    orders = [course.metrics[n].order if n in course.metrics else () for n in range(len(arrivals))]
    for name, life in lives.items():
        member = course.members[name]
        expected, results = chronicle.expected(member, orders), came_in(course.results.get(name, []))
        told = (
            f"seed {seed}, {method}, {name} in [{life.first}, {life.last}), {member.ordering}: {life.query}"
        )
        if member.held:
            expected, results = expected.whenever(), whenever(results)
            if life.last < len(arrivals):  # what waited when it was stopped is gone
                expected = replace(expected, least=Counter())
        wrong = difference(expected, results)
        assert not wrong, f"{told}: {wrong}"
        if member.ordering is not None and results:
            met.update([f"{member.ordering.kind}, newcomer" if life.first else member.ordering.kind])
            assert is_in_order(course, chronicle, name, orders), told


def is_in_order(course: Course, chronicle: Chronicle, name: str, orders: list[tuple[str, ...]]) -> bool:
    """Whether all that a query gave is in its order."""
    member, life = course.members[name], chronicle.lives[name]
    ordering = member.ordering or Ordering("outer")
    results = pa.concat_tables([table for _, table in course.results[name]])
    streams = {i.alias: chronicle.tuples[i.stream.name] for i in life.query.inputs}
    rows = {a: np.searchsorted(t.rows, results[f"id_{a}"].to_numpy()) for a, t in streams.items()}
    if ordering.kind == "event":
        return is_ordered({alias: streams[alias].time[rows[alias]] for alias in streams}, "event")
    places = _places(chronicle, name, orders)
    names = ordering.inputs or tuple(streams)
    found = {alias: places[alias][rows[alias]] for alias in names}
    return is_ordered(found, ordering.kind, ordering.precision, numbers=rows)


def _places(chronicle: Chronicle, name: str, orders: list[tuple[str, ...]]) -> dict[str, Longs]:
    """The place of every tuple among all of the query's inputs since its first batch; of older ones, before them."""
    life = chronicle.lives[name]
    found: dict[str, Longs] = {}
    for input_ in life.query.inputs:
        tuples = chronicle.tuples[input_.stream.name]
        rank = np.array([list(order).index(input_.alias) if input_.alias in order else 0 for order in orders])
        found[input_.alias] = (tuples.batch * 100 + rank[tuples.batch]) * 10_000 + tuples.rows
    every = np.sort(np.concatenate(list(found.values())))
    older = int(np.searchsorted(every, life.first * 1_000_000))
    return {alias: np.searchsorted(every, places) - older for alias, places in found.items()}


@pytest.mark.ci
def test_ordered_queries_that_share_and_come_and_go() -> None:
    """What is shared must not mix up what is ordered, and a newcomer's partners must be in order too."""
    met: Counter[str] = Counter()
    for seed in seeds(SEEDS, least=SEEDS):
        with random_merging(seed):
            check(seed, met, random_workload(seed))
    wanted = {"outer", "inner", "event"}
    assert wanted | {f"{kind}, newcomer" for kind in wanted} <= set(met)


@pytest.mark.ci
def test_ordered_queries_whose_plans_change() -> None:
    """A result that is found in a store filled side by side has its place, too."""
    met: Counter[str] = Counter()
    for seed in seeds(SEEDS, least=SEEDS):
        given = seldom(random_workload(seed, windows=SHORT, batches=(8, 12)), seed)
        with random_merging(seed):
            check(seed, met, given, adapting)
    assert {"outer", "inner", "event", "filled stores that took over"} <= set(met)
    assert "intermediate results that are filled side by side" in met
