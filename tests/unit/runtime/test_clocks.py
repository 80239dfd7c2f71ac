"""Records with wrong event times: those ahead of the clock are set aside, and a watermark that one has moved is mended.

What users would lose: one record of the year 2999 made all later ones of its stream late, for ever and in silence.
"""

from __future__ import annotations

import json
import logging
import random
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pacsv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import weft
from tests.shares import seeds
from tests.unit.service.api.running import place, running_hub, served, wait_for
from weft.bucket import bucket
from weft.connectors.formats import columns
from weft.connectors.formats.dead_letters import DeadLetters
from weft.errors import CatalogError, StateError
from weft.logical import times as moments
from weft.logical.schema import Schema, Stream
from weft.plan.physical.graph import CODEC
from weft.ports.source import Part
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.observe.inspect import inspect
from weft.service.cli import app
from weft.testing import LocalRun, reference_join

NOW = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
SCHEMA = "id long, k long, ts timestamp"
PAIR = "SELECT a.id AS a, b.id AS b FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k"
LATENESS = timedelta(hours=1)
FAR = datetime(2999, 1, 1, tzinfo=timezone.utc)

Row = dict[str, Any]


def row(number: int, when: datetime | None) -> Row:
    """A record whose number is its key."""
    return {"id": number, "k": number, "ts": when}


def content(format_: str, rows: list[Row]) -> bytes:
    """The bytes of a file with these records."""
    kinds = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
    table, out = pa.Table.from_pylist(rows, schema=kinds), pa.BufferOutputStream()
    if format_ == "json":
        return "".join(json.dumps(one, default=str) + "\n" for one in rows).encode()
    if format_ == "parquet":
        pq.write_table(table, out)
    elif format_ == "csv":
        pacsv.write_csv(table, out)
    else:
        with pa.ipc.new_file(out, kinds) as writer:
            writer.write_table(table)
    return bytes(out.getvalue().to_pybytes())


def put(folder: Path, name: str, format_: str, rows: list[Row]) -> None:
    """A file, as a good writer puts it there."""
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".{name}"
    partial.write_bytes(content(format_, rows))
    partial.replace(folder / f"{name}.{format_}")


def session(root: Path, format_: str = "json", sql: str = PAIR, **options: Any) -> weft.Session:
    """Two streams of files, and a query over them."""
    made = weft.Session(checkpoint=root / "ck", execution="local")
    for name in ("a", "b"):
        source = weft.files(format_, str(root / name), schema=SCHEMA)
        made.stream(name, source, event_time="ts", **options)
    made.query(sql, name="q", sink=weft.to_parquet(root / "out"))
    return made


def given(root: Path) -> list[tuple[int | None, ...]]:
    """What the query has given."""
    found = (pq.ParquetFile(file).read() for file in sorted((root / "out").glob("batch=*/*.parquet")))
    return sorted((tuple(one.values()) for table in found for one in table.to_pylist()), key=str)


def run_all(made: weft.Session) -> None:
    """Run a session until nothing is left, and stop it."""
    made.start()
    made.process_all_available()
    made.stop()


@pytest.mark.parametrize("format_", ["json", "parquet", "csv", "arrow"])
def test_a_record_ahead_of_the_clock_is_a_dead_letter_and_moves_no_watermark(
    tmp_path: Path, format_: str
) -> None:
    """The others join as if it was not there, whatever files they come in."""
    now = datetime.now(timezone.utc)
    times = [now, FAR, now + timedelta(hours=23), now + timedelta(days=2)]
    put(tmp_path / "a", "1", format_, [row(n, when) for n, when in enumerate(times)])
    put(tmp_path / "b", "1", format_, [row(n, when) for n, when in enumerate(times)])
    made = session(tmp_path, format_)
    run_all(made)
    put(tmp_path / "a", "2", format_, [row(7, now + timedelta(hours=23))])
    put(tmp_path / "b", "2", format_, [row(7, now + timedelta(hours=23))])
    run_all(session(tmp_path, format_))
    assert given(tmp_path) == [(0, 0), (2, 2), (7, 7)]
    letters = DeadLetters(tmp_path / "ck" / "dead_letters").read(0)
    reasons = [letter.reason for letter in letters]
    assert len(letters) == 4
    assert all("ahead of the clock" in reason for reason in reasons)
    assert sum("2999-01-01 00:00:00" in reason for reason in reasons) == 2
    assert sorted({(letter.row, letter.line) for letter in letters}, key=str)  # it says where it was
    assert made.progress["q"][0].inputs["a"].malformed == 2


