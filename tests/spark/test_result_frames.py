"""The results of a query as a streaming DataFrame, aggregated by Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import weft
from tests.recovery.derived_world import SCHEMA, write_files
from weft.errors import ConfigError
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
