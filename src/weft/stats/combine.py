"""What queries are planned by: figures that were given, in their place those sampled, and in theirs those observed.

Guarantees: pure. A figure is taken from the most trusted source that has one (`weft.stats.figure.SOURCES`) with enough
evidence; the result is a plain `Statistics`.

Conditions that were only ever checked together cannot be told apart. Those of them that other batches or samples know
alone have that selectivity, and what is left is shared out among the others: the more selective one was thought to be,
the more of it. Where all of them are known alone, and what was observed of the set differs from their product by more
than chance allows, the set is *correlated*: its factor goes into `Statistics.joint`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol

from weft.stats.figure import Figure
from weft.stats.known import Checked, Known, PredicateSet, bounded, plus
from weft.stats.skew import HeavyShares
from weft.stats.statistics import Statistics

__all__ = ["ObservedFigures", "Sampled", "combined", "observed_figures", "sampled_enough"]

# So much evidence makes a sampled figure better than a given one, and so many matches tell of a set of predicates.
ENOUGH = 16.0
ERRORS = 4.0  # a set is correlated if it differs from the product by more than so many standard errors
FACTOR = 0.2  # and by more than this part of the product


class Sampled(Protocol):
    """What samples of the streams tell."""

    @property
    def selectivities(self) -> Mapping[str, Figure]:
        """Of predicates, by `predicate_name`."""

    @property
    def distinct(self) -> Mapping[str, Mapping[str, Figure]]:
        """How many values columns have, by stream and column."""

    @property
    def heavy(self) -> HeavyShares:
        """The shares of common values."""


@dataclass(frozen=True, slots=True)
class ObservedFigures:
    """What batches tell: selectivities by predicate, and the correlated sets with their selectivities and factors."""

    selectivities: Mapping[str, Figure] = field(default_factory=dict)
    joint: Mapping[PredicateSet, Figure] = field(default_factory=dict)
    factors: Mapping[PredicateSet, float] = field(default_factory=dict)


def sampled_enough(figures: Mapping[str, Figure]) -> dict[str, Figure]:
    """The sampled figures that have enough evidence to replace what was given."""
    return {name: figure for name, figure in figures.items() if figure.evidence >= ENOUGH}


def combined(given: Statistics, known: Known, sampled: Sampled | None = None) -> Statistics:
    """The given statistics, with what samples and batches tell in their place."""
    observed = observed_figures(known, sampled)
    found = given if sampled is None else _with_samples(given, sampled)
    rates = {name: rate for name in known.streams if (rate := known.rate(name)) is not None}
    streams = {name: replace(found.stream(name), rate=rate) for name, rate in rates.items()}
    costs = {name: one.seconds / one.rows for name, one in known.calls.items() if one.rows}
    seen = {name: figure.value for name, figure in observed.selectivities.items()}
    if not (streams or costs or seen or observed.factors):
        return found
    return replace(
        found,
        streams={**found.streams, **streams},
        selectivities={**found.selectivities, **seen},
        costs={**found.costs, **costs},
        joint={**found.joint, **observed.factors},
        origin="measured" if streams or seen else found.origin,
    )


def _with_samples(given: Statistics, sampled: Sampled) -> Statistics:
    selectivities = {n: _part(f.value) for n, f in sampled_enough(sampled.selectivities).items()}
    counts = {
        stream: {name: max(1.0, figure.value) for name, figure in sampled_enough(columns).items()}
        for stream, columns in sampled.distinct.items()
    }
    streams = {
        name: replace(given.stream(name), distinct={**given.stream(name).distinct, **columns})
        for name, columns in counts.items()
        if columns
    }
    heavy = {stream: {c: dict(s) for c, s in columns.items()} for stream, columns in sampled.heavy.items()}
    if not (selectivities or streams or heavy):
        return given
    found = replace(
        given,
        streams={**given.streams, **streams},
        selectivities={**given.selectivities, **selectivities},
        origin="measured",
    )
    return found.with_heavy(heavy)


def _part(value: float) -> float:
    """A selectivity that is neither 0, with which all plans would cost the same, nor above 1."""
    return min(1.0, max(1e-12, value))


def observed_figures(known: Known, sampled: Sampled | None = None) -> ObservedFigures:
    """The selectivities that batches tell, of single predicates and of correlated sets."""
    samples = sampled_enough(sampled.selectivities) if sampled is not None else {}
    found = {name: _figure(one) for name, one in known.exact.items()}
    for names in sorted(known.first, key=_size):
        alone = samples if len(names) > 1 else {}
        found |= _shared_out(names, known.first[names], {**alone, **found}, known.guesses)
    for names in sorted(known.later, key=_size):
        found |= _shared_out(names, known.later[names], {**samples, **found}, known.guesses)
    return ObservedFigures(found, *_correlated(known, {**samples, **found}))


def _size(names: PredicateSet) -> tuple[int, PredicateSet]:
    return len(names), names


def _figure(checked: Checked, value: float | None = None) -> Figure:
    shown = checked.selectivity if value is None else value
    return Figure(shown, "observed", checked.compared, checked.batch, checked.moment)


def _shared_out(
    names: PredicateSet, checked: Checked, alone: Mapping[str, Figure], guesses: Mapping[str, float]
) -> dict[str, Figure]:
    """The selectivities of the conditions of a set that are not known ``alone``, as if each had been checked alone."""
    unknown = [name for name in names if name not in alone]
    if not unknown:
        return {}
    compared = checked.compared * math.prod(_part(alone[name].value) for name in names if name in alone)
    together = bounded(min(checked.matched, compared), compared)
    logs = {name: -math.log(_part(guesses.get(name, 0.5))) for name in unknown}
    total = sum(logs[name] for name in unknown)
    parts = {name: log / total if total else 1 / len(unknown) for name, log in logs.items()}
    return {name: _figure(checked, together ** parts[name]) for name in logs}


def _correlated(
    known: Known, alone: Mapping[str, Figure]
) -> tuple[dict[PredicateSet, Figure], dict[PredicateSet, float]]:
    """The sets that are not independent: their selectivities, and by what factor these differ from the product."""
    pairs = {names: one for names, one in known.first.items() if len(names) > 1}
    sets = {names: (one, math.prod(alone[n].value for n in names)) for names, one in pairs.items()}
    for (names, _), one in sorted(known.joint.items(), key=lambda item: item[1].checked.batch):
        old = sets.get(names)
        sets[names] = plus(old[0] if old else None, one.whole), one.independent  # the newest is the last
    figures, factors = {}, {}
    for names, (checked, independent) in sorted(sets.items()):
        expected = checked.compared * independent
        if max(expected, checked.matched) < ENOUGH or expected <= 0:
            continue
        factor = checked.selectivity / independent
        if abs(factor - 1) > max(FACTOR, ERRORS * _error(names, expected, alone)):
            figures[names], factors[names] = _figure(checked), factor
    return figures, factors


def _error(names: PredicateSet, expected: float, alone: Mapping[str, Figure]) -> float:
    """The relative standard error of a factor, where so many matches are expected by the single figures of the set."""
    variance = 1 / expected
    for figure in (alone[name] for name in names if name in alone):
        counted = figure.evidence * (figure.value if figure.source == "observed" else 1.0)
        variance += 1 / max(counted, 0.5)
    return math.sqrt(variance)
