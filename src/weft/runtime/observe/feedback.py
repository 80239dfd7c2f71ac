"""Statistics for the optimiser, measured in batches: rates, selectivities, costs of functions and heavy values.

Guarantees: pure. If a query is planned again with the measured statistics, what it did is predicted for it, as far as
the estimates (`weft.stats.estimate`) can express it. Statistics that batches do not measure stay as they were.

- A stream's *rate* is that of its tuples before filters.
- A *filter*'s selectivity is how many of an input's tuples went on to their first probe. Tuples whose key is NULL do
  not, and count as filtered: they join nothing either way.
- A *join predicate*'s selectivity is matches over compared pairs, summed over all steps that check it: which of two
  inputs finds a pair depends on batches and driver order, the sum does not. The pairs that count as compared are those
  that windows and time bounds let a probe meet, at the measured rates, and never more than were stored.
- Conditions that call users' functions are counted one by one, where they are checked.
- The *cost* of a user's function is the seconds that all its calls took, by the rows that they computed.

Where conditions are only ever checked together, their common selectivity is shared out among them: the more selective a
condition was estimated to be, the more of it. Conditions that let nothing through count as letting through half a
tuple, since a selectivity of 0 would give all plans the same cost.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from weft.logical.expr import BOOLEAN, Expr, make_call
from weft.logical.horizon import is_time_bound
from weft.plan.derive import filters_of
from weft.plan.graph import PhysicalGraph
from weft.plan.join_plan import Names
from weft.plan.rules import ProbeRule
from weft.runtime.observe.metrics import BatchMetrics, StepMetrics
from weft.runtime.observe.observed import called_pairs, observed, probe_copies, store_copies
from weft.stats.estimate import Estimator
from weft.stats.statistics import Statistics, predicate_name

__all__ = ["heavy_known", "measured"]

Batches = Sequence[BatchMetrics]
Before = Sequence[BatchMetrics | None]  # for each batch, the metrics of the batch before it
Pairs = dict[str, tuple[float, float]]  # compared and matched, by `predicate_name`


def measured(
    statistics: Statistics, graph: PhysicalGraph, metrics: Batches, last: int | None = None
) -> Statistics:
    """The statistics, updated by a query's batches, or by the ``last`` of them.

    If the batches cover no time or have no tuples, only the costs of functions are updated.
    """
    statistics = _with_costs(statistics, metrics[-last:] if last else metrics)
    before: Before = [None, *metrics[:-1]]
    if metrics and metrics[0].number > 0:  # it is not known what was stored before the first of these batches
        before, last = before[1:], min(last or len(metrics), len(metrics) - 1)
    if last == 0:
        return statistics
    seen = observed(graph, metrics, last)
    if not seen.seconds or not any(one.rows for one in seen.inputs.values()):
        return statistics
    recent = metrics[-seen.batches :]
    rows = {graph.query.input(alias).stream.name: one.rows for alias, one in seen.inputs.items()}
    exact = called_pairs(graph, recent)
    entered = statistics.measured(seen.seconds, rows, exact | _filters(statistics, graph, recent, exact))
    pairs = _predicates(entered, graph, recent, before[-seen.batches :], exact)
    return entered.measured(seen.seconds, rows, pairs)


def heavy_known(statistics: Statistics, last: BatchMetrics | None) -> Statistics:
    """The statistics with the heavy values in the metrics of the last batch, which include those of earlier ones."""
    if last is None:
        return statistics
    found = {
        stream: {name: dict(shares) for name, shares in columns.items()}
        for stream, columns in last.heavy.items()
    }
    return statistics.with_heavy(found)


def _with_costs(statistics: Statistics, metrics: Batches) -> Statistics:
    rows: dict[str, int] = {}
    seconds: dict[str, float] = {}
    for batch in metrics:
        for name, one in batch.functions.items():
            rows[name] = rows.get(name, 0) + one.rows
            seconds[name] = seconds.get(name, 0.0) + one.seconds
    found = {name: seconds[name] / count for name, count in rows.items() if count}
    return replace(statistics, costs={**statistics.costs, **found}) if found else statistics


def _filters(statistics: Statistics, graph: PhysicalGraph, metrics: Batches, exact: Pairs) -> Pairs:
    found: Pairs = {}
    for source in graph.sources:
        rows = float(sum(b.inputs[source.alias].rows for b in metrics if source.alias in b.inputs))
        filters, known = _split_counted(graph, filters_of(graph.query, source.alias), exact)
        rows *= math.prod(known)
        if filters and rows:
            passed = sum(_passed(graph, source.alias, batch) for batch in metrics)
            found |= _shared(statistics, graph, filters, rows, min(passed, rows))
    return found


def _split_counted(
    graph: PhysicalGraph, checked: Sequence[Expr], exact: Pairs
) -> tuple[list[Expr], list[float]]:
    """The conditions that were not counted one by one, and the selectivities of those that were."""
    names = {p: predicate_name(graph.query, p) for p in checked}
    known = [passed / rows for rows, passed in (exact[name] for name in names.values() if name in exact)]
    return [p for p, name in names.items() if name not in exact], known


def _passed(graph: PhysicalGraph, alias: str, batch: BatchMetrics) -> float:
    """How many tuples of an input passed its filters in a batch, as counted by its first probe."""
    first = next((rule for rule in graph.probes(alias) if rule.known == (alias,)), None)
    if first is None:
        return float(batch.results)  # a query of one input
    step = batch.steps.get(first.edge)
    return step.tuples / probe_copies(graph, first) if step else 0.0


def _predicates(
    statistics: Statistics, graph: PhysicalGraph, metrics: Batches, before: Before, exact: Pairs
) -> Pairs:
    """How many pairs each predicate compared and matched, where those that steps check together share the result.

    Steps over few inputs come first, since their selectivities are used for steps that check more.
    """
    found: Pairs = dict(exact)
    for checked, rules in _groups(graph):
        known = [p for p in checked if predicate_name(graph.query, p) in found]
        unknown = [p for p in checked if p not in known]
        now = statistics.measured(1.0, {}, found)
        compared = _compared(Estimator(graph.query, now), graph, rules, metrics, before)
        compared *= math.prod(now.selectivity(graph.query, p) for p in known)
        matches = sum(step.matches for rule in rules for step in _steps(rule, metrics))
        if unknown and compared:
            found |= _shared(statistics, graph, unknown, compared, min(matches, compared))
    return found


def _groups(graph: PhysicalGraph) -> list[tuple[tuple[Expr, ...], list[ProbeRule]]]:
    """The steps grouped by the predicates they check, those over few inputs and with few predicates first."""
    steps: dict[tuple[Expr, ...], list[ProbeRule]] = {}
    for rule in graph.rules:
        if isinstance(rule, ProbeRule) and (checked := _checked(graph, rule)):
            steps.setdefault(checked, []).append(rule)
    sizes = {checked: min(len(_joined(graph, rule)) for rule in rules) for checked, rules in steps.items()}
    return sorted(steps.items(), key=lambda item: (sizes[item[0]], len(item[0]), *map(str, item[0])))


def _joined(graph: PhysicalGraph, rule: ProbeRule) -> Names:
    return tuple(sorted((*rule.known, *graph.store(rule.store).aliases)))


def _steps(rule: ProbeRule, metrics: Batches) -> list[StepMetrics]:
    return [batch.steps[rule.edge] for batch in metrics if rule.edge in batch.steps]


def _checked(graph: PhysicalGraph, rule: ProbeRule) -> tuple[Expr, ...]:
    """The predicates that a step checks, without bounds on event times, which count as part of the windows."""
    equal = [make_call("=", (e.probe, e.stored), BOOLEAN) for e in rule.equalities]
    theta = [p for p in rule.predicates if not is_time_bound(graph.query, p)]
    return tuple(sorted({*equal, *theta}, key=str))


def _compared(
    estimator: Estimator,
    graph: PhysicalGraph,
    rules: Sequence[ProbeRule],
    metrics: Batches,
    before: Before,
) -> float:
    """How many pairs windows let steps compare, and at most as many as there were."""
    there = sum(_stored_pairs(graph, rule, metrics, before) for rule in rules)
    inside = [_window_pairs(estimator, graph, rule, metrics) for rule in rules]
    bounded = [pairs for pairs in inside if pairs is not None]
    return min(there, sum(bounded)) if len(bounded) == len(inside) else there


def _window_pairs(
    estimator: Estimator, graph: PhysicalGraph, rule: ProbeRule, metrics: Batches
) -> float | None:
    """Probes times the tuples that each meets within windows and time bounds; None if these bound nothing."""
    inside = graph.store(rule.store).aliases
    unbounded = any(estimator.content(rule.start, other)[1] for other in inside)
    known, store = estimator.mask(rule.known), estimator.mask(inside)
    start = estimator.query.aliases.index(rule.start)
    if unbounded or not estimator.tuples(start, known) * estimator.selectivity(known | store):
        return None
    return (
        estimator.tuples_met(start, known, store)
        * sum(step.tuples for step in _steps(rule, metrics))
        / probe_copies(graph, rule)
    )


def _stored_pairs(graph: PhysicalGraph, rule: ProbeRule, metrics: Batches, before: Before) -> float:
    """Probes times the stored tuples that they saw: of earlier batches, and of inputs that came first in this one."""
    total = 0.0
    for batch, earlier in zip(metrics, before, strict=True):
        if rule.edge not in batch.steps:
            continue
        held = earlier.stores.get(rule.store) if earlier else None
        visible = held.rows / store_copies(graph, rule.store) if held else 0.0
        for other in graph.store(rule.store).aliases:
            if batch.order.index(other) < batch.order.index(rule.start):
                visible += _added(graph, rule.store, other, batch)
        total += visible * batch.steps[rule.edge].tuples / probe_copies(graph, rule)
    return total


def _added(graph: PhysicalGraph, store: str, start: str, batch: BatchMetrics) -> float:
    """How many tuples were added to a store on behalf of an input in a batch."""
    aliases = graph.store(store).aliases
    if len(aliases) == 1:
        return _passed(graph, start, batch)
    lasts = [rule for rule in graph.probes(start) if _joined(graph, rule) == aliases]
    return sum(step.matches for rule in lasts for step in _steps(rule, [batch]))


def _shared(
    statistics: Statistics, graph: PhysicalGraph, checked: Sequence[Expr], compared: float, matched: float
) -> Pairs:
    """Share out what several conditions compared and matched together, as if each had been checked alone."""
    thought = {p: min(1.0, max(1e-12, statistics.selectivity(graph.query, p))) for p in checked}
    logs = {p: -math.log(selectivity) for p, selectivity in thought.items()}
    total, together = sum(logs.values()), max(matched, min(0.5, compared)) / compared
    parts: Mapping[Expr, float] = {p: log / total if total else 1 / len(logs) for p, log in logs.items()}
    return {predicate_name(graph.query, p): (compared, compared * together ** parts[p]) for p in checked}