def test_of_records_that_are_ahead_it_is_said_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Whoever replays simulated time must learn why there are no results."""
    for number in range(3):
        put(tmp_path / "a", str(number), "json", [row(number, FAR)])
    with caplog.at_level(logging.WARNING, "weft"):
        run_all(session(tmp_path))
    said = [one.getMessage() for one in caplog.records if "ahead of the clock" in one.getMessage()]
    assert len(said) == 1
    assert "stream a: a record was set aside" in said[0]
    assert "ahead= says what is permitted" in said[0]


def test_without_a_limit_records_of_any_time_are_joined(tmp_path: Path) -> None:
    """Replays of simulated time need it."""
    for name in ("a", "b"):
        put(tmp_path / name, "1", "json", [row(1, FAR)])
    run_all(session(tmp_path, ahead=None))
    assert given(tmp_path) == [(1, 1)]


def test_generated_rows_ahead_of_the_clock_are_dead_letters() -> None:
    """Of the generator, too, unless the stream permits it."""
    source = weft.rate(10, k=weft.sequence(), ts=weft.timestamps(datetime(2999, 1, 1)))
    made = weft.Session()
    made.stream("s", source, event_time="ts", ahead=None)
    part = Part({"first": 5, "rows": 3})
    assert source.read("s", part, "ts", None, None).batch.num_rows == 3
    found = source.read("s", part, "ts", None, 0)
    assert found.batch.num_rows == 0
    assert [(one.row, one.more) for one in found.bad] == [(6, 0), (7, 0), (8, 0)]


def test_many_records_ahead_are_counted_and_some_quoted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream of simulated time must not become as many dead letters as it has rows."""
    monkeypatch.setattr(columns, "QUOTED", 3)
    put(tmp_path / "a", "1", "json", [row(n, FAR if n % 2 else NOW) for n in range(20)])
    put(tmp_path / "b", "1", "json", [row(n, NOW) for n in range(20)])
    made = session(tmp_path)
    run_all(made)
    letters = DeadLetters(tmp_path / "ck" / "dead_letters").read(0)
    assert [one.more for one in letters] == [0, 0, 0, 6]
    assert made.progress["q"][0].inputs["a"].malformed == 10
    assert given(tmp_path) == sorted(((n, n) for n in range(0, 20, 2)), key=str)
    assert Checkpoint.at(tmp_path / "ck").manifest(0).records == {"seen": 40, "bad": 10}  # type: ignore[union-attr]
    assert inspect(tmp_path / "ck").dead_letters == 10


def test_a_batch_that_is_repeated_sets_the_same_records_aside(tmp_path: Path) -> None:
    """The limit is in its plan: neither the clock nor another ``ahead`` changes what a batch has read."""
    soon = datetime.now(timezone.utc) + timedelta(hours=30)
    for name in ("a", "b"):
        put(tmp_path / name, "1", "json", [row(1, soon), row(2, NOW)])
    made = session(tmp_path)
    run_all(made)
    assert given(tmp_path) == [(2, 2)]
    (tmp_path / "ck" / "state" / "0.json").unlink()
    run_all(session(tmp_path, ahead="10 days"))  # the batch is repeated, as planned
    assert given(tmp_path) == [(2, 2)]
    put(tmp_path / "a", "2", "json", [row(3, soon)])
    put(tmp_path / "b", "2", "json", [row(3, soon)])
    run_all(session(tmp_path, ahead="10 days"))  # the next one follows the new limit
    assert given(tmp_path) == [(2, 2), (3, 3)]


def test_what_is_ahead_is_no_part_of_a_query() -> None:
    """Checkpoints of other limits, and older ones, which know none, belong to the same streams and queries."""
    one, two = (Stream("s", Schema.parse(SCHEMA), "ts", ahead=limit) for limit in (None, timedelta(days=3)))
    assert one == two
    assert CODEC.dumps(one) == CODEC.dumps(two)
    assert "ahead" not in CODEC.dumps(one)
    assert CODEC.loads(CODEC.dumps(one)) == one


