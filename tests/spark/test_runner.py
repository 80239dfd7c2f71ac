"""Joins on a real Spark, compared with the definition computed by DuckDB from the same files."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from weft.connectors.files.parquet_sink import to_parquet
from weft.connectors.memory.sink import to_memory
from weft.errors import CatalogError, ConfigError, QueryError, StateError
from weft.logical.query.query import Query
from weft.logical.schema import Schema, Stream
from weft.ports.sink import Sink
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.observe.inspect import inspect
from weft.runtime.state.partition import LAG
from weft.runtime.state.segment_file import BUCKETS, read_manifest
from weft.stats.statistics import Statistics, StreamStatistics
from weft.testing import reference_join

STREAMS = {
    name: Stream(name, Schema.parse(f"{columns}, ts timestamp"), "ts")
    for name, columns in (("v", "vid long, a long"), ("w", "vid long, uid long"), ("c", "uid long, b string"))
}
RATES = Statistics(
    {name: StreamStatistics(rate=50_000, distinct={"vid": 300, "uid": 300}) for name in STREAMS}
)
CHAIN = """SELECT v.a, w.uid, c.b FROM v [RANGE 2 SECONDS], w [RANGE 1 SECOND], c [RANGE 3 SECONDS]
           WHERE v.vid = w.vid AND w.uid = c.uid AND v.a > 10"""


def write_files(root: Path, first: int, count: int, rows: int = 300) -> None:
    """Files of tuples in order of time, 100 a second; some keys are NULL."""
    for number in range(first, first + count):
        for seed, (name, stream) in enumerate(STREAMS.items()):
            rng = np.random.default_rng(100 * number + seed)
            columns: dict[str, Any] = {"ts": _times(number * rows, rows)}
            for field in list(stream.schema)[:2]:
                values = pa.array(rng.integers(0, 60, rows), mask=rng.random(rows) < 0.05)
                columns[field.name] = values.cast(pa.string()) if field.type.name == "string" else values
            folder = root / "in" / name
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table(columns), folder / f"{number:03}.parquet")


def _times(first: int, rows: int) -> pa.Array:
    micros = np.arange(first, first + rows, dtype=np.int64) * 10_000
    return pa.array(micros).cast(pa.timestamp("us", "UTC"))


def session_of(
    spark: Any, root: Path, sink: Sink, sql: str = CHAIN, strategy: str = "auto", **wishes: Any
) -> weft.Session:
    """A session of two partitions over the files below a directory, one file of each stream a batch."""
    options = weft.Options(partitions=2)
    session = weft.Session(checkpoint=root / "ck", spark=spark, options=options, statistics=RATES, **wishes)
    for name, stream in STREAMS.items():
        source = weft.files("parquet", str(root / "in" / name), schema=stream.schema, max_files_per_batch=1)
        session.stream(name, source, event_time="ts")
    session.query(sql, name="q", sink=sink, strategy=strategy)
    return session


def run(session: weft.Session) -> None:
    """All that is there, then stop."""
    try:
        session.start(available_now=True)
        assert session.await_termination(120)
    finally:
        session.stop()


def expected(root: Path, query: Query) -> Counter[tuple[Any, ...]]:
    """The definition's answer."""
    tables = {i.alias: pq.read_table(root / "in" / i.stream.name) for i in query.inputs}
    return rows_of(reference_join(query, tables))


