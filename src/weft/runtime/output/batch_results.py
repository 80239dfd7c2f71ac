"""The results of a batch as the driver knows them: how many, which parts of sinks tasks wrote, what was sent to it.

Guarantees: immutable; a function of the reports of tasks alone. Of a query that failed in several tasks, the first
report counts; nothing else depends on the order of the reports but that of the lists.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

import pyarrow as pa

from weft.errors import FunctionError, SinkError
from weft.runtime.output.batch_files import read_file
from weft.runtime.wire.exchange import Sender
from weft.runtime.wire.reports import Failure, HopReport, ResultsReport
from weft.runtime.wire.sorted_runs import SortedRun
from weft.stats.histogram import Latency
from weft.storage.storage import Storage

__all__ = ["BatchResults", "SentResults"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, eq=False)
class SentResults:
    """Results of a query that a task sent to the driver: few in ``batches``, many in ``files`` of the batch.

    Of an ordered query, each of the batches is a sorted run, and ``runs`` are those that are in files.
    """

    sender: Sender
    batches: Sequence[pa.RecordBatch] = ()
    files: Sequence[str] = ()
    runs: Sequence[SortedRun] = ()


@dataclass(frozen=True, slots=True)
class BatchResults:
    """What tasks reported of results, by query.

    ``counts`` is how many results there are, and ``closed`` how many of them are closed rows. ``parts`` are the names
    of the parts that tasks wrote, and ``sent`` are results that came to the driver. ``failed`` says why queries could
    not be answered; ``broken`` has those of them for which a user's function failed, with its error. ``refused`` are
    the errors of sinks that tasks could not write to. ``ages`` is how old results were when the batch began.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    closed: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sent: Mapping[str, Sequence[SentResults]] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    broken: Mapping[str, FunctionError] = field(default_factory=dict)
    ages: Mapping[str, Latency] = field(default_factory=dict)
    refused: Mapping[str, SinkError] = field(default_factory=dict)

    @classmethod
    def of(
        cls, hops: Sequence[HopReport], results: Sequence[ResultsReport], failures: Sequence[Failure]
    ) -> BatchResults:
        """What tasks reported of results, in all hops, and of queries that failed."""
        failed: dict[str, str] = {}
        broken: dict[str, FunctionError] = {}
        refused: dict[str, SinkError] = {}
        for failure in failures:
            query = failure.query or ""
            if (refusal := failure.refused) is not None:
                refused.setdefault(query, refusal)
                continue
            failed.setdefault(query, failure.text)
            if (error := failure.broken) is not None:
                broken.setdefault(query, error)
        sent = (SentResults(one.sender, one.packed.batches(), one.files, one.runs) for one in results)
        return cls(
            _summed(report.counts for report in hops),
            _summed(report.closed for report in hops),
            _chained({query: [name] for query, name in report.parts.items()} for report in hops),
            _chained({report.query: [one]} for report, one in zip(results, sent, strict=True)),
            failed,
            broken,
            _merged(report.ages for report in hops),
            refused,
        )

    def rows(self, query: str) -> int:
        """How many results a query had; one that failed has none."""
        return 0 if query in self.failed else self.counts.get(query, 0)

    def results(self, query: str, storage: Storage) -> list[pa.RecordBatch]:
        """The results of a query for the driver; one that failed has none. Large files are mapped, not read."""
        if query in self.failed:
            return []
        sent = self.sent.get(query, ())
        read = (batch for one in sent for name in one.files for batch in read_file(storage, name, keep=True))
        return [*(batch for one in sent for batch in one.batches), *read]

    @property
    def files(self) -> bool:
        """Whether results are in files of the batch."""
        return any(one.files or one.runs for sent in self.sent.values() for one in sent)

    def after(self, past: BatchResults) -> BatchResults:
        """These answers with those of the job at the boundary before them."""
        return BatchResults(
            _summed((past.counts, self.counts)),
            self.closed,
            _chained((past.parts, self.parts)),
            _chained((past.sent, self.sent)),
            {**past.failed, **self.failed},
            {**past.broken, **self.broken},
            self.ages,
            {**past.refused, **self.refused},
        )


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for by_name in counts:
        for name, number in by_name.items():
            sums[name] = sums.get(name, 0) + number
    return sums


def _merged(reported: Iterable[Mapping[str, Latency]]) -> dict[str, Latency]:
    sums: dict[str, Latency] = {}
    for by_name in reported:
        for name, ages in by_name.items():
            sums[name] = sums[name] + ages if name in sums else ages
    return sums


def _chained(lists: Iterable[Mapping[str, Sequence[_T]]]) -> dict[str, Sequence[_T]]:
    chains: dict[str, list[_T]] = {}
    for by_name in lists:
        for name, more in by_name.items():
            chains.setdefault(name, []).extend(more)
    return dict(chains)