@pytest.mark.parametrize("ahead", ["-1 second", timedelta(seconds=-1), 5, "soon"])
def test_a_limit_that_makes_no_sense_is_refused(ahead: Any) -> None:
    """By name, when the stream is registered."""
    with pytest.raises(weft.WeftError):
        weft.Session().stream("a", SCHEMA, event_time="ts", ahead=ahead)


@pytest.mark.parametrize("seed", seeds(12))
def test_records_of_any_time_change_nothing_for_the_others(seed: int) -> None:
    """Random batches with records of any year: those that are not ahead of the clock give the answer."""
    rng = random.Random(f"clocks {seed}")
    made = weft.Session()
    for name in ("a", "b"):
        made.stream(name, SCHEMA, event_time="ts", lateness=LATENESS)
    made.query(PAIR, name="q", sink=weft.to_memory())
    run = LocalRun(made, now=NOW)
    kept: dict[str, list[Row]] = {"a": [], "b": []}
    results, aside, newest = list[Row](), 0, dict[str, datetime]()
    for number in range(5):
        coming: dict[str, datetime | None] = {}
        tables: dict[str, list[Row]] = {}
        for name in rng.sample(["a", "b"], rng.randint(1, 2)):
            ids = range(100 * number, 100 * number + rng.randint(0, 6))
            rows: list[Row] = [{"id": n, "k": rng.randrange(4), "ts": some_time(rng)} for n in ids]
            good = [one for one in rows if one["ts"] is not None and one["ts"] <= NOW + timedelta(days=1)]
            mark = newest.get(name, datetime.min.replace(tzinfo=timezone.utc) + LATENESS) - LATENESS
            kept[name] += [one for one in good if one["ts"] >= mark]
            aside += len(rows) - len(good)
            tables[name] = rows
            coming[name] = max(
                [*(one["ts"] for one in good), *([newest[name]] if name in newest else [])], default=None
            )
        newest |= {name: time for name, time in coming.items() if time is not None}
        results += run.batch(tables)["q"].to_pylist()
    schema = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
    query = made.parse(PAIR)
    wanted = reference_join(query, {n: pa.Table.from_pylist(rows, schema=schema) for n, rows in kept.items()})
    assert sorted(map(str, results)) == sorted(map(str, wanted.to_pylist()))
    assert len(run.dead_letters) == aside


@pytest.mark.parametrize("extreme", [-(1 << 63), -(1 << 62), 1 << 62, (1 << 63) - 1])
@pytest.mark.parametrize("ahead", [None, "1 day"])
def test_a_time_that_cannot_be_computed_with_is_a_dead_letter(extreme: int, ahead: str | None) -> None:
    """It would end the session, whoever wrote it."""
    made = weft.Session()
    for name in ("a", "b"):
        made.stream(name, SCHEMA, event_time="ts", ahead=ahead)
    made.query(PAIR, name="q", sink=weft.to_memory())
    run = LocalRun(made, now=NOW)
    times = pa.array([int(NOW.timestamp() * 1e6), extreme]).view(pa.timestamp("us", "UTC"))
    table = pa.table({"id": [1, 2], "k": [1, 2], "ts": times})
    assert run.batch({"a": table, "b": table})["q"].to_pylist() == [{"a": 1, "b": 1}]
    assert len(run.dead_letters) == 2
    assert moments.FARTHEST == bucket.FARTHEST


def some_time(rng: random.Random) -> datetime | None:
    """A time of today, of any other year, or none."""
    if rng.random() < 0.75:
        return NOW - timedelta(seconds=rng.randrange(3000))
    if rng.random() < 0.3:
        return None
    years = (1, 2025) if rng.random() < 0.3 else (2027, 9999)
    return datetime(rng.randrange(*years), rng.randint(1, 12), rng.randint(1, 28), tzinfo=timezone.utc)


# A watermark that was moved already


def poisoned(root: Path, **options: Any) -> weft.Session:
    """A session whose streams have had a record of the year 2999, since nothing kept it out."""
    put(root / "a", "1", "json", [row(1, NOW), row(2, FAR)])
    put(root / "b", "1", "json", [row(1, NOW)])
    made = session(root, ahead=None, **options)
    run_all(made)
    return made


