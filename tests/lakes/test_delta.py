"""What would be lost: a result that is in a Delta table twice or not at all, or a table that others cannot read."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import weft
from tests.lakes.killing import killed_run, wanted
from tests.lakes.program import QUERY, ROWS, make_session, write_input
from tests.lakes.story import OWNER, SCHEMA, commit, crash_at, expected, groups_live, live, rows, started
from tests.shares import seeds
from weft.connectors.delta.files import split_by_values
from weft.connectors.delta.sink import DeltaSink
from weft.connectors.files import file_system as files
from weft.connectors.sink_descriptions import describe_sink, make_sink, portable_description
from weft.errors import SinkError
from weft.ports.sink import PartOpener, PartSink

deltalake = pytest.importorskip("deltalake", reason='needs pip install "weft[delta]"')


def content(path: Path | str) -> list[tuple[Any, ...]]:
    """What a reader sees, who knows nothing of batches; DuckDB reads the table through Arrow."""
    lake = deltalake.DeltaTable(str(path)).to_pyarrow_dataset()
    connection = duckdb.connect()
    connection.register("lake", lake)
    found = connection.sql("SELECT k, c, epoch_us(ts) FROM lake ORDER BY k").fetchall()
    times = pa.array([one[2] for one in found], pa.int64()).cast(SCHEMA.field("ts").type).to_pylist()
    return [(k, c, ts) for (k, c, _), ts in zip(found, times, strict=True)]


@pytest.mark.parametrize("partition_by", [(), ("c",)])
@pytest.mark.parametrize("seed", seeds(6))
def test_a_crash_at_any_step_leaves_every_row_once(
    seed: int, partition_by: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each file is flushed and the transaction is committed, and before the manifest is written."""
    steps = [(files, "flush"), (deltalake.DeltaTable, "create_write_transaction")]
    crash = crash_at(monkeypatch, steps)
    path = tmp_path / "table"
    given = live(lambda: weft.to_delta(path, partition_by=partition_by), crash, random.Random(seed))
    assert content(path) == expected(given)


def test_a_batch_that_is_there_is_not_added_again(tmp_path: Path) -> None:
    """The checkpoint lost more than one manifest: all that the table has is skipped, what it lacks is added."""
    path = tmp_path / "table"
    sink = started(lambda: weft.to_delta(path), -1)
    for batch in (0, 1, 2):
        commit(sink, batch, [batch], random.Random(batch))
    again = started(lambda: weft.to_delta(path), 1)
    for batch in (0, 1, 2, 3):
        commit(again, batch, [batch], random.Random(9))
    assert content(path) == expected([0, 1, 2, 3])
    assert deltalake.DeltaTable(str(path)).transaction_version(f"weft-{OWNER}") == 3


