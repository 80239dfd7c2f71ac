"""What the tasks of a batch reported, as the driver uses it.

Guarantees: immutable; a function of the reports alone. Lists are in the order of the reports, and of a query that
failed in several tasks the first report counts; everything else does not depend on the order of the reports.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NoReturn

from weft.errors import WeftError
from weft.kernels.expr.user_functions import CallCounts
from weft.plan.physical.graph import PhysicalGraph
from weft.runtime.hop.census import Census
from weft.runtime.output.batch_results import BatchResults
from weft.runtime.wire.messages import Message
from weft.runtime.wire.reports import (
    Failure,
    HopReport,
    MergedRange,
    PartitionsLeft,
    PartRead,
    ProtocolError,
    ReadReport,
    Report,
    ResultsReport,
    TuplesCounted,
    read_report,
)
from weft.stats.input_figures import EdgeFigures, InputFigures, StepFigures
from weft.stats.sampling.samples import AttributeSample
from weft.storage.cache import CacheCounts

__all__ = ["InputRead", "TaskReports", "WorkDone"]


@dataclass(frozen=True, slots=True)
class InputRead:
    """What read tasks reported.

    ``reads`` is what they read of streams, and ``inputs`` what they admitted, by input. ``counts`` is how many tuples
    of inputs there were, by input and read task; ``samples`` how many sampled tuples had each query-set, by
    input; ``values`` are samples of attributes; ``dealt`` is how many tuples they dealt out to partitions, by store and
    read task; ``bad`` are the records that were set aside, as lines of JSON.
    """

    reads: Sequence[PartRead] = ()
    inputs: Mapping[str, InputFigures] = field(default_factory=dict)
    counts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    samples: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    values: Sequence[AttributeSample] = ()
    dealt: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    bad: Sequence[bytes] = ()

    @classmethod
    def of(cls, reports: Sequence[ReadReport]) -> InputRead:
        """What all read tasks reported, each of them once."""
        inputs: dict[str, InputFigures] = {}
        counts: dict[str, dict[int, int]] = {}
        samples: dict[str, dict[int, float]] = {}
        dealt: dict[str, dict[int, int]] = {}
        for report in reports:
            for alias, figures in report.inputs.items():
                inputs[alias] = inputs[alias] + figures if alias in inputs else figures
                counts.setdefault(alias, {})[report.task] = figures.rows
            for alias, sets in report.query_sets.items():
                sample = samples.setdefault(alias, {})
                for bits, number in sets.items():
                    sample[int(bits, 16)] = sample.get(int(bits, 16), 0.0) + number
            for store, rows in report.dealt.items():
                dealt.setdefault(store, {})[report.task] = rows
        return cls(
            tuple(part for report in reports for part in report.parts),
            *(inputs, counts, samples),
            tuple(sample for report in reports for sample in report.samples),
            dealt,
            tuple(line for report in reports for line in report.bad.split(b"\n") if line),
        )

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
        return sum(read.rows + read.malformed + read.shed for read in self.reads)

    @property
    def set_aside(self) -> int:
        """How many records were set aside; ``bad`` may quote some for all of them."""
        return sum(read.malformed for read in self.reads)

    def metrics_of_inputs(self, graph: PhysicalGraph) -> dict[str, InputFigures]:
        """What every input of a graph brought, with the records of its stream that were not or could not be read."""
        malformed, shed = self.malformed, Counter[str]()
        for read in self.reads:
            shed[read.stream] += read.shed
        streams = {alias: graph.input(alias).stream.name for alias in graph.aliases}
        return {
            alias: replace(
                self.inputs.get(alias, InputFigures()), malformed=malformed.get(stream, 0), shed=shed[stream]
            )
            for alias, stream in streams.items()
        }


@dataclass(frozen=True, slots=True)
class WorkDone:
    """What tasks reported of their work.

    By edge, ``steps`` is what probes did and ``edges`` what was sent. ``calls`` is what users' functions did, and
    ``census`` counts keys, by query. By hop, where hop 0 is the reading, ``slowest`` are the seconds of the slowest
    task and ``total`` those of all tasks. ``cache`` is how the caches of all hosts were used. ``busy`` is how many
    seconds partitions took, and ``tasks`` how many tasks there were. ``merged`` bytes of
    stored runs were merged, and ``debt`` more should have been.
    """

    steps: Mapping[str, StepFigures] = field(default_factory=dict)
    calls: Sequence[CallCounts] = ()
    census: Sequence[tuple[str, Census]] = ()
    slowest: Mapping[int, float] = field(default_factory=dict)
    total: Mapping[int, float] = field(default_factory=dict)
    cache: CacheCounts = CacheCounts()  # noqa: RUF009
    busy: Mapping[int, float] = field(default_factory=dict)
    tasks: int = 0
    edges: Mapping[str, EdgeFigures] = field(default_factory=dict)
    merged: int = 0
    debt: int = 0

    @classmethod
    def of(cls, reports: Sequence[HopReport]) -> WorkDone:
        """What all tasks did in all hops."""
        steps: dict[str, StepFigures] = {}
        edges: dict[str, EdgeFigures] = {}
        slowest: dict[int, float] = {}
        total: dict[int, float] = {}
        busy: dict[int, float] = {}
        tasks: dict[int, int] = {}
        for report in reports:
            for edge, step in report.steps.items():
                steps[edge] = steps[edge] + step if edge in steps else step
            for edge, sent in report.edges.items():
                edges[edge] = edges[edge] + sent if edge in edges else sent
            if report.seconds:
                slowest[report.hop] = max(report.seconds, slowest.get(report.hop, 0.0))
                total[report.hop] = report.seconds + total.get(report.hop, 0.0)
                tasks[report.hop] = 1 + tasks.get(report.hop, 0)
            for partition, spent in report.busy.items():
                busy[partition] = busy.get(partition, 0.0) + spent
        return cls(
            steps,
            tuple(report.calls for report in reports if report.calls is not None),
            tuple(counted for report in reports for counted in report.census.items()),
            *(slowest, total),
            sum((report.cache for report in reports if report.cache is not None), CacheCounts()),
            dict(sorted(busy.items())),
            max(tasks.values(), default=0),
            dict(sorted(edges.items())),
            sum(report.merged for report in reports),
            sum(report.debt for report in reports),
        )

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
    answers: BatchResults = field(default_factory=BatchResults)
    work: WorkDone = field(default_factory=WorkDone)
    left: Sequence[PartitionsLeft] = ()
    errors: Sequence[WeftError] = ()

    @classmethod
    def from_messages(cls, messages: Iterable[Message]) -> TaskReports:
        """The reports in the messages that come out of a batch's last hop; counts of tuples are left over."""
        return cls.from_reports(read_report(one) for one in messages if not TuplesCounted.is_in(one))

    @classmethod
    def from_reports(cls, reports: Iterable[Report]) -> TaskReports:
        """Sort reports by kind and sum them up."""
        read, hops, results, failed = (
            list[ReadReport](),
            list[HopReport](),
            list[ResultsReport](),
            list[Failure](),
        )
        for report in reports:
            match report:
                case ReadReport():
                    read.append(report)
                case HopReport():
                    hops.append(report)
                case ResultsReport():
                    results.append(report)
                case Failure():
                    failed.append(report)
                case MergedRange():
                    raise ProtocolError("results were merged before the batch had ended")
                case _:
                    _assert_never(report)
        return cls(
            InputRead.of(read),
            BatchResults.of(hops, results, [one for one in failed if one.query is not None]),
            WorkDone.of(hops),
            tuple(report.left for report in hops if report.left is not None),
            tuple(one.error for one in failed if one.query is None),
        )

    def after(self, past: TaskReports) -> TaskReports:
        """These reports, with the answers of the job at the boundary before them and its use of caches."""
        work = replace(self.work, cache=past.work.cache + self.work.cache)
        return replace(self, answers=self.answers.after(past.answers), work=work)


def _assert_never(report: NoReturn) -> NoReturn:
    raise AssertionError(f"{report} is a kind of report that nobody handles")
