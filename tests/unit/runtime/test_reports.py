"""What tasks report comes to the driver as it was said."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.bucket.bounds import Bounds
from weft.errors import FunctionError, SqlError, StateError, WeftError
from weft.kernels.expr.user_functions import CallCounts, ConditionCounts, Spent
from weft.runtime.hop.census import Census, TooMany
from weft.runtime.hop.outcome import StepCount
from weft.runtime.log.values import HeldRun
from weft.runtime.loop.batch.task_reports import TaskReports
from weft.runtime.state.open_segments import Underway
from weft.runtime.state.partition_manifest import PartitionFile, StoredRun, StoreTotals
from weft.runtime.wire.exchange import Exchange, Sender, SentParcel
from weft.runtime.wire.messages import Message, read_rows, to_rows
from weft.runtime.wire.notes import HopLeft, TuplesCounted
from weft.runtime.wire.reports import (
    KINDS,
    Answers,
    BadRecord,
    CacheCounted,
    Calls,
    Collected,
    Dealt,
    FailedQuery,
    InputAdmitted,
    KeyCensus,
    PartitionsLeft,
    PartRead,
    ProtocolError,
    QuerySetSample,
    Report,
    Results,
    RunsFound,
    Seconds,
    StepCounts,
    TaskError,
    ValuesSampled,
    read_report,
)
from weft.runtime.wire.sorted_runs import SortedRun
from weft.stats.histogram import Histogram, Latency
from weft.stats.sampling.attributes import Attribute
from weft.stats.sampling.samples import AttributeSample, Common
from weft.storage.cache import CacheCounts

MANY = pa.RecordBatch.from_pydict({"x": list(range(20_000))})  # more than a message carries

EXAMPLES: list[Report] = [
    PartRead("s", 5, 1),
    BadRecord(b'{"record": "\xed\xa0\x80"}'),
    InputAdmitted("a", 5, 1, 2, None, None),
    InputAdmitted("a", 5, 1, 2, -7, 1 << 60),
    InputAdmitted("a", 5, 1, 2, -7, 1 << 60, 3),
    Dealt("a by k", 3, 9),
    QuerySetSample("a", {"00ff": 3}),
    ValuesSampled(AttributeSample(Attribute("s", "k"), 9, 9, 9)),
    ValuesSampled(
        AttributeSample(
            *(Attribute("s", "k"), 100, 50, 1, (1 << 64) - 3, (7, (1 << 64) - 5), (1, 400_000)),
            (Common(42, 1 << 63, 7), Common("x\ty", 3, 6), Common(None, 5, 5)),
            (-0.5, 1e300),
        )
    ),
    PartitionsLeft(
        {1: PartitionFile("0-1-f", 90, 1 << 31), 12: PartitionFile("0-12-g", 1 << 40, 7)},
        {"a by k": StoreTotals(3, 90, 2, 1, ((-5, 7), (9, 9))), "b": StoreTotals()},
    ),
    StepCounts((StepCount("a→b", 3, 4, 1), StepCount("b→a", 0, 0))),
    KeyCensus("q", Census(3, 2, 1, (TooMany("7", {"a": 4, "b": 2}),))),
    Calls(CallCounts({"near": Spent(3, 0.5)}, {"near(a.x)": ConditionCounts(9, 4)})),
    Answers({"q": 3}, {"q": 1}, {"q": "part-0"}),
    RunsFound("q", Sender(1, 2, 3), (SortedRun("exchange/0/x", 0, 3, 90, (-5, 1 << 60), 7, 2),)),
    Collected("q", 3, 5, "part-3", ages=Latency(Histogram(2, (1, 4)), Histogram(3, (5,)))),
    Collected("q", 0, 5, files=("exchange/0/y",), marks=((1, 2), (3, 4)), cuts={"0-held-z": (7, -9)}),
    Collected("q", 1, marked="exchange/0/z", held=(HeldRun("0-held-u", 0, 3, -5, 90, (-5, 4), 0),)),
    Seconds(2, 0.25),
    CacheCounted(CacheCounts(3, 1, 4096, 4000)),
    FailedQuery("q", "OSError: no room"),
    FailedQuery.because_of("q", FunctionError("near fails", hint="mend it")),
    TaskError.from_error(StateError("0-run is damaged", hint="restore it")),
]


def test_every_kind_is_tried_here() -> None:
    """A kind that nobody tries may lose a field on its way."""
    assert {type(report).kind for report in EXAMPLES} | {Results.kind} == set(KINDS)


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
    found = read_report(Results("q", sender, packed).to_message(1))
    assert isinstance(found, Results)
    assert (found.query, found.sender, found.packed.batches()) == ("q", sender, [MANY, MANY])
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
    (error,) = TaskReports.from_reports([TaskError.from_error(StateError("lost", hint="look"))]).errors
    assert (type(error), error.message, error.hint) == (StateError, "lost", "look")
    wrong = SqlError("what?", text="SELECT", start=0, end=6)
    assert type(TaskError.from_error(wrong).error) is WeftError


texts = st.text(max_size=5)
counts = st.dictionaries(st.sampled_from("pqr"), st.integers(1, 9), max_size=3)
answers = st.builds(Answers, counts, counts, st.dictionaries(st.sampled_from("pqr"), texts, max_size=3))
seconds = st.builds(Seconds, st.integers(0, 3), st.integers(1, 9).map(float))
used = st.builds(CacheCounted, st.builds(CacheCounts, *[st.integers(0, 9)] * 4))
reads = st.builds(PartRead, st.sampled_from("st"), st.integers(0, 9), st.integers(0, 3))


@given(st.lists(answers | seconds | reads | used, max_size=12), st.randoms(use_true_random=False))
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
    assert (one.read.seen, one.read.malformed) == (other.read.seen, other.read.malformed)


def test_what_the_boundary_answered_comes_first() -> None:
    """Results of the past are part of the batch, and a query that failed there has failed."""
    past = TaskReports.from_reports([Answers({"p": 2}, {}, {"p": "a"}), FailedQuery("q", "why")])
    now = TaskReports.from_reports([Answers({"p": 3, "q": 1}, {"p": 1}, {"p": "b"})])
    answers = now.after(past).answers
    assert (answers.rows("p"), answers.rows("q"), answers.parts["p"]) == (5, 0, ["a", "b"])
    assert (now.answers.counts, now.answers.failed) == ({"p": 3, "q": 1}, {})


def test_a_run_that_was_left_to_nobody_is_noticed() -> None:
    """It would be missing from the state after the batch."""
    with pytest.raises(ProtocolError, match="is no report"):
        TaskReports.from_messages([HopLeft(1, Underway()).to_message()])
