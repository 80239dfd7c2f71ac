"""What the tasks of a batch reported, as the driver uses it.

Guarantees: immutable; a function of the reports alone. Lists are in the order of the reports, and of a query that
failed in several tasks the first report counts; everything else does not depend on the order of the reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn, TypeVar

import pyarrow as pa

from weft.errors import FunctionError, SinkError, WeftError
from weft.kernels.expr.user_functions import CallCounts
from weft.plan.physical.graph import PhysicalGraph
from weft.runtime.hop.census import Census
from weft.runtime.hop.outcome import StepCount
from weft.runtime.observe.metrics import InputMetrics
from weft.runtime.output.batch_files import read_file
from weft.runtime.wire import reports as kinds
from weft.runtime.wire.exchange import Sender
from weft.runtime.wire.messages import Message
from weft.runtime.wire.notes import TuplesCounted
from weft.runtime.wire.reports import Report, read_report
from weft.runtime.wire.sorted_runs import SortedRun
from weft.stats.histogram import Latency
from weft.stats.sampling.samples import AttributeSample
from weft.storage.cache import CacheCounts
from weft.storage.storage import Storage

__all__ = ["Answered", "InputRead", "SentResults", "TaskReports", "WorkDone"]

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class InputRead:
    """What read tasks reported.

    ``reads`` is what they read of streams, and ``inputs`` what they admitted of inputs. ``counts`` is how many tuples
    of inputs there were, by input and read task; ``samples`` how many sampled tuples had each query-set, by
    input; ``values`` are samples of attributes; ``dealt`` is what they dealt out to partitions; ``bad`` are the records
    that were set aside, as lines of JSON.
    """

    reads: Sequence[kinds.PartRead] = ()
    inputs: Sequence[kinds.InputAdmitted] = ()
    counts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    samples: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    values: Sequence[AttributeSample] = ()
    dealt: Sequence[kinds.Dealt] = ()
    bad: Sequence[bytes] = ()

    @property
    def malformed(self) -> dict[str, int]:
        """How many records were set aside, by stream."""
        found: dict[str, int] = {}
        for read in self.reads:
            found[read.stream] = found.get(read.stream, 0) + read.malformed
        return found

    @property
    def seen(self) -> int:
        """How many records there were, good and bad."""
        return sum(read.rows + read.malformed for read in self.reads)

    @property
    def set_aside(self) -> int:
        """How many records were set aside; ``bad`` may quote some for all of them."""
        return sum(read.malformed for read in self.reads)

    def metrics_of_inputs(self, graph: PhysicalGraph) -> dict[str, InputMetrics]:
        """What every input of a graph brought."""
        found: dict[str, list[kinds.InputAdmitted]] = {alias: [] for alias in graph.aliases}
        for report in self.inputs:
            found[report.alias].append(report)
        malformed = self.malformed
        return {
            alias: _input_metrics(reports, malformed.get(graph.input(alias).stream.name, 0))
            for alias, reports in found.items()
        }


def _input_metrics(reports: Sequence[kinds.InputAdmitted], malformed: int) -> InputMetrics:
    return InputMetrics(
        sum(report.rows for report in reports),
        sum(report.late for report in reports),
        sum(report.untimed for report in reports),
        malformed,
        min((report.oldest for report in reports if report.oldest is not None), default=None),
        max((report.newest for report in reports if report.newest is not None), default=None),
    )


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
class Answered:
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

    def after(self, past: Answered) -> Answered:
        """These answers with those of the job at the boundary before them."""
        return Answered(
            _summed((past.counts, self.counts)),
            self.closed,
            _chained((past.parts, self.parts)),
            _chained((past.sent, self.sent)),
            {**past.failed, **self.failed},
            {**past.broken, **self.broken},
            self.ages,
            {**past.refused, **self.refused},
        )


@dataclass(frozen=True, slots=True)
class WorkDone:
    """What tasks reported of their work.

    ``steps`` is what probes did, ``calls`` what users' functions did, and ``census`` counts keys, by query. By hop,
    where hop 0 is the reading, ``slowest`` are the seconds of the slowest task and ``total`` those of all tasks.
    ``cache`` is how the caches of all hosts were used.
    """

    steps: Sequence[StepCount] = ()
    calls: Sequence[CallCounts] = ()
    census: Sequence[tuple[str, Census]] = ()
    slowest: Mapping[int, float] = field(default_factory=dict)
    total: Mapping[int, float] = field(default_factory=dict)
    cache: CacheCounts = CacheCounts()  # noqa: RUF009

    def seconds(self) -> tuple[float, ...]:
        """The seconds of the slowest task of every hop, the read tasks' first."""
        return tuple(self.slowest[hop] for hop in sorted(self.slowest))

    def busiest(self) -> tuple[float, ...]:
        """The part of every hop's work that its slowest task did, the read tasks' first."""
        return tuple(self.slowest[hop] / (self.total[hop] or 1.0) for hop in sorted(self.slowest))


@dataclass(frozen=True, slots=True)
class TaskReports:
    """All reports of a batch; ``left`` is what is left in partitions, and each of the ``errors`` ends the run."""

    read: InputRead = field(default_factory=InputRead)
    answers: Answered = field(default_factory=Answered)
    work: WorkDone = field(default_factory=WorkDone)
    left: Sequence[kinds.PartitionsLeft] = ()
    errors: Sequence[WeftError] = ()

    @classmethod
    def from_messages(cls, messages: Iterable[Message]) -> TaskReports:
        """The reports in the messages that come out of a batch's last hop; counts of tuples are left over."""
        return cls.from_reports(read_report(one) for one in messages if not TuplesCounted.is_in(one))

    @classmethod
    def from_reports(cls, reports: Iterable[Report]) -> TaskReports:
        """Sort reports by kind and sum them up."""
        sorted_reports = _Sorted()
        for report in reports:
            sorted_reports.add(report)
        return sorted_reports.summed_up()

    def after(self, past: TaskReports) -> TaskReports:
        """These reports, with the answers of the job at the boundary before them and its use of caches."""
        work = replace(self.work, cache=past.work.cache + self.work.cache)
        return replace(self, answers=self.answers.after(past.answers), work=work)


