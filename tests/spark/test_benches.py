"""The runtime benchmarks still run, and still check that all contenders find the same results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.bench

# Twelve seconds of events, so that windows of five matter.
SMALL = ["--rows", "6000", "--file-rows", "1000", "--files-per-batch", "2", "--keys", "2000", "--rate", "500"]


def bench(tmp_path: Path, *arguments: str) -> tuple[str, dict[str, Any]]:
    """Run a benchmark, which must succeed; what it printed, and its figures."""
    figures = tmp_path / "figures.json"
    common = ["--json", str(figures), "--directory", str(tmp_path), "--timeout", "300"]
    done = subprocess.run(
        [sys.executable, "-c", "from weft.service.cli import main; main()", "bench", *arguments, *common],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=660,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(figures.read_text(encoding="utf-8"))


@pytest.mark.slow
def test_weft_and_the_batch_join_agree_on_a_pair(tmp_path: Path) -> None:
    """A benchmark that cannot run, or that compares answers to different questions, measures nothing."""
    told, found = bench(tmp_path, "pair", *SMALL, "--only", "weft,batch")
    counts = {line.split(":")[0]: line.split()[1] for line in told.splitlines() if "results" in line}
    assert counts["weft"] == counts["batch"]
    assert int(counts["weft"].replace(",", "")) > 1_000
    assert sum(found["weft"]["rows"]) == sum(found["batch"]["rows"]) == 12_000
    assert len(found["weft"]["seconds"]) == 3


@pytest.mark.slow
def test_flights_are_joined_by_all_but_sparks_streams(tmp_path: Path) -> None:
    """What the benchmark says is what they do: Weft finds all, and Spark's streams refuse the query."""
    small = ["--data", "synthetic", "--rows", "15000", "--missing", "0.1", "--batches", "2"]
    _, figures = bench(tmp_path, "sopj", *small, "--only", "weft,duckdb,stream")
    found = figures["synthetic"]
    assert "not supported without a watermark" in found["stream"]["refusal"]
    assert found["weft"]["found"] == found["duckdb"]["found"]
    assert len(found["weft"]["found"][0]) == 7  # all there can be of three sources
    assert found["weft"]["moments"]["first"] <= found["weft"]["moments"]["last"]


@pytest.mark.slow
def test_splitjoins_peers_find_what_weft_finds(tmp_path: Path) -> None:
    """Full windows, by count; the peers' counts of a batch are compared within the benchmark."""
    small = ["--windows", "2^10", "--fill-rows", "512", "--batch-rows", "256", "--domain", "500"]
    few = ["--kinds", "count", "--cores", "1", "--partitions", "2", "--batches", "2", "--warm-up", "0"]
    latency = ["--latency-window", "2^10", "--latency-rate", "2000", "--latency-seconds", "1"]
    sections = ["--sections", "throughput,peers,latency", "--together"]
    told, found = bench(tmp_path, "splitjoin", *small, *few, *latency, *sections)
    assert [one["rows"] for one in found["throughput"]] == [[1024, 1024, 512, 512, 512]]
    assert {one["results"] for one in found["peers"]} == {found["throughput"][0]["results"][3]}
    assert {one["peer"] for one in found["peers"]} == {"loops", "duckdb", "cells", "polars"}
    assert found["latency"][0]["visits"]
    assert all(len(one["parts"]) == 4 for one in found["latency"][0]["visits"])
    assert "paper, 28 cores: 5,200" in told


@pytest.mark.slow
def test_heavy_keys_are_scattered_and_nothing_is_lost(tmp_path: Path) -> None:
    """Both ways join the same tuples, one of them by stores that scatter."""
    small = ["--rows", "2000", "--batches", "2", "--drop", "1", "--keys", "200", "--partitions", "3"]
    told, found = bench(tmp_path, "skew", *small, "--only", "plain,given")
    assert "verdict" in told
    assert found["plain"]["scattered"] == 0
    assert found["given"]["scattered"] > 0
    assert found["plain"]["results"] == found["given"]["results"]
    assert found["plain"]["results"][0] > 1_000


@pytest.mark.slow
def test_groups_of_queries_do_not_change_what_they_find(tmp_path: Path) -> None:
    """However queries are grouped, those that ran from the start have the same results; the plot is drawn."""
    small = ["--queries", "6", "--first", "2", "--files", "5", "--first-files", "1", "--file-rows", "1000"]
    picture = tmp_path / "groups.png"
    _, found = bench(tmp_path, "groups", *small, "--contenders", "none", "known", "--plot", str(picture))
    assert {name: run["groups"] for name, run in found.items()} == {"none": 1, "known": 2}
    assert found["none"]["results"] == found["known"]["results"]
    assert found["none"]["rows"] == found["known"]["rows"]
    assert found["none"]["rows"][3:] == [3_000, 3_000]
    assert picture.read_bytes().startswith(b"\x89PNG")
