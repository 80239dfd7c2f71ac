"""Latency on a real Spark: from the time of a file to the commit of its results, by tasks in other processes."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.spark.files import read_files, session_of, write
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.observe.metrics import Backlog, BatchMetrics
from weft.storage.storage import LocalDisk

PAIR = "SELECT a.k, a.n AS an, b.n AS bn FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS] WHERE a.k = b.k"


@pytest.mark.parametrize("execution", ["resident", "jobs"])
def test_results_are_as_late_as_their_files_and_their_commit(
    spark: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, execution: str
) -> None:
    """All files wait for a while before the session starts; the log and the manifest say so."""
    for number in range(2):
        for stream in "ab":
            write(tmp_path, stream, number)
    time.sleep(2.0)
    first = min(file.stat().st_ctime for file in (tmp_path / "in").rglob("*.parquet"))
    session = session_of(spark, tmp_path, execution=execution)
    read_files(session, tmp_path, "a", "b")
    query = session.query(PAIR, name="q", sink=weft.to_parquet(tmp_path / "out"))
    count = session.query(PAIR, name="counted", sink=weft.to_count())
    with caplog.at_level(logging.INFO, logger="weft"):
        session.start()
        session.process_all_available()
        backlog, batches = session.backlog(), session.progress["q"]
        session.stop()
    late = query.progress.latency
    assert late.count == query.progress.results == count.progress.latency.count > 0
    assert 1.9 <= late.processing.p50 <= late.processing.max <= 1.05 * (time.time() - first)
    assert late.event.p50 > 86_400  # the data is of another year
    assert backlog == {"a": Backlog(), "b": Backlog()}
    lines = [json.loads(record.getMessage()) for record in caplog.records if record.levelname == "INFO"]
    mine = [line for line in lines if line.get("query") == "q" and line["results"]]
    assert mine
    assert all(1.9 <= line["latency_p50"] <= line["latency_max"] for line in mine)
    log = Checkpoint(LocalDisk(tmp_path / "ck"))
    kept = [log.manifest(batch.number) for batch in batches[-1:]]
    assert [BatchMetrics.from_dict(one.metrics).latencies["q"] for one in kept if one] == [
        batches[-1].latencies["q"]
    ]
