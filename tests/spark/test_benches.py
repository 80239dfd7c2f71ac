"""The runtime benchmarks still run, and still check that all contenders find the same results."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.xdist_group("spark")  # one JVM at a time

# Twelve seconds of events, so that windows of five matter.
SMALL = ["--rows", "6000", "--file-rows", "1000", "--files-per-batch", "2", "--keys", "2000", "--rate", "500"]


def test_weft_and_the_batch_join_agree_on_a_pair(tmp_path: Path) -> None:
    """A benchmark that cannot run, or that compares answers to different questions, measures nothing."""
    figures = tmp_path / "figures.json"
    chosen = [
        "--only",
        "weft,batch",
        "--json",
        str(figures),
        "--directory",
        str(tmp_path),
        "--timeout",
        "300",
    ]
    done = subprocess.run(
        [sys.executable, "-c", "from weft.service.cli import main; main()", "bench", "pair", *SMALL, *chosen],
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=660,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    counts = {line.split(":")[0]: line.split()[1] for line in done.stdout.splitlines() if "results" in line}
    assert counts["weft"] == counts["batch"]
    assert int(counts["weft"].replace(",", "")) > 1_000
    found = json.loads(figures.read_text(encoding="utf-8"))
    assert sum(found["weft"]["rows"]) == sum(found["batch"]["rows"]) == 12_000
    assert len(found["weft"]["seconds"]) == 3
