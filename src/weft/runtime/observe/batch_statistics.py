"""Statistics for the optimiser, measured in batches: rates, selectivities, costs of functions and heavy values.

Guarantees: if a query is planned again with the measured statistics, what it did is predicted for it, as far as the
estimates (`weft.stats.estimate`) can express it. Statistics that batches do not measure stay as they were.

- A stream's *rate* is that of its tuples before filters.
- A *filter*'s selectivity is how many of an input's tuples went on to their first probe. Tuples whose key is NULL do
  not, and count as filtered: they join nothing either way.
- A *join predicate*'s selectivity is matches over compared pairs, summed over all steps that check it: which of two
  inputs finds a pair depends on batches and driver order, the sum does not. The pairs that count as compared are those
  that windows and time bounds let a probe meet, at the measured rates, and never more than were stored.
- A *set* of predicates over three inputs and more is measured by all steps that complete it: by the pairs that they
  compared, and by what part of all combinations of tuples the predicates fulfilled before had left over.
- Conditions that call users' functions are counted one by one, where they are checked.
- The *cost* of a user's function is the seconds that all its calls took, by the rows that they computed.

Sums are kept, in which older batches weigh less (`weft.stats.known`); `weft.stats.combine` makes figures of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from weft.plan.physical.graph import PhysicalGraph
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.watched_query import WatchedQuery, WatchedStep, watch
from weft.runtime.observe.weighted_batches import CountedStep, SeenBatch, WeightedBatches
from weft.stats.combine import combined
from weft.stats.estimate import Estimator
from weft.stats.known import Checked, HalfLife, JointSums, Known, plus, weights
from weft.stats.statistics import Statistics

__all__ = ["Folding", "heavy_known", "measured"]

MOVED = 0.03  # estimates are made anew when a figure that they rest on has moved by this part

FOREVER = HalfLife(math.inf, math.inf)


def measured(
    statistics: Statistics, graph: PhysicalGraph, metrics: Sequence[BatchMetrics], last: int | None = None
) -> Statistics:
    """The statistics, updated by the batches of a graph of one query, or the ``last`` of them; all weigh the same.

    If the batches cover no time or have no tuples, only the costs of functions are updated.
    """
    query = watch(graph, graph.members[0].name)
    first = len(metrics) - min(last or len(metrics), len(metrics))
    if metrics and first == 0 and metrics[0].number > 0:
        first = 1  # it is not known what was stored before the first of these batches
    earlier = [BatchMetrics(-1, (), {}, {}, {}, 0), *metrics]
    seen = [SeenBatch(one, before.stores) for one, before in zip(metrics, earlier, strict=False)]
    newest = _newest(query, metrics[:first])
    known = Folding((query,), FOREVER).fold(
        Known(), seen[first:], lambda found: combined(statistics, found), newest
    )
    return combined(statistics, known)


def heavy_known(statistics: Statistics, last: BatchMetrics | None) -> Statistics:
    """The statistics with the heavy values in the metrics of the last batch, which include those of earlier ones."""
    if last is None:
        return statistics
    found = {
        stream: {name: dict(shares) for name, shares in columns.items()}
        for stream, columns in last.heavy.items()
    }
    return statistics.with_heavy(found)


def _newest(query: WatchedQuery, metrics: Iterable[BatchMetrics]) -> dict[str, int]:
    """The newest event time of every stream in some batches."""
    found: dict[str, int] = {}
    for batch in metrics:
        for one in query.inputs:
            time = batch.inputs[one.alias].newest if one.alias in batch.inputs else None
            if time is not None:
                found[one.stream] = max(time, found.get(one.stream, time))
    return found


@dataclass
class _Expectation:
    """The estimates for a query, and the figures that they rest on."""

    figures: Sequence[float]
    estimator: Estimator

    def met(self, step: WatchedStep) -> float | None:
        """How many stored tuples a probe meets within windows and time bounds; None if these bound nothing."""
        estimator, both = self.estimator, step.known | step.inside
        names = [alias for place, alias in enumerate(estimator.query.aliases) if step.inside >> place & 1]
        start = estimator.query.aliases[step.place]
        unbounded = any(estimator.content(start, other)[1] for other in names)
        if unbounded or not estimator.tuples(step.place, step.known) * estimator.selectivity(both):
            return None
        return estimator.tuples_met(step.place, step.known, step.inside)

    def passed_before(self, step: WatchedStep) -> float:
        """The part of combinations that fulfil the predicates which are checked before a step."""
        return min(1.0, self.estimator.selectivity(step.known) * self.estimator.selectivity(step.inside))

    def independent(self, step: WatchedStep) -> float:
        """The part of combinations that would fulfil all predicates after a step if they were independent."""
        return min(1.0, self.estimator.independent_selectivity(step.known | step.inside))


@dataclass
class Folding:
    """Adds what batches counted by one graph to what is known; estimates are remembered between calls."""

    queries: Sequence[WatchedQuery]
    half_life: HalfLife
    _expected: dict[str, _Expectation] = field(default_factory=dict)

    def fold(
        self,
        known: Known,
        batches: Sequence[SeenBatch],
        statistics: Callable[[Known], Statistics],
        newest: Mapping[str, int] | None = None,
    ) -> Known:
        """What is known after some more batches; ``statistics`` makes of what is known what estimates rest on.

        ``newest`` are event times of streams that are known from still earlier batches.
        """
        if not batches:
            return known
        moments = [(one.metrics.number, one.metrics.started) for one in batches]
        before, *each = weights(self.half_life, (known.batch, known.moment), moments)
        seen = WeightedBatches(
            list(zip(batches, each, strict=True)), known.moment if known.batch >= 0 else None
        )
        found = self._with_tuples(known.faded(before), seen, newest or {})
        found = self._with_guesses(found, statistics)
        steps = seen.steps(self.queries)
        for inputs in sorted(
            {one.step.inputs for one in steps}
        ):  # estimates of large joins rest on those of small ones
            self._estimate(statistics(found))
            found = self._with_steps(found, [one for one in steps if one.step.inputs == inputs], seen)
        self._estimate(statistics(found))
        return self._with_sets(found, steps, seen)

    def _with_tuples(self, known: Known, seen: WeightedBatches, newest: Mapping[str, int]) -> Known:
        """With what was counted of single tuples: of streams, filters and functions."""
        return replace(
            known,
            batch=seen.last.number,
            moment=seen.last.started,
            streams=seen.add_streams(known, self.queries, newest),
            exact=seen.add_exact(known.exact, self.queries),
            first=seen.add_filters(known.first, self.queries),
            calls=seen.add_calls(known.calls),
        )

    def _with_guesses(self, known: Known, statistics: Callable[[Known], Statistics]) -> Known:
        """With what is thought of the conditions of queries that are new."""
        new = [query for query in self.queries if query.name not in self._expected]
        if not new:
            return known
        nothing = statistics(Known())
        found = {n: nothing.selectivity(q.query, p) for q in new for n, p in q.conditions.items()}
        return replace(known, guesses={**known.guesses, **found})

    def _estimate(self, statistics: Statistics) -> None:
        """Estimate queries anew, unless what their estimates rest on has hardly moved."""
        for query in self.queries:
            figures, old = _figures(query, statistics), self._expected.get(query.name)
            if old is None or _has_moved(old.figures, figures):
                self._expected[query.name] = _Expectation(figures, Estimator(query.query, statistics))

    def _with_steps(self, known: Known, steps: Sequence[CountedStep], seen: WeightedBatches) -> Known:
        """With what steps checked that join equally many inputs."""
        first, later = dict(known.first), dict(known.later)
        for one in steps:
            found, names = first if one.step.inputs == 2 else later, one.step.checked
            found[names] = plus(found.get(names), self._checked(one, seen))
        return replace(known, first=first, later=later)

    def _with_sets(self, known: Known, steps: Sequence[CountedStep], seen: WeightedBatches) -> Known:
        """With the whole sets of predicates that are fulfilled after steps."""
        joint = dict(known.joint)
        for one in (one for one in steps if one.step.joined):
            expected, key = self._expected[one.query], (one.step.joined, one.step.fulfilled)
            passed, alone = expected.passed_before(one.step), expected.independent(one.step)
            if passed > 0 and alone > 0:
                old = joint[key].checked if key in joint else None
                joint[key] = JointSums(plus(old, self._checked(one, seen)), passed, alone)
        return replace(known, joint=joint)

    def _checked(self, one: CountedStep, seen: WeightedBatches) -> Checked:
        return seen.checked(one, self._expected[one.query].met(one.step))


def _figures(query: WatchedQuery, statistics: Statistics) -> list[float]:
    """The figures that estimates for a query rest on."""
    rates = [statistics.stream(one.stream).rate for one in query.inputs]
    chances = [statistics.selectivities.get(name, -1.0) for name in query.conditions]
    return rates + chances + [statistics.joint.get(step.joined, 1.0) for step in query.steps]


def _has_moved(old: Sequence[float], new: Sequence[float]) -> bool:
    return any(abs(a - b) > MOVED * abs(b) for a, b in zip(new, old, strict=True))