def more(root: Path, number: int, count: int = 60) -> None:
    """Records that are on time."""
    for name in ("a", "b"):
        rows = [row(1000 * number + n, NOW + timedelta(minutes=number)) for n in range(count)]
        put(root / name, str(number), "json", rows)


def test_a_warning_says_which_record_moved_the_watermark(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """When most rows of a stream are late: once, with the file, the time and the remedy."""
    poisoned(tmp_path)
    more(tmp_path, 2)
    with caplog.at_level(logging.WARNING, "weft"):
        run_all(session(tmp_path, ahead=None))
    said = [record.getMessage() for record in caplog.records if "were late" in record.getMessage()]
    assert len(said) == 1
    assert "stream a: 100% of its last rows" in said[0]
    assert "2999-01-01 00:00:00 in batch 0" in said[0]
    assert str(tmp_path / "a" / "1.json") in said[0]
    assert "session.reset_watermark('a', to=…)" in said[0]


@pytest.mark.parametrize("way", ["live", "stopped", "command"])
def test_a_watermark_that_was_moved_is_set_back(tmp_path: Path, way: str) -> None:
    """Rows from then on are on time again: while the session runs, and for a checkpoint that no session uses."""
    made = poisoned(tmp_path)
    to = NOW - timedelta(hours=1)
    if way == "live":
        made = session(tmp_path)
        made.start()
        made.reset_watermark("a", to=to)
        made.process_all_available()
        made.stop()
    elif way == "stopped":
        made.reset_watermark("a", to=str(to))
    else:
        shown = CliRunner().invoke(app, ["watermark", str(tmp_path / "ck"), "a", "--to", "2026-01-01 11:00"])
        assert shown.exit_code == 0, shown.output
    more(tmp_path, 2)
    run_all(session(tmp_path))
    assert given(tmp_path) == sorted([(1, 1), *((2000 + n, 2000 + n) for n in range(60))], key=str)
    assert Checkpoint.at(tmp_path / "ck").requests.resets() == {}  # and it is done once
    marks = (Checkpoint.at(tmp_path / "ck").manifest(Checkpoint.at(tmp_path / "ck").last()) or None).marks  # type: ignore[union-attr]
    assert marks["a"] == marks["b"]


def test_a_reset_that_was_asked_for_survives_a_crash_and_is_repeated(tmp_path: Path) -> None:
    """It is in the plan of its batch: a repetition of that sets the watermark again, and no other batch does."""
    poisoned(tmp_path).reset_watermark("a", to=NOW)
    run_all(session(tmp_path))
    log = Checkpoint.at(tmp_path / "ck")
    assert log.last() == 1
    plan = log.plan(1)
    assert plan is not None
    assert set(plan.resets["marks"]) == {"a"}
    (tmp_path / "ck" / "state" / "1.json").unlink()
    more(tmp_path, 2)
    run_all(session(tmp_path))
    assert len(given(tmp_path)) == 61
    more(tmp_path, 3, 1)
    run_all(session(tmp_path))
    assert (3000, 3000) in given(tmp_path)
    marks = inspect(tmp_path / "ck").streams
    assert {one.watermark for one in marks} == {int((NOW + timedelta(minutes=3)).timestamp() * 1e6)}


def test_idle_streams_that_went_along_are_set_back_too() -> None:
    """A stream that was silent got the watermark of the other one, which was wrong."""
    made = weft.Session()
    for name in ("a", "b"):
        made.stream(name, SCHEMA, event_time="ts", idle_after="10 seconds")
    made.query(PAIR, name="q", sink=weft.to_memory())
    run = LocalRun(made)
    run.batch({"a": [row(1, NOW)], "b": [row(1, NOW)]})
    run.batch({"a": [row(2, FAR)]})
    run.advance("1 minute")
    run.batch({"a": [row(3, FAR)]})
    assert run.batch({"b": [row(3, NOW)]})["q"].num_rows == 0  # late
    run._loop.resets.ask("a", int(NOW.timestamp() * 1e6))
    later = NOW + timedelta(seconds=5)
    assert run.batch({"a": [row(4, later)], "b": [row(4, later)]})["q"].to_pylist() == [{"a": 4, "b": 4}]


def test_rows_that_are_final_are_not_taken_back() -> None:
    """A query that has closed its rows up to a time would give some of them twice."""
    made = weft.Session()
    for name in ("a", "b"):
        made.stream(name, SCHEMA, event_time="ts")
    sql = "SELECT a.id FROM a [RANGE 1 HOUR] LEFT JOIN b [RANGE 1 HOUR] ON a.k = b.k"
    made.query(sql, name="left", sink=weft.to_memory())
    run = LocalRun(made)
    run.batch({"a": [row(1, FAR)], "b": [row(2, FAR)]})
    run.batch()
    with pytest.raises(StateError, match="query left has given rows as final up to 2999"):
        run._loop.resets.ask("a", int(NOW.timestamp() * 1e6))


def test_derived_streams_follow_the_stream_that_is_set_back() -> None:
    """Their watermarks came from the wrong one."""
    made = weft.Session()
    for name in ("a", "b"):
        made.stream(name, SCHEMA, event_time="ts")
    made.query("SELECT a.id, a.k, a.ts FROM a WHERE a.id > 0", name="some", sink=weft.to_memory())
    sql = "SELECT s.id AS s, b.id AS b FROM some [RANGE 1 HOUR] AS s, b [RANGE 1 HOUR] WHERE s.k = b.k"
    made.query(sql, name="q", sink=weft.to_memory())
    run = LocalRun(made)
    run.batch({"a": [row(1, FAR)], "b": [row(2, NOW)]})
    run.batch({"a": [row(2, FAR)]})
    run._loop.resets.ask("a", int(NOW.timestamp() * 1e6))
    run.batch({"a": [row(5, NOW)]})
    run.batch({"b": [row(5, NOW)]})
    run.batch({})  # results of a query are tuples of the next batch
    assert run.results("q").to_pylist() == [{"s": 5, "b": 5}]


@pytest.mark.parametrize(
    ("stream", "to", "said"),
    [
        ("a", "3100-01-01", "ahead of the clock"),
        ("a", "soon", "to cannot be 'soon'"),
        ("c", "2026-01-01", "c"),
        ("u", "2026-01-01", "no stream 'u' with event times"),
    ],
)
def test_a_reset_that_makes_no_sense_is_refused(tmp_path: Path, stream: str, to: str, said: str) -> None:
    """By name, and nothing has changed."""
    made = session(tmp_path)
    made.stream("u", weft.files("json", str(tmp_path / "u"), schema=SCHEMA))
    more(tmp_path, 1)
    run_all(made)
    with pytest.raises((CatalogError, StateError), match=said):
        made.reset_watermark(stream, to=to)
    assert Checkpoint.at(tmp_path / "ck").requests.resets() == {}


def test_a_checkpoint_in_use_is_refused(tmp_path: Path) -> None:
    """The session that runs is the one to ask."""
    made = session(tmp_path)
    made.start()
    try:
        with pytest.raises(StateError, match="in use by another session"):
            session(tmp_path).reset_watermark("a", to=NOW)
    finally:
        made.stop()


def test_the_watermarks_of_a_service_are_shown_and_set(tmp_path: Path) -> None:
    """By the command line, while it runs."""
    here = place(tmp_path)
    with running_hub(tmp_path) as hub, served(hub) as (url, _):
        here.pair(1)
        wait_for(lambda: hub.stream("a").watermark is not None)
        shown = CliRunner().invoke(app, ["watermark", url])
        assert "a: 2024-01-01 00:00:00" in shown.output
        done = CliRunner().invoke(app, ["watermark", url, "a", "--to", "2023-12-31"])
        assert "stream a: its watermark is 2023-12-31 00:00:00" in done.output
        wait_for(lambda: hub.stream("a").watermark == datetime(2023, 12, 31, tzinfo=timezone.utc))
    shown = CliRunner().invoke(app, ["watermark", str(tmp_path / "ck")])
    assert "a: 2023-12-31 00:00:00" in shown.output
    assert "b: 2024-01-01 00:00:00, moved by a record of 2024-01-01 00:00:00 in batch" in shown.output
    alone = CliRunner().invoke(app, ["watermark", str(tmp_path / "ck"), "a"])
    assert "a stream and a time go together" in str(alone.exception)