class _Sorted:
    """Reports sorted by kind, while they are collected."""

    def __init__(self) -> None:
        self.reads: list[kinds.PartRead] = []
        self.inputs: list[kinds.InputAdmitted] = []
        self.samples: list[kinds.QuerySetSample] = []
        self.values: list[AttributeSample] = []
        self.dealt: list[kinds.Dealt] = []
        self.bad: list[bytes] = []
        self.answers: list[kinds.Answers] = []
        self.results: list[kinds.Results | kinds.RunsFound] = []
        self.failed: list[kinds.FailedQuery] = []
        self.steps: list[StepCount] = []
        self.calls: list[CallCounts] = []
        self.census: list[tuple[str, Census]] = []
        self.seconds: list[kinds.Seconds] = []
        self.cache: list[CacheCounts] = []
        self.left: list[kinds.PartitionsLeft] = []
        self.errors: list[WeftError] = []

    def add(self, report: Report) -> None:
        """Put a report where it belongs."""
        match report:
            case kinds.PartRead():
                self.reads.append(report)
            case kinds.InputAdmitted():
                self.inputs.append(report)
            case kinds.QuerySetSample():
                self.samples.append(report)
            case kinds.ValuesSampled():
                self.values.append(report.sample)
            case kinds.Dealt():
                self.dealt.append(report)
            case kinds.BadRecord():
                self.bad.append(report.line)
            case kinds.Answers():
                self.answers.append(report)
            case kinds.Results() | kinds.RunsFound():
                self.results.append(report)
            case kinds.FailedQuery():
                self.failed.append(report)
            case kinds.StepCounts():
                self.steps += report.steps
            case kinds.Calls():
                self.calls.append(report.calls)
            case kinds.CacheCounted():
                self.cache.append(report.counts)
            case kinds.KeyCensus():
                self.census.append((report.query, report.census))
            case kinds.Seconds():
                self.seconds.append(report)
            case kinds.PartitionsLeft():
                self.left.append(report)
            case kinds.Collected():
                raise kinds.ProtocolError("results were merged before the batch had ended")
            case kinds.TaskError():
                self.errors.append(report.error)
            case _:
                _assert_never(report)

    def summed_up(self) -> TaskReports:
        """All reports, summed up."""
        return TaskReports(self._read(), self._answered(), self._work(), tuple(self.left), tuple(self.errors))

    def _read(self) -> InputRead:
        counts: dict[str, dict[int, int]] = {}
        for admitted in self.inputs:
            counts.setdefault(admitted.alias, {})[admitted.task] = admitted.rows
        samples: dict[str, dict[int, float]] = {}
        for one in self.samples:
            sample = samples.setdefault(one.alias, {})
            for bits, number in one.sets.items():
                sample[int(bits, 16)] = sample.get(int(bits, 16), 0.0) + number
        some = (tuple(self.reads), tuple(self.inputs), counts, samples)
        return InputRead(*some, tuple(self.values), tuple(self.dealt), tuple(self.bad))

    def _answered(self) -> Answered:
        failed: dict[str, str] = {}
        broken: dict[str, FunctionError] = {}
        refused: dict[str, SinkError] = {}
        for report in self.failed:
            if (refusal := report.refused) is not None:
                refused.setdefault(report.query, refusal)
                continue
            failed.setdefault(report.query, report.message)
            if (error := report.broken) is not None:
                broken.setdefault(report.query, error)
        return Answered(
            _summed(report.counts for report in self.answers),
            _summed(report.closed for report in self.answers),
            _chained({query: [name] for query, name in report.parts.items()} for report in self.answers),
            _chained(
                {report.query: [SentResults(report.sender, report.packed.batches(), report.files)]}
                if isinstance(report, kinds.Results)
                else {report.query: [SentResults(report.sender, runs=report.runs)]}
                for report in self.results
            ),
            failed,
            broken,
            _merged(report.ages for report in self.answers),
            refused,
        )

    def _work(self) -> WorkDone:
        slowest: dict[int, float] = {}
        total: dict[int, float] = {}
        for report in self.seconds:
            slowest[report.hop] = max(report.seconds, slowest.get(report.hop, 0.0))
            total[report.hop] = report.seconds + total.get(report.hop, 0.0)
        some = (tuple(self.steps), tuple(self.calls), tuple(self.census))
        return WorkDone(*some, slowest, total, sum(self.cache, CacheCounts()))


def _summed(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for some in counts:
        for name, number in some.items():
            found[name] = found.get(name, 0) + number
    return found


def _merged(some: Iterable[Mapping[str, Latency]]) -> dict[str, Latency]:
    found: dict[str, Latency] = {}
    for ages in some:
        for name, one in ages.items():
            found[name] = found[name] + one if name in found else one
    return found


def _chained(lists: Iterable[Mapping[str, Sequence[_T]]]) -> dict[str, Sequence[_T]]:
    found: dict[str, list[_T]] = {}
    for some in lists:
        for name, more in some.items():
            found.setdefault(name, []).extend(more)
    return dict(found)


def _assert_never(report: NoReturn) -> NoReturn:
    raise AssertionError(f"{report} is a kind of report that nobody handles")
