"""The results of a query as a streaming DataFrame, aggregated by Spark."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import weft
from tests.recovery.derived_world import SCHEMA, write_files
from weft.errors import ConfigError
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import Manifest
from weft.testing import reference_join


def test_windowed_aggregate(spark: Any, tmp_path: Path) -> None:
    """What Weft leaves to Spark could not be done on its results, or would miss some of them."""
    from pyspark.sql.functions import col, window

    write_files(tmp_path, 5)
    session = weft.Session(checkpoint=tmp_path / "ck", spark=spark, execution="local")
    for name in "ab":
        source = weft.files("parquet", str(tmp_path / name), schema=SCHEMA, max_files_per_batch=2)
        session.stream(name, source, event_time="ts")
    query = session.query(
        "SELECT a.k, b.ts FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS] WHERE a.k = b.k", name="j"
    )
    counted = (
        query.dataframe()
        .withWatermark("ts", "1 hour")
        .groupBy(window(col("ts"), "10 seconds"), col("k"))
        .count()
    )
    session.run_available()
    running = (
        counted.writeStream.format("memory")
        .queryName("counted")
        .outputMode("complete")
        .option("checkpointLocation", str(tmp_path / "spark"))
        .trigger(availableNow=True)
        .start()
    )
    running.awaitTermination(120)
    found = {
        (row["window"]["start"].timestamp(), row["k"]): row["count"]
        for row in spark.table("counted").collect()
    }
    tables = {name: pq.read_table(tmp_path / name) for name in "ab"}
    rows = reference_join(query.query, tables).to_pylist()
    wanted = Counter((row["ts"].timestamp() // 10 * 10, row["k"]) for row in rows)
    assert wanted
    assert found == wanted


def _killed_after(path: str, batch: int) -> None:
    """Run a session in this process, which is killed when the results of a batch are in place and the batch is not."""
    commit = Checkpoint.commit

    def fatal(self: Checkpoint, manifest: Manifest) -> None:
        if manifest.number == batch:
            os.kill(os.getpid(), signal.SIGKILL)
        commit(self, manifest)

    setattr(Checkpoint, "commit", fatal)  # noqa: B010
    _joined(Path(path))[0].run_available()


def _joined(root: Path, spark: Any = None) -> tuple[weft.Session, weft.PlannedQuery]:
    """A query over two streams of files, two files a batch."""
    session = weft.Session(checkpoint=root / "ck", spark=spark, execution="local")
    for name in "ab":
        source = weft.files("parquet", str(root / name), schema=SCHEMA, max_files_per_batch=1)
        session.stream(name, source, event_time="ts")
    text = "SELECT a.k, b.ts FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS] WHERE a.k = b.k"
    return session, session.query(text, name="j", sink=weft.to_parquet(root / "out"))


@pytest.mark.ci
def test_a_batch_that_is_repeated_is_seen_once(spark: Any, tmp_path: Path) -> None:
    """Spark would count the results twice of a batch whose session was killed between its two commits."""
    from pyspark.sql.functions import col, window

    write_files(tmp_path, 6)
    counted = (
        _joined(tmp_path, spark)[1].dataframe().groupBy(window(col("ts"), "10 seconds"), col("k")).count()
    )
    found: dict[tuple[float, int], int] = {}

    def look() -> None:
        """Let Spark take up what is there, from where its own checkpoint stands."""
        query = counted.writeStream.outputMode("complete").option(
            "checkpointLocation", str(tmp_path / "spark")
        )
        query.foreachBatch(collect).trigger(availableNow=True).start().awaitTermination(120)

    def collect(rows: Any, _: int) -> None:
        found.clear()
        found.update({(row["window"]["start"].timestamp(), row["k"]): row["count"] for row in rows.collect()})

    processes = multiprocessing.get_context("spawn")
    for batch in (0, 2):
        life = processes.Process(target=_killed_after, args=(str(tmp_path), batch))
        life.start()
        life.join(120)
        assert life.exitcode == -signal.SIGKILL
        look()
        assert found
    session, again = _joined(tmp_path)
    session.run_available()
    look()
    rows = reference_join(again.query, {name: pq.read_table(tmp_path / name) for name in "ab"}).to_pylist()
    assert found == Counter((row["ts"].timestamp() // 10 * 10, row["k"]) for row in rows)


def test_other_sinks_have_no_frame(tmp_path: Path) -> None:
    """Spark would look for files where there are none."""
    session = weft.Session(checkpoint=tmp_path / "ck")
    session.stream("a", "k long")
    query = session.query("SELECT a.k FROM a", sink=weft.to_memory())
    with pytest.raises(ConfigError, match="in no files that Spark could read"):
        query.dataframe()
    bare = weft.Session()
    bare.stream("a", "k long")
    with pytest.raises(ConfigError, match="need a checkpoint"):
        bare.query("SELECT a.k FROM a").dataframe()
