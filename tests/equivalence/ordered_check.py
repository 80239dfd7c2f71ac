"""A random join whose results are ordered, compared with the definition and its order."""

from __future__ import annotations

import random

import numpy as np

from tests.equivalence.options import random_options
from tests.equivalence.oracle import Oracle, differs, run
from tests.equivalence.ordered import PRECISIONS, Truth, dropping, shown_join
from tests.equivalence.streams import Join
from tests.local_runner import LocalRunner
from weft.logical.query.ordering import LAST, Ordering
from weft.optimizer.single.strategies import STRATEGIES, optimise
from weft.plan.physical.lower import lower
from weft.ports.punctuation import Punctuations
from weft.runtime.loop.driver_order import POLICIES
from weft.stats.statistics import Statistics
from weft.testing import is_ordered

ORDERS = ("outer", "inner", "event")


def ordering_for(join: Join, kind: str, rng: random.Random) -> Ordering:
    """An order with a random precision; FROM names the inputs in a random order."""
    if kind == "event":
        return Ordering(kind)
    names = rng.sample(join.query.aliases, len(join.query.aliases))
    return Ordering(kind, rng.choice(PRECISIONS), tuple(names) if kind == "inner" else ())


def ordered_run(join: Join, ordering: Ordering, seed: int) -> LocalRunner:
    """A run by a random plan."""
    strategies = [name for name in STRATEGIES if name != "exhaustive" or len(join.query.inputs) < 4]
    options = random_options(seed, strategies[seed % len(strategies)])
    graph = lower(optimise(join.query, Statistics(), options), ordering=ordering)
    policy = list(POLICIES)[seed % len(POLICIES)]
    return run(join, graph, partitions=options.partitions, driver=policy)


def holds(truth: Truth, ordering: Ordering) -> bool:
    """Whether results are in order."""
    names = ordering.inputs or tuple(truth.places)
    if ordering.kind == "event":
        return is_ordered(truth.times, "event")
    places = {name: truth.places[name] for name in names}
    return is_ordered(places, ordering.kind, ordering.precision, numbers=truth.numbers)


def check_punctuations(truth: Truth, ordering: Ordering, marks: Punctuations) -> None:
    """What they say is so: the first rows are all results up to there, and no others."""
    timed = ordering.kind == "event"
    last = np.max(list((truth.times if timed else truth.places).values()), axis=0)
    found, limits = np.sort(last), marks.marks + 1 if timed else marks.marks
    assert np.array_equal(np.searchsorted(found, limits), marks.rows)
    highest = np.maximum.accumulate(np.append(-(1 << 62), last))[marks.rows]
    assert (highest < limits).all()
    assert (np.diff(marks.rows) >= 0).all()
    assert (np.diff(marks.marks) >= 0).all()


def check(seed: int) -> None:
    """One random join, in one order."""
    rng, kind = random.Random(seed), ORDERS[seed % len(ORDERS)]
    join = dropping(shown_join(seed)) if kind == "event" else shown_join(seed)
    ordering, oracle = ordering_for(join, kind, rng), Oracle.of(join)
    runner = ordered_run(join, ordering, seed)
    told = f"seed {seed}, {ordering}: {join.query}"
    if kind == "event":
        released(join, runner, Truth.of(oracle, runner.metrics))
        runner.end(now=100_000_000)
    results, marks = runner.results(), runner.punctuations["query"]
    wrong = differs(oracle, results, runner.metrics)
    assert not wrong, f"{told}: {wrong}"
    truth = Truth.of(oracle, runner.metrics).of_results(results)
    assert holds(truth, ordering), told
    check_punctuations(truth, ordering, marks)
    assert marks[-1].rows == results.num_rows
    if kind == "event":
        assert int(marks.marks[-1]) == LAST
    else:
        assert marks[-1].tuples == sum(oracle.kept[i.stream.name].size for i in join.query.inputs)


def released(join: Join, runner: LocalRunner, truth: Truth) -> None:
    """What has left is what the watermarks have passed."""
    marks = runner.metrics[-1].watermarks
    results = runner.results()
    if results.num_rows:
        clock = min(marks[input_.stream.name] for input_ in join.query.inputs)
        last = np.max(list(truth.of_results(results).times.values()), axis=0)
        assert last.max() < clock
