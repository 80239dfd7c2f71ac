"""The command line on a real Spark, as somebody who tries Weft meets it."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from weft.service.pipeline import load_pipeline
from weft.testing import reference_join


def weft(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, as installed."""
    code = "from weft.service.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
        env={**os.environ, "COLUMNS": "120"},
    )


def totals(text: str) -> dict[str, int]:
    """The results of each query, as the summary has them."""
    latency = r"(?:[\d.]+ \w+ / [\d.]+ \w+ +)?"
    state = r"[\d,]+ +[\d.]+ \w?B *"
    row = rf"^ (\w+) +[\d,]+ +([\d,]+) +{latency}{state}(?: +{state})?$"
    rows = re.findall(row, text, re.MULTILINE)
    return {name: int(count.replace(",", "")) for name, count in rows}


def test_the_demo_ends_with_results() -> None:
    """Of every query, by itself, with nothing left behind."""
    done = weft("demo", "--for", "5s", "--master", "local[2]")
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    found = totals(done.stdout)
    assert list(found) == ["preferences", "trolls", "angry"], done.stdout
    assert all(found.values()), done.stdout
    assert "checkpoint: " not in done.stdout  # it is gone


PIPELINE = """
streams:
  v: {event_time: ts, source: {files: parquet, path: in/v, max_files_per_batch: 1}}
  w: {event_time: ts, source: {files: parquet, path: in/w, max_files_per_batch: 1}}
options: {partitions: 2}
queries:
  kept:
    sql: SELECT v.a, w.uid FROM v [RANGE 2 SECONDS], w [RANGE 1 SECOND] WHERE v.vid = w.vid AND v.a > 10
    sink: {parquet: out}
  shown: SELECT v.a, w.uid FROM v [RANGE 1 SECOND], w [RANGE 1 SECOND] WHERE v.vid = w.vid AND v.a = 3
checkpoint: ck
master: local[2]
"""


def test_a_pipeline_of_files_equals_the_definition(tmp_path: Path) -> None:
    """What is in the directory `out` is what the query means, and what has no sink is shown."""
    write(tmp_path, "v", "a", 1)
    write(tmp_path, "w", "uid", 2)
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE)
    done = weft("run", str(file), "--available-now", "--log", str(tmp_path / "log"))
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"note: {file}, queries.shown has no sink: its results go to the console\n"
    pipeline = load_pipeline(file)
    tables = {name: pq.read_table(tmp_path / "in" / name) for name in ("v", "w")}
    wanted = {name: rows(reference_join(pipeline.parse(name), tables)) for name in pipeline.queries}
    assert rows(pq.read_table(tmp_path / "out")) == wanted["kept"]
    assert totals(done.stdout) == {name: sum(found.values()) for name, found in wanted.items()}
    assert "shown, batch 0: " in done.stdout
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert [(line["query"], line["batch"]) for line in lines[:3]] == [("kept", 0), ("shown", 0), ("kept", 1)]
    assert f"results of kept: {tmp_path / 'out'}" in done.stdout


TO_THE_END = """
streams:
  a: {schema: "k long, x long", source: {files: csv, path: in/a}}
  b: {schema: "k long, y long", source: {files: csv, path: in/b}}
options: {partitions: 2}
queries:
  merged: {sql: "SELECT k, x, y, provenance FROM a FULL JOIN b USING (k)", sink: {parquet: out}}
checkpoint: ck
master: local[2]
"""


def test_input_that_ends_is_joined_to_its_end(tmp_path: Path) -> None:
    """`weft run --once`: rows without a partner are results, and would be missing without the end."""
    for name, text in {"a": "k,x\n1,10\n2,20\n", "b": "k,y\n1,11\n3,31\n"}.items():
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "0.csv").write_text(text)
    file = tmp_path / "p.yaml"
    file.write_text(TO_THE_END)
    done = weft("run", str(file), "--once")
    assert (done.returncode, done.stderr) == (0, "")
    assert totals(done.stdout) == {"merged": 3}
    found = pq.read_table(tmp_path / "out", columns=["k", "x", "y", "provenance"]).to_pylist()
    assert sorted(tuple(row.values()) for row in found) == [
        (1, 10, 11, "a, b"),
        (2, 20, None, "a"),
        (3, None, 31, "b"),
    ]


def write(root: Path, name: str, column: str, seed: int) -> None:
    """Three files of tuples in order of time, 100 a second."""
    folder = root / "in" / name
    folder.mkdir(parents=True)
    for number in range(3):
        rng = np.random.default_rng(10 * number + seed)
        micros = pa.array(np.arange(300 * number, 300 * (number + 1)) * 10_000)
        table = {"vid": rng.integers(0, 60, 300), column: rng.integers(0, 60, 300)}
        times = micros.cast(pa.timestamp("us", "UTC"))
        file = folder / f"{number}.parquet"
        pq.write_table(pa.table({**table, "ts": times}), file)
        os.utime(file, (1_700_000_000 + number,) * 2)  # Spark reads by time, in milliseconds


def rows(table: pa.Table) -> Counter[tuple[Any, ...]]:
    """A table as a multiset."""
    return Counter(zip(table["a"].to_pylist(), table["uid"].to_pylist(), strict=True))
