"""The programs that the documentation shows, run as they stand there on files that are made up."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytestmark = pytest.mark.ci

ROOT = Path(__file__).parents[2]
START = datetime(2024, 5, 1, 12)


def programs(page: str) -> list[str]:
    """All Python on a page, in its order."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)


def output_of(page: str) -> str:
    """What a page says that its program prints."""
    (output,) = re.findall(
        r'^```text title="Output"\n(.*?)^```',
        (ROOT / page).read_text(encoding="utf-8"),
        re.DOTALL | re.MULTILINE,
    )
    return str(output)


def make_files(folder: Path) -> None:
    """Ten videos, half of them in the US, with three views each; flights; trades and quotes."""
    for name in ("videos", "views", "flights", "delays", "weather", "trades", "quotes"):
        (folder / name).mkdir(parents=True)
    times = [START + timedelta(seconds=second) for second in range(10)]
    ids = list(range(10))
    videos = {"vid": ids, "geo": ["US", "DE"] * 5, "ts": times}
    pq.write_table(pa.table(videos), folder / "videos" / "1.parquet")
    views = [
        {"vid": vid, "usr": 100 + usr, "duration": 5 * usr, "ts": (when + timedelta(seconds=1)).isoformat()}
        for vid, when in enumerate(times)
        for usr in range(3)
    ]
    (folder / "views" / "1.json").write_text("".join(json.dumps(view) + "\n" for view in views))
    (folder / "flights" / "1.csv").write_text("id,carrier\n1,AA\n2,BB\n")
    (folder / "delays" / "1.csv").write_text("id,minutes\n1,20\n3,5\n")
    (folder / "weather" / "1.csv").write_text("id,wind\n1,7.5\n2,3.5\n")
    prices, sizes = [100.0 + number for number in ids], [10 * number for number in ids]
    trades = {"id": ids, "price": prices, "size": sizes, "ts": times}
    quotes = {"id": ids, "bid": prices, "size": sizes, "venue": ["x", "y"] * 5, "ts": times}
    pq.write_table(pa.table(trades), folder / "trades" / "1.parquet")
    pq.write_table(pa.table(quotes), folder / "quotes" / "1.parquet")


def test_programs_run_as_they_are_shown(tmp_path: Path) -> None:
    """Who copies one has something that works; the first gives the results that its query asks for."""
    make_files(tmp_path / "in")
    found = 'import pyarrow.parquet as pq\nprint("found", pq.read_table("out/short_views").num_rows)\n'
    first, *others = programs("docs/sessions.md")
    waits = "session.process_all_available()\n"
    sessions = [first, waits, found, *programs("docs/sql.md"), *others]
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "\n".join([*programs("README.md"), *sessions, "print(merged.results(), near.results())"]),
        ],
        cwd=tmp_path,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert output_of("README.md") in done.stdout
    assert "found 10" in done.stdout  # five videos of the US, two views each below ten seconds
    for expected in ("Probe orders", "flights, weather", "grid of q.bid and q.size", "QueryProgress"):
        assert expected in done.stdout
