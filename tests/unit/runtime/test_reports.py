"""What tasks report comes to the driver as it was said."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.bucket.bounds import Bounds
from weft.errors import FunctionError, SourceError, SqlError, StateError, WeftError
from weft.kernels.expr.user_functions import CallCounts
from weft.logical.expr.user_functions import ConditionFigures, FunctionFigures
from weft.runtime.hop.census import Census, TooMany
from weft.runtime.log.values import HeldRun
from weft.runtime.loop.batch.task_reports import TaskReports
from weft.runtime.state.open_segments import Underway
from weft.runtime.state.partition_manifest import PartitionFile, StoredRun, StoreTotals
from weft.runtime.wire.exchange import Exchange, Sender, SentParcel
from weft.runtime.wire.messages import Message, read_rows, to_rows
from weft.runtime.wire.reports import (
    KINDS,
    Failure,
    HopLeft,
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
from weft.runtime.wire.sorted_runs import SortedRun
from weft.stats.histogram import Histogram, Latency
from weft.stats.input_figures import REASONS, InputFigures, StepFigures, TupleCounts
from weft.stats.sampling.attributes import Attribute
from weft.stats.sampling.samples import AttributeSample, Common
from weft.storage.cache import CacheCounts

MANY = pa.RecordBatch.from_pydict({"x": list(range(20_000))})  # more than a message carries

SAMPLES = (
    AttributeSample(Attribute("s", "k"), 9, 9, 9),
    AttributeSample(
        *(Attribute("s", "k"), 100, 50, 1, (1 << 64) - 3, (7, (1 << 64) - 5), (1, 400_000)),
        (Common(42, 1 << 63, 7), Common("x\ty", 3, 6), Common(None, 5, 5)),
        (-0.5, 1e300),
    ),
)
LEFT = PartitionsLeft(
    {1: PartitionFile("0-1-f", 90, 1 << 31), 12: PartitionFile("0-12-g", 1 << 40, 7)},
    {"a by k": StoreTotals(3, 90, 2, 1, ((-5, 7), (9, 9))), "b": StoreTotals()},
)
EXAMPLES: list[Report] = [
    ReadReport(3),
    ReadReport(
        3,
        (PartRead("s", 5, 1), PartRead("s", 5, 1, -7, "f.json")),
        {"a": InputFigures(5, 1, 2), "b": InputFigures(5, 1, 2, 3, 6, -7, 1 << 60, 4)},
        {"a by k": 9},
        {"a": {"00ff": 3}},
        SAMPLES,
        b'{"record": "\xed\xa0\x80"}\n{}',
    ),
    HopReport(0, 0.25),
    HopReport(
        2,
        0.5,
        {"a→b": StepFigures(3, 4, 1), "b→a": StepFigures()},
        CallCounts({"near": FunctionFigures(3, 0.5)}, {"near(a.x)": ConditionFigures(9, 4)}),
        {"q": Census(3, 2, 1, (TooMany("7", {"a": 4, "b": 2}),))},
        {"q": 3},
        {"q": 1},
        {"q": "part-0"},
        {"q": Latency(Histogram(2, (1, 4)), Histogram(3, (5,)))},
        CacheCounts(3, 1, 4096, 4000),
        LEFT,
    ),
    MergedRange("q", 3, 5, "part-3", ages=Latency(Histogram(2, (1, 4)), Histogram(3, (5,)))),
    MergedRange("q", 0, 5, files=("exchange/0/y",), marks=((1, 2), (3, 4)), cuts={"0-held-z": (7, -9)}),
    MergedRange("q", 1, marked="exchange/0/z", held=(HeldRun("0-held-u", 0, 3, -5, 90, (-5, 4), 0),)),
    Failure.of_query("q", OSError("no room")),
    Failure.of_query("q", FunctionError("near fails", hint="mend it")),
    Failure.of_task(StateError("0-run is damaged", hint="restore it")),
    Failure.of_task(SourceError("f.json is damaged", hint="restore it", stream="s")),
]


def test_every_kind_is_tried_here() -> None:
    """A kind that nobody tries may lose a field on its way."""
    assert {type(report).kind for report in EXAMPLES} | {ResultsReport.kind} == set(KINDS)


@pytest.mark.parametrize("report", EXAMPLES, ids=lambda report: type(report).kind)
def test_a_report_arrives_as_it_was_sent(report: Report) -> None:
    """Also as a row of Spark's."""
    message = report.to_message(3)
    assert (message.task, message.is_report, type(report).is_in(message)) == (3, True, True)
    (again,) = [m for batch in to_rows([message]) for m in read_rows(batch)]
    assert read_report(message) == read_report(again) == report


