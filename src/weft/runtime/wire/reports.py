"""What the tasks of a batch tell the driver, and later hops: one class for each kind of message.

Guarantees: a report is immutable, and `read_report(report.to_message())` equals it. There are five kinds for the
driver: what a task read (`ReadReport`), what it did in a hop (`HopReport`), results (`ResultsReport`), what came of
merging ordered results (`MergedRange`), and errors (`Failure`). `Report` is the union of them, so a type checker can
tell whether code that handles reports handles every kind. A message of an unknown kind raises a `ProtocolError`:
driver and tasks then run different versions. Two kinds more are notes, which tasks send to later hops and the driver
never sees: `TuplesCounted` and `HopLeft`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, get_args

from weft import errors
from weft.bucket.bucket import Bucket
from weft.errors import FunctionError, SinkError, SourceError, WeftError
from weft.kernels.expr.user_functions import CallCounts
from weft.logical.codec import decode, encode
from weft.runtime.hop.census import Census
from weft.runtime.log.values import HeldRun
from weft.runtime.state.open_segments import Run, Underway
from weft.runtime.state.partition_manifest import PartitionFile, StoredRun, StoreTotals
from weft.runtime.wire.exchange import PackedBatches, Sender
from weft.runtime.wire.messages import NOTE, REPORT, Message, MessageBody, ProtocolError
from weft.runtime.wire.sorted_runs import SortedRun
from weft.stats.histogram import Latency
from weft.stats.input_figures import EdgeFigures, InputFigures, StepFigures
from weft.stats.sampling.samples import AttributeSample
from weft.storage.cache import CacheCounts

__all__ = [
    "KINDS",
    "Failure",
    "HopLeft",
    "HopReport",
    "MergedRange",
    "PartRead",
    "PartitionsLeft",
    "ProtocolError",
    "ReadReport",
    "Report",
    "ResultsReport",
    "TuplesCounted",
    "read_report",
]


@dataclass(frozen=True, slots=True)
class PartRead:
    """A part of a stream was read: good records, those set aside, the last event time of the good ones, and where.

    So many good ones were ``shed``, and are not among the ``rows``.
    """

    stream: str
    rows: int
    malformed: int
    newest: int | None = None
    place: str = ""
    shed: int = 0


@dataclass(frozen=True, slots=True)
class ReadReport(MessageBody):
    """What the read task of number ``task`` read and admitted.

    ``inputs`` are the figures of what it admitted, by input. ``dealt`` is how many tuples it has dealt out to the
    partitions of a store, by the store's identity. ``query_sets`` is how many of an input's sampled tuples have each
    query-set, which is a hexadecimal number. ``samples`` are those of the attributes that queries join on. ``bad`` are
    the records that were set aside, as lines of JSON.
    """

    kind = "read"
    task: int
    parts: tuple[PartRead, ...] = ()
    inputs: Mapping[str, InputFigures] = field(default_factory=dict)
    dealt: Mapping[str, int] = field(default_factory=dict)
    query_sets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    samples: tuple[AttributeSample, ...] = ()
    bad: bytes = b""


@dataclass(frozen=True, slots=True)
class PartitionsLeft:
    """What a batch left in the partitions of a task.

    ``files`` are the places of the new manifests, by partition, of those that changed; ``stores`` is what each store
    holds in all partitions of the task.
    """

    files: Mapping[int, PartitionFile]
    stores: Mapping[str, StoreTotals]


@dataclass(frozen=True, slots=True)
class HopReport(MessageBody):
    """What a task did in a hop, in so many ``seconds``; hop 0 is the reading of input or, at a boundary, of stores.

    By edge, ``steps`` is what probes did and ``edges`` what was sent. ``calls`` is what users' functions did, and
    ``census`` what came to the keys of queries on one key. By query, ``counts`` is how many results there are,
    ``closed`` how many of them are closed rows, ``parts`` the part of the sink that was written, and ``ages`` how
    old results are. ``cache`` is how the task's process used its cache since its last report. After the last hop,
    ``left`` is what the batch left. ``busy`` is how many of the seconds each partition took. ``merged`` bytes of
    stored runs were merged, and ``debt`` more should have been.
    """

    kind = "hop"
    hop: int
    seconds: float = 0.0
    steps: Mapping[str, StepFigures] = field(default_factory=dict)
    calls: CallCounts | None = None
    census: Mapping[str, Census] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    closed: Mapping[str, int] = field(default_factory=dict)
    parts: Mapping[str, str] = field(default_factory=dict)
    ages: Mapping[str, Latency] = field(default_factory=dict)
    cache: CacheCounts | None = None
    left: PartitionsLeft | None = None
    busy: Mapping[int, float] = field(default_factory=dict)
    edges: Mapping[str, EdgeFigures] = field(default_factory=dict)
    merged: int = 0
    debt: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ResultsReport(MessageBody):
    """Results of a query on their way to the driver: few in the message, or many in ``files`` of the batch.

    Those of an ordered query are sorted runs: one in the message, or many in files, as ``runs`` say.
    """

    kind = "results"
    query: str
    sender: Sender
    packed: PackedBatches
    files: tuple[str, ...] = ()
    runs: tuple[SortedRun, ...] = ()

    def to_message(self, at: int = 0) -> Message:
        """As a message, whose data are the batches."""
        runs = [encode(run) for run in self.runs]
        head = json.dumps([self.query, self.sender, self.packed.how, self.files, runs])
        return Message(at, f"{REPORT}{self.kind}\t{head}", self.packed.data)

    @classmethod
    def from_message(cls, message: Message) -> ResultsReport:
        """What `to_message` made."""
        query, sender, how, files, runs = json.loads(message.target.partition("\t")[2])
        packed = PackedBatches(how, message.data)
        return cls(query, Sender(*sender), packed, tuple(files), decode(tuple[SortedRun, ...], runs))


@dataclass(frozen=True, slots=True)
class MergedRange(MessageBody):
    """A range of an ordered query's results was merged: the one of number ``place``.

    Of results that leave: ``rows`` is how many, ``part`` the part of the sink that was written or ``files`` those with
    results for the driver, ``marks`` are the rows and marks of punctuations, or ``marked`` names the file that has
    them, ``ages`` how old results by event time are, and ``cuts`` says of every run that was held before where its
    first row is that stays, and its time. Of results that stay, ``held`` are the runs that were written.
    """

    kind = "merged"
    query: str
    place: int
    rows: int = 0
    part: str = ""
    files: tuple[str, ...] = ()
    marks: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    marked: str = ""
    ages: Latency = field(default_factory=Latency)
    cuts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    held: tuple[HeldRun, ...] = ()


@dataclass(frozen=True, slots=True)
class Failure(MessageBody):
    """An error: of a ``query``, which then gives no results in the batch, or of the task, which ends the run.

    That of a task is one that another attempt would meet again, such as a damaged file; ``stream`` is that of a source.
    ``type`` is the name of its class, and ``text`` the whole of what it says.
    """

    kind = "error"
    type: str
    message: str
    hint: str | None = None
    stream: str | None = None
    query: str | None = None
    text: str = ""

    @classmethod
    def of_task(cls, error: WeftError) -> Failure:
        """The report of an error that a task met."""
        stream = error.stream if isinstance(error, SourceError) else None
        return cls(type(error).__name__, error.message, error.hint, stream)

    @classmethod
    def of_query(cls, query: str, error: Exception) -> Failure:
        """The report of a query that cannot be answered, or whose sink cannot take its answer now."""
        name, text = type(error).__name__, f"{type(error).__name__}: {error}"
        if isinstance(error, SinkError):
            return cls(SinkError.__name__, error.message, error.hint, query=query, text=text)
        if isinstance(error, WeftError):
            return cls(name, error.message, error.hint, query=query, text=text)
        return cls(name, str(error), query=query, text=text)

    @property
    def error(self) -> WeftError:
        """The error to raise in the driver; a `SqlError`, which would need the SQL text, becomes a `WeftError`."""
        if self.stream is not None:
            return SourceError(self.message, hint=self.hint, stream=self.stream)
        return _ERRORS.get(self.type, WeftError)(self.message, hint=self.hint)

    @property
    def refused(self) -> SinkError | None:
        """The error of the sink, if it is the sink that failed."""
        return SinkError(self.message, hint=self.hint) if self.type == SinkError.__name__ else None

    @property
    def broken(self) -> FunctionError | None:
        """The error of the user's function that failed, if one did."""
        return FunctionError(self.message, hint=self.hint) if self.type == FunctionError.__name__ else None


