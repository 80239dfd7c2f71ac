"""What the benchmark of hot keys measures: else it says that little memory was used where it did not look."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from benchmarks.hotkey import own_memory, workers_of


def test_own_memory_is_what_no_file_holds(tmp_path: Path) -> None:
    before = own_memory(os.getpid())
    if not before:
        pytest.skip("there is no /proc")
    held = np.ones(1 << 26, np.uint8)
    assert own_memory(os.getpid()) - before > held.size // 2
    assert own_memory(1, tmp_path) == 0


def test_only_spark_s_python_workers_of_the_session_are_watched(tmp_path: Path) -> None:
    stat = "{n} (a) b) S 1 1 {session} 0 0"
    for number, session, command in (
        (11, 5, b"python\0-m\0pyspark.daemon"),
        (12, 5, b"java\0-cp\0pyspark/jars"),
        (13, 6, b"python\0-m\0pyspark.daemon"),
        (14, 5, b"bash"),
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "cmdline").write_bytes(command)
        (folder / "stat").write_text(stat.format(n=number, session=session))
    assert workers_of(5, tmp_path) == [11]