@pytest.mark.parametrize("kind", ["bytes", "file", "batches"])
def test_results_and_parcels_arrive_as_they_were_sent(kind: str, tmp_path: Path) -> None:
    """In the message, in a file, or as they are."""
    exchange = Exchange(str(tmp_path) if kind == "file" else None, direct=kind == "batches")
    packed, sender = exchange.pack(MANY, MANY), Sender(2, 1, 7)
    assert packed.how == kind
    runs = (SortedRun("exchange/0/x", 0, 3, 90, (-5, 1 << 60), 7, 2),)
    found = read_report(ResultsReport("q", sender, packed, ("f", "g"), runs).to_message(1))
    assert isinstance(found, ResultsReport)
    assert (found.query, found.sender, found.packed.batches()) == ("q", sender, [MANY, MANY])
    assert (found.files, found.runs) == (("f", "g"), runs)
    for counts in (None, (19_000, 0, 21_000)):
        parcel = SentParcel.from_message(SentParcel("a→b", sender, packed, counts).to_message(1))
        assert (parcel.edge, parcel.sender, parcel.counts) == ("a→b", sender, counts)
        assert parcel.packed.batches() == [MANY, MANY]


def test_notes_arrive_as_they_were_sent() -> None:
    """What a hop left in a partition is in a segment, and another process goes on with it."""
    run = StoredRun("3-1-f", 64, 100, 2, Bounds(3, 90, -5, 7))
    underway = Underway({("a by k", "a"): [run]}, {"b by k": [run, run], "c": []}, {"3-1-f": 164})
    for note in (HopLeft(1, underway), TuplesCounted(3, {"a": 9})):
        message = note.to_message(2)
        assert (message.task, message.is_report, message.is_for_driver) == (2, True, False)
        assert type(note).from_message(message) == note


def test_rows_of_a_parcel_go_to_the_partitions_they_are_for() -> None:
    """A task has several, and gets one parcel for all of them."""
    batch, packed = pa.RecordBatch.from_pydict({"x": [1, 2, 3]}), Exchange(direct=True).pack(MANY)
    found = SentParcel("a→b", Sender(0, 0), packed, (2, 0, 1)).divided([batch], 3)
    assert [[one.column("x").to_pylist() for one in part] for part in found] == [[[1, 2]], [], [[3]]]
    assert SentParcel("a→b", Sender(0, 0), packed).divided([batch], 2) == [[batch], [batch]]


@pytest.mark.parametrize("target", ["!gossip", "!", "a→b\t[0, 1]\tbytes"])
def test_what_is_no_report_is_refused_by_name(target: str) -> None:
    """Driver and tasks of different versions must not misunderstand each other in silence."""
    with pytest.raises(ProtocolError, match="is no report that this version of Weft knows"):
        read_report(Message(0, target, pa.py_buffer(b"{}")))


def test_errors_come_out_as_what_they_were() -> None:
    """Whoever catches a `StateError` gets one; an error of SQL's has no text to show, and is a `WeftError`."""
    (error,) = TaskReports.from_reports([Failure.of_task(StateError("lost", hint="look"))]).errors
    assert (type(error), error.message, error.hint) == (StateError, "lost", "look")
    wrong = SqlError("what?", text="SELECT", start=0, end=6)
    assert type(Failure.of_task(wrong).error) is WeftError