_ERRORS: dict[str, type[WeftError]] = {
    name: kind
    for name, kind in vars(errors).items()
    if isinstance(kind, type) and issubclass(kind, WeftError) and not issubclass(kind, errors.SqlError)
}

Report = ReadReport | HopReport | ResultsReport | MergedRange | Failure

KINDS: dict[str, type[Report]] = {kind.kind: kind for kind in get_args(Report)}


def read_report(message: Message) -> Report:
    """Decode the report in a message."""
    if not message.is_report or message.kind not in KINDS:
        raise ProtocolError(
            f"{message.target!r} is no report that this version of Weft knows; it knows {', '.join(sorted(KINDS))}"
        )
    return KINDS[message.kind].from_message(message)


@dataclass(frozen=True, slots=True)
class TuplesCounted(MessageBody):
    """How many tuples of counted inputs a read task admitted, by input; every task needs it to number tuples."""

    kind = f"{NOTE}counts"
    task: int
    rows: Mapping[str, int]


class _UnderwayForm:
    """What a batch has done so far in a partition, as plain data: only runs that are in segments, which others see."""

    def encode(self, value: Underway) -> dict[str, Any]:
        return {
            "added": [[*place, list(map(_plain, runs))] for place, runs in value.added.items()],
            "settled": {store: list(map(_plain, runs)) for store, runs in value.settled.items()},
            "segments": value.segments,
        }

    def decode(self, data: Mapping[str, Any]) -> Underway:
        added: dict[tuple[str, str], list[Run]] = {
            (store, start): list(map(StoredRun.from_list, runs)) for store, start, runs in data["added"]
        }
        settled: dict[str, list[Run]] = {
            store: list(map(StoredRun.from_list, runs)) for store, runs in data["settled"].items()
        }
        return Underway(added, settled, dict(data["segments"]))


def _plain(run: Run) -> list[Any]:
    if isinstance(run, Bucket):
        raise TypeError("a run is in no segment, so no other process can see it")
    return run.to_list()


@dataclass(frozen=True, slots=True)
class HopLeft(MessageBody):
    """What a batch has done so far in a partition, for the next hop, which runs in another process."""

    kind = f"{NOTE}left"
    partition: int
    underway: Annotated[Underway, _UnderwayForm()] = field(default_factory=Underway)
