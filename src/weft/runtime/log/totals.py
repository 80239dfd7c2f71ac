"""What a session has done since its log began, summed up batch by batch.

Guarantees: plain data that goes through JSON. Totals are part of the manifest of a batch, so they count every committed
batch once, however many there were and however often the session was started again, and never go down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.logical.codec import compact, decode
from weft.stats.input_figures import TupleCounts

__all__ = ["QueryTotals", "Totals"]


@compact
@dataclass(frozen=True, slots=True)
class QueryTotals:
    """In how many batches a query was, and how many results it gave; ``closed`` of them were not found by probes.

    ``first`` is the batch that it began with, by which it is told from others of its name; None: not known, in a log
    that an earlier version of Weft began.
    """

    first: int | None = None
    batches: int = 0
    results: int = 0
    closed: int = 0


@dataclass(frozen=True, slots=True)
class Totals:
    """All that was done: ``batches`` in which queries ran, the ``seconds`` these took, and all ``results``.

    ``queries`` are those that run, by name; ``results`` are also those of queries that have stopped.
    """

    batches: int = 0
    seconds: float = 0.0
    results: int = 0
    queries: Mapping[str, QueryTotals] = field(default_factory=dict)
    streams: Mapping[str, TupleCounts] = field(default_factory=dict)

    def plus(
        self, seconds: float, queries: Mapping[str, QueryTotals], streams: Mapping[str, TupleCounts]
    ) -> Totals:
        """With one batch more, whose queries then have these totals, and which these streams brought something to."""
        counted = {name: self.streams.get(name, TupleCounts()) + one for name, one in streams.items()}
        return Totals(
            self.batches + 1,
            self.seconds + seconds,
            self.results + sum(one.results - self._before(name, one) for name, one in queries.items()),
            dict(queries),
            {**self.streams, **counted},
        )

    def _before(self, name: str, now: QueryTotals) -> int:
        known = self.queries.get(name)
        return known.results if known is not None and known.first in (None, now.first) else 0

    def since(self, before: Totals) -> Totals:
        """What was done after a moment."""
        queries = {
            name: QueryTotals(
                one.first,
                one.batches - known.batches,
                one.results - known.results,
                one.closed - known.closed,
            )
            for name, one in self.queries.items()
            for known in [before.of_query(name, one.first)]
        }
        streams = {name: one - before.streams.get(name, TupleCounts()) for name, one in self.streams.items()}
        done = (self.batches - before.batches, self.seconds - before.seconds, self.results - before.results)
        return Totals(*done, queries, streams)

    def of_query(self, name: str, first: int | None) -> QueryTotals:
        """The totals of a query that began with a batch; nothing, if they are those of another query of its name."""
        known = self.queries.get(name, QueryTotals())
        return known if None in (known.first, first) or known.first == first else QueryTotals(first)

    @classmethod
    def from_manifest(cls, data: Mapping[str, Any]) -> Totals:
        """The totals in a manifest as plain data; of one without, what its other counters tell."""
        known = data.get("totals")
        if known is None:
            results, arrived = data.get("results", {}), data.get("arrived", {})
            return cls(
                data.get("number", -1) + 1,
                0.0,
                sum(results.values()),
                {name: QueryTotals(None, 0, count) for name, count in results.items()},
                {name: TupleCounts(count) for name, count in arrived.items()},
            )
        return decode(cls, known)