texts = st.text(max_size=5)
counts = st.dictionaries(st.sampled_from("pqr"), st.integers(1, 9), max_size=3)
hops = st.builds(
    HopReport,
    st.integers(0, 3),
    st.integers(1, 9).map(float),
    st.dictionaries(st.sampled_from("ef"), st.builds(StepFigures, *[st.integers(0, 9)] * 3)),
    counts=counts,
    closed=counts,
    parts=st.dictionaries(st.sampled_from("pqr"), texts, max_size=3),
    cache=st.none() | st.builds(CacheCounts, *[st.integers(0, 9)] * 4),
)
times = st.none() | st.integers(-9, 9)
figures = st.builds(InputFigures, *[st.integers(0, 9)] * 5, times, times, st.integers(0, 9))
parts = st.builds(PartRead, st.sampled_from("st"), st.integers(0, 9), st.integers(0, 3))
reads = st.builds(
    ReadReport,
    st.integers(0, 3),
    st.lists(parts, max_size=3).map(tuple),
    st.dictionaries(st.sampled_from("ab"), figures),
    query_sets=st.dictionaries(
        st.sampled_from("ab"), st.dictionaries(st.sampled_from(("0f", "1")), st.integers(1, 9))
    ),
)


@given(st.lists(hops | reads, max_size=12), st.randoms(use_true_random=False))
def test_the_order_of_reports_does_not_matter(reports: list[Report], random: object) -> None:
    """Tasks end in any order, and a batch that is repeated must leave the same."""
    shuffled = list(reports)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    one, other = TaskReports.from_reports(reports), TaskReports.from_reports(shuffled)
    assert (one.answers.counts, one.answers.closed) == (other.answers.counts, other.answers.closed)
    assert {q: sorted(names) for q, names in one.answers.parts.items()} == {
        q: sorted(names) for q, names in other.answers.parts.items()
    }
    assert (one.work.seconds(), one.work.busiest()) == (other.work.seconds(), other.work.busiest())
    assert (one.work.steps, one.work.cache) == (other.work.steps, other.work.cache)
    assert (one.read.seen, one.read.malformed) == (other.read.seen, other.read.malformed)
    assert (one.read.inputs, one.read.samples) == (other.read.inputs, other.read.samples)


@given(st.lists(figures, max_size=5))
def test_figures_are_those_of_all_tasks_together(some: list[InputFigures]) -> None:
    """Counts are summed up, and times span those of all; where nobody knows a time, nobody does."""
    whole = sum(some, InputFigures())
    for name in ("rows", *REASONS, "behind"):
        assert getattr(whole, name) == sum(getattr(one, name) for one in some)
    assert whole.oldest == min((one.oldest for one in some if one.oldest is not None), default=None)
    assert whole.newest == max((one.newest for one in some if one.newest is not None), default=None)
    assert whole.counts - whole.counts == TupleCounts()


def test_what_the_boundary_answered_comes_first() -> None:
    """Results of the past are part of the batch, and a query that failed there has failed."""
    answered = HopReport(1, counts={"p": 2}, parts={"p": "a"})
    past = TaskReports.from_reports([answered, Failure.of_query("q", OSError("why"))])
    now = TaskReports.from_reports([HopReport(1, counts={"p": 3, "q": 1}, closed={"p": 1}, parts={"p": "b"})])
    answers = now.after(past).answers
    assert (answers.rows("p"), answers.rows("q"), answers.parts["p"]) == (5, 0, ["a", "b"])
    assert (now.answers.counts, now.answers.failed) == ({"p": 3, "q": 1}, {})


def test_a_run_that_was_left_to_nobody_is_noticed() -> None:
    """It would be missing from the state after the batch."""
    with pytest.raises(ProtocolError, match="is no report"):
        TaskReports.from_messages([HopLeft(1, Underway()).to_message()])