def rows_of(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """A table as a multiset."""
    return Counter(zip(*(table[name].to_pylist() for name in ("a", "uid", "b")), strict=True))


@pytest.mark.parametrize("strategy", ["auto", "flat", "left_deep"])
def test_a_chain_of_three_equals_the_definition(spark: Any, tmp_path: Path, strategy: str) -> None:
    """Several batches, several hops, stored intermediate results."""
    write_files(tmp_path, 0, 3)
    sink = to_memory()
    run(session := session_of(spark, tmp_path, sink, strategy=strategy))
    answer = rows_of(sink.results())
    assert answer == expected(tmp_path, session.queries[0].query)
    assert sum(answer.values()) > 100
    progress = session.progress["q"]
    assert [batch.number for batch in progress] == [0, 1, 2]
    assert sum(batch.results for batch in progress) == sink.results().num_rows


def test_a_restart_goes_on_where_it_was(spark: Any, tmp_path: Path) -> None:
    """Tuples of before the restart join with those of after it, and nothing comes twice."""
    for first in (0, 2):
        write_files(tmp_path, first, 2)
        sink = to_parquet(tmp_path / "out")
        run(session := session_of(spark, tmp_path, sink, strategy="left_deep"))
    found = rows_of(pq.read_table(tmp_path / "out"))
    assert found == expected(tmp_path, session.queries[0].query)


def test_state_is_forgotten(spark: Any, tmp_path: Path) -> None:
    """Windows of seconds over minutes of stream: what no tuple can reach any more must go."""
    write_files(tmp_path, 0, 6)
    run(session := session_of(spark, tmp_path, to_memory(), strategy="flat"))
    progress = session.progress["q"]
    held = [sum(store.rows for store in batch.stores.values()) for batch in progress]
    assert max(held) < 0.8 * sum(sum(i.rows for i in batch.inputs.values()) for batch in progress)
    checkpoint = Checkpoint.at(tmp_path / "ck")
    kept = [manifest for number in (4, 5) if (manifest := checkpoint.manifest(number))]
    named = set().union(*map(checkpoint.files_of, kept))
    lists = [read_manifest(checkpoint.storage, file).retired for file in kept[-1].partitions.values()]
    retired = {name: since for listed in lists for since, name in listed}
    assert set(checkpoint.storage.list(BUCKETS)) == named | set(retired)
    assert all(5 - LAG < since <= 5 for since in retired.values()), "others were to be deleted by now"


def test_two_sessions_cannot_share_a_checkpoint(spark: Any, tmp_path: Path) -> None:
    """They would overwrite each other's state."""
    write_files(tmp_path, 0, 1)
    first = session_of(spark, tmp_path, to_memory())
    first.start(available_now=True)
    with pytest.raises(StateError, match="in use by another session"):
        session_of(spark, tmp_path, to_memory()).start(available_now=True)
    assert first.await_termination(120)
    first.stop()


def test_a_checkpoint_of_other_queries_is_refused(spark: Any, tmp_path: Path) -> None:
    """Its state would mean something else."""
    write_files(tmp_path, 0, 1)
    run(session_of(spark, tmp_path, to_memory()))
    other = CHAIN.replace("v.a > 10", "v.a > 20")
    with pytest.raises(StateError, match="other streams or queries"):
        session_of(spark, tmp_path, to_memory(), other).start(available_now=True)


def test_a_session_runs_what_the_readme_shows(spark: Any, tmp_path: Path) -> None:
    """The public face: streams, a query with a sink, start, results."""
    write_files(tmp_path, 0, 2)
    session = weft.Session(checkpoint=tmp_path / "ck", spark=spark, options=weft.Options(partitions=2))
    for name in STREAMS:
        session.stream(name, weft.files("parquet", str(tmp_path / "in" / name)), event_time="ts")
    sink = weft.to_memory()
    planned = session.query(CHAIN, name="chain", sink=sink)
    session.start()
    session.process_all_available()
    assert rows_of(sink.results()) == expected(tmp_path, planned.query)
    assert sum(batch.results for batch in session.progress["chain"]) == sink.results().num_rows
    (shown,) = inspect(tmp_path / "ck").queries  # also while it runs
    assert (shown.name, shown.text, shown.results) == ("chain", str(planned.query), sink.results().num_rows)
    assert shown.bytes == planned.progress.state > 0
    with pytest.raises(QueryError, match="writes to this sink already"):
        session.query(CHAIN, name="other", sink=sink)
    session.stop()


def test_a_session_says_what_it_needs_to_run(tmp_path: Path) -> None:
    """Before anything starts."""
    session = weft.Session()
    session.stream("v", "vid long, a long, ts timestamp", event_time="ts")
    with pytest.raises(ConfigError, match="needs a checkpoint"):
        session.start()
    session = weft.Session(checkpoint=tmp_path)
    session.stream("v", "vid long, a long, ts timestamp", event_time="ts")
    with pytest.raises(ConfigError, match="no query has a sink"):
        session.start()
    session.query("SELECT v.a FROM v", sink=weft.to_memory())
    with pytest.raises(CatalogError, match="has a schema but no source"):
        session.start()
    with pytest.raises(ConfigError, match="is not running"):
        session.process_all_available()


def test_bad_records_are_set_aside_and_the_rest_goes_on(spark: Any, tmp_path: Path) -> None:
    """One broken line must cost one line, and be found again with its place and reason."""
    folder = tmp_path / "in"
    folder.mkdir()
    good = [f'{{"a": {k}, "ts": "2024-01-01 00:00:0{k}"}}' for k in range(5)]
    (folder / "x.json").write_text("\n".join([*good[:2], '{"a": "oops', *good[2:]]) + "\n")
    session = weft.Session(checkpoint=tmp_path / "ck", spark=spark)
    session.stream("s", weft.files("json", str(folder), schema="a long, ts timestamp"), event_time="ts")
    sink = weft.to_memory()
    session.query("SELECT s.a FROM s WHERE s.a > 0", sink=sink)
    session.start(available_now=True)
    session.await_termination()
    session.stop()
    assert sorted(sink.results()["a"].to_pylist()) == [1, 2, 3, 4]
    (letter,) = (tmp_path / "ck" / "dead_letters").iterdir()
    (record,) = map(json.loads, letter.read_text().splitlines())
    assert (record["source"], record["line"]) == ("s", 3)
    assert record["file"].endswith("x.json")
