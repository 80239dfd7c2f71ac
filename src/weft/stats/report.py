"""The figures of the statistics one by one: of what they are, where they come from, how old they are.

Guarantees: plain values, in the order in which people look for them: streams, functions, predicates, sets of these.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft.stats.combine import Sampled, observed_figures
from weft.stats.figure import Figure
from weft.stats.known import Known

__all__ = ["StatisticsRow", "observed_rows", "row_of"]


@dataclass(frozen=True, slots=True)
class StatisticsRow:
    """One figure: ``what`` is known ``of`` a stream, a column, a function, a predicate or a set of predicates.

    ``what`` is rate (tuples per second), bytes (per stored tuple), distinct, heavy (a value's share), cost (seconds per
    call), selectivity, or joint (the selectivity of a correlated set). ``batches`` and ``seconds`` are how long before
    the newest batch the last one began that told it; None if none did.
    """

    of: str
    what: str
    value: float
    source: str
    evidence: float = 0.0
    batches: int | None = None
    seconds: float | None = None


def row_of(of: str, what: str, figure: Figure, known: Known) -> StatisticsRow:
    """The row of a figure, with its age."""
    batches = None if figure.batch is None else max(0, known.batch - figure.batch)
    seconds = None if figure.moment is None else max(0.0, known.moment - figure.moment)
    return StatisticsRow(of, what, figure.value, figure.source, figure.evidence, batches, seconds)


def observed_rows(known: Known, sampled: Sampled | None = None) -> Iterator[StatisticsRow]:
    """All that batches tell."""
    for name, one in sorted(known.streams.items()):
        rate, told = known.rate(name), (one.batch, one.moment)
        if rate is not None:
            yield row_of(name, "rate", Figure(rate, "observed", one.rows, *told), known)
        if one.held > 0:
            yield row_of(name, "bytes", Figure(one.bytes / one.held, "observed", one.held, *told), known)
    for name, call in sorted(known.calls.items()):
        cost = Figure(call.seconds / call.rows, "observed", call.rows, call.batch, call.moment)
        yield row_of(name, "cost", cost, known)
    found = observed_figures(known, sampled)
    for name, figure in sorted(found.selectivities.items()):
        yield row_of(name, "selectivity", figure, known)
    for names, figure in sorted(found.joint.items()):
        yield row_of(" AND ".join(names), "joint", figure, known)