def test_a_slower_driver_cannot_add_a_batch_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both see a table without the batch; delta-rs refuses the second transaction."""
    path = tmp_path / "table"
    one, other = (started(lambda: weft.to_delta(path), -1) for _ in "ab")
    stale = deltalake.DeltaTable(str(path))
    commit(one, 0, [1], random.Random(0))
    monkeypatch.setattr(DeltaSink, "_table", lambda _: stale)
    with pytest.raises(SinkError, match=r"cannot be given batch 0: .*[Cc]oncurrent transaction"):
        commit(other, 0, [1], random.Random(0))
    assert content(path) == expected([1])


def test_other_checkpoints_have_batches_of_their_own(tmp_path: Path) -> None:
    """A table may have several writers: batch 0 of another checkpoint is no replay."""
    path = tmp_path / "table"
    commit(started(lambda: weft.to_delta(path), -1), 0, [1], random.Random(0))
    commit(started(lambda: weft.to_delta(path), -1, "checkpoint-2"), 0, [2], random.Random(0))
    commit(started(lambda: weft.to_delta(path), -1, None), 0, [3], random.Random(0))
    assert content(path) == expected([1, 2, 3])


def test_a_table_ahead_of_its_checkpoint_is_refused(tmp_path: Path) -> None:
    """As when an old copy of the checkpoint was restored: its batches would be other ones."""
    path = tmp_path / "table"
    sink = started(lambda: weft.to_delta(path), -1)
    for batch in (0, 1, 2):
        commit(sink, batch, [batch], random.Random(0))
    with pytest.raises(SinkError, match="has batch 2, but the checkpoint ends with 0"):
        started(lambda: weft.to_delta(path), 0)


def test_other_columns_are_refused_before_the_start(tmp_path: Path) -> None:
    """Each error names the column and says what the table has."""

    def refused(schema: pa.Schema, message: str, **options: Any) -> None:
        with pytest.raises(SinkError, match=message) as caught:
            weft.to_delta(tmp_path / "table", **options).open(schema, OWNER)
        assert caught.value.hint

    weft.to_delta(tmp_path / "table").open(SCHEMA, OWNER)
    refused(
        pa.schema([*SCHEMA, ("x", pa.int64())]), "a column x of type int64, the table .* has no such column"
    )
    refused(
        pa.schema([("k", pa.int32()), *list(SCHEMA)[1:]]),
        "column k of type int32, the table .* has it as int64",
    )
    refused(pa.schema(list(SCHEMA)[:2]), "has a column ts, the results have none")
    refused(SCHEMA, "is partitioned by", partition_by="c")
    refused(pa.schema([("d", pa.duration("us"))]), "column d has the type interval")
    refused(pa.schema([("n", pa.null())]), "column n has the type null")
    refused(pa.schema([("a", pa.int64()), ("A", pa.int64())]), "more than one column a")
    refused(SCHEMA, "no column z", partition_by="z")
    refused(SCHEMA, "ts cannot be in partition_by", partition_by=["ts"])
    refused(pa.schema([("k", pa.int64())]), "every column is in partition_by", partition_by=["k"])
    reordered = pa.schema([SCHEMA.field(2), SCHEMA.field(0), SCHEMA.field(1)])
    sink = weft.to_delta(tmp_path / "table")
    sink.open(reordered, OWNER)
    sink.commit(0, rows([5]).select(reordered.names))
    assert content(tmp_path / "table") == expected([5])


def test_tables_with_rules_are_refused(tmp_path: Path) -> None:
    """Weft would have to check every row by them."""
    deltalake.DeltaTable.create(str(tmp_path / "a"), SCHEMA).alter.add_constraint({"small": "k < 10"})
    with pytest.raises(SinkError, match=r"asks its writers for .*constraint"):
        weft.to_delta(tmp_path / "a").open(SCHEMA, OWNER)
    strict = pa.schema([pa.field("k", pa.int64(), nullable=False), *list(SCHEMA)[1:]])
    deltalake.DeltaTable.create(str(tmp_path / "b"), strict)
    with pytest.raises(SinkError, match=r"column k of the table .* must not be NULL"):
        weft.to_delta(tmp_path / "b").open(SCHEMA, OWNER)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "mine.txt").write_text("here")
    with pytest.raises(SinkError, match="not empty, and not a Delta table"):
        weft.to_delta(tmp_path / "c").open(SCHEMA, OWNER)
    with pytest.raises(SinkError, match="path is empty"):
        weft.to_delta(" ")
    with pytest.raises(
        SinkError, match="neither a path of this machine's file system nor in an object store"
    ):
        weft.to_delta("hdfs://host/table")


def test_all_types_and_statistics_survive(tmp_path: Path) -> None:
    """A wrong bound would hide rows from readers that skip files by it."""
    table = pa.table(
        {
            "i": pa.array([1, None, -5], pa.int32()),
            "b": pa.array([True, None, False]),
            "d": pa.array([0, 19000, None], pa.date32()),
            "t": pa.array([-1, 1_700_000_000_123_456, None], pa.timestamp("us", "UTC")),
            "x": pa.array([float("nan"), 1.5, None]),
            "y": pa.array([b"\x00", b"", None]),
            "n": pa.array([None, None, 3]).cast(pa.decimal128(38, 10)),
            "a b=ü": pa.array(["", None, "z" * 100]),
        }
    )
    sink = weft.to_delta(tmp_path / "t")
    sink.open(table.schema, OWNER)
    sink.commit(0, table)
    found = deltalake.DeltaTable(str(tmp_path / "t"))
    assert found.to_pyarrow_table().to_pandas().equals(table.to_pandas())
    (log,) = [json.loads(line) for line in _commit_lines(tmp_path / "t", 1) if '"add"' in line]
    stats = json.loads(log["add"]["stats"])
    assert stats["numRecords"] == 3
    assert stats["minValues"] == {"i": -5, "d": "1970-01-01", "t": "1969-12-31T23:59:59.999999Z"}
    assert stats["maxValues"] == {"i": 1, "d": "2022-01-08", "t": "2023-11-14T22:13:20.123456Z"}
    assert stats["nullCount"] == dict.fromkeys(table.column_names, 1) | {"n": 2}
    late = found.to_pyarrow_dataset().to_table(
        filter=pc.field("t") > pc.scalar(0).cast(table.schema.field("t").type)
    )
    assert late.num_rows == 1


def _commit_lines(path: Path, version: int) -> list[str]:
    return (path / "_delta_log" / f"{version:020d}.json").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("seed", seeds(10))
def test_rows_are_split_by_the_values_of_columns(seed: int) -> None:
    """Against a dictionary of rows."""
    rng = random.Random(seed)
    size = rng.randrange(40)
    table = pa.table(
        {
            "a": pa.array([rng.choice((None, 1, -2)) for _ in range(size)], pa.int64()),
            "b": pa.array([rng.choice((None, "x", "y z")) for _ in range(size)], pa.string()),
            "d": pa.array([rng.choice((None, 0, 365)) for _ in range(size)], pa.int32()).cast(pa.date32()),
            "n": pa.array(range(size), pa.int64()),
        }
    )
    columns = rng.sample(["a", "b", "d"], rng.randrange(1, 4))
    wanted: dict[tuple[str | None, ...], list[int]] = {}
    for row in table.to_pylist():
        values = tuple(None if row[name] is None else str(row[name]) for name in columns)
        wanted.setdefault(values, []).append(row["n"])
    assert {values: part["n"].to_pylist() for values, part in split_by_values(table, columns)} == wanted


def test_small_files_are_compacted_and_nothing_is_lost(tmp_path: Path) -> None:
    """Also when batches are replayed after a compaction."""
    path = tmp_path / "table"
    sink = started(lambda: weft.to_delta(path, compact=True), -1)
    for batch in range(40):
        commit(sink, batch, [batch, batch + 100], random.Random(batch))
    assert len(deltalake.DeltaTable(str(path)).file_uris()) < 32
    commit(sink, 39, [39, 139], random.Random(1))
    assert content(path) == expected([*range(40), *range(100, 140)])


def test_it_is_made_again_as_it_was(tmp_path: Path) -> None:
    """After a crash, and in tasks; the description does not change when the sink is opened."""
    sink = weft.to_delta(tmp_path / "t", partition_by=["c"], compact=True)
    assert isinstance(sink, PartSink)
    assert isinstance(sink, PartOpener)
    before = describe_sink(sink)
    sink.open(SCHEMA, OWNER)
    assert describe_sink(sink) == before == portable_description(sink)
    assert before is not None
    again = make_sink(json.loads(json.dumps(before)))
    assert again == sink
    part = again.open_part(0, 7)
    part.write(rows([1, 2, 3]).to_batches()[0])
    lost = again.open_part(0, 7)
    lost.write(rows([9]).to_batches()[0])
    lost.abort()
    sink.commit_parts(0, [part.close()])
    assert content(tmp_path / "t") == expected([1, 2, 3])


@pytest.mark.ci
@pytest.mark.parametrize("seed", seeds(1))
def test_a_session_that_is_killed_adds_every_result_once(seed: int, tmp_path: Path) -> None:
    """The whole way, with `kill -9` at random moments."""
    killed_run(tmp_path, "delta", str(tmp_path / "table"), 3, seed, os.environ)
    assert content(tmp_path / "table") == wanted()


def test_the_name_and_the_table_of_a_stopped_query_can_be_used_again(tmp_path: Path) -> None:
    """What a second query adds to the table of a first is not taken for batches of the first."""
    session = make_session(tmp_path)
    session.query(QUERY, name="results", sink=weft.to_delta(tmp_path / "table"))
    session.start()
    try:
        write_input(tmp_path, 0)
        session.process_all_available()
        session.stop_query("results")
        write_input(tmp_path, 1)
        session.process_all_available()
        session.query(QUERY, name="results", sink=weft.to_delta(tmp_path / "other"))
        write_input(tmp_path, 2)
        session.process_all_available()
    finally:
        session.stop()
    later = make_session(tmp_path)
    later.query(QUERY, name="results", sink=weft.to_delta(tmp_path / "other"))
    later.query(QUERY, name="again", sink=weft.to_delta(tmp_path / "table"))
    later.start()
    try:
        write_input(tmp_path, 3)
        later.process_all_available()
    finally:
        later.stop()
    assert [row[0] for row in content(tmp_path / "table")] == [*range(ROWS), *range(3 * ROWS, 4 * ROWS)]
    assert [row[0] for row in content(tmp_path / "other")] == [*range(2 * ROWS, 4 * ROWS)]


@pytest.mark.parametrize("partition_by", [(), ("c",)])
def test_tasks_on_spark_write_files_that_spark_and_pandas_read(
    spark: Any, partition_by: tuple[str, ...], tmp_path: Path
) -> None:
    """Tasks know the sink by its description; Spark reads the files that the log names, pandas the table."""
    session = make_session(tmp_path, execution="auto", spark=spark, options=weft.Options(partitions=2))
    path = tmp_path / "table"
    session.query(QUERY, name="results", sink=weft.to_delta(path, partition_by=partition_by))
    session.start()
    try:
        for number in range(2):
            write_input(tmp_path, number)
            session.process_all_available()
    finally:
        session.stop()
    table = deltalake.DeltaTable(str(path))
    assert sorted(table.to_pandas()["k"]) == [*range(2 * ROWS)]
    assert [row[0] for row in content(path)] == [*range(2 * ROWS)]
    uris = table.file_uris()
    assert len(uris) > 1
    assert sorted(row.k for row in spark.read.parquet(*uris).collect()) == [*range(2 * ROWS)]


@pytest.mark.parametrize("seed", seeds(6))
def test_groups_that_change_are_there_once(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after a merge is committed; a group whose key is NULL or NaN would be there several times."""
    path = tmp_path / "table"
    crash = crash_at(monkeypatch, [(DeltaSink, "_merge")])
    wanted_rows = groups_live(lambda: weft.to_delta(path).keyed(["a b", "k"]), crash, random.Random(seed))
    found = deltalake.DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    assert sorted(str(tuple(row.values())) for row in found) == wanted_rows


def test_the_one_group_of_all_rows_is_replaced(tmp_path: Path) -> None:
    """Without keys there is one row; the sink that a description makes goes on with it."""
    path = tmp_path / "table"
    sink = weft.to_delta(path).keyed([])
    schema = pa.schema([("n", pa.int64())])
    sink.open(schema, OWNER)
    sink.commit(0, pa.table({"n": [1]}, schema))
    again = make_sink(describe_sink(sink) or {})
    again.open(schema, OWNER)
    again.recover(0)
    again.commit(1, pa.table({"n": [2]}, schema))
    assert deltalake.DeltaTable(str(path)).to_pyarrow_table().to_pylist() == [{"n": 2}]
