"""A program that writes to a table, killed again and again with `kill -9` and started again until it has ended."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from tests.lakes.program import FILES, batch, write_input

__all__ = ["killed_run", "wanted"]

_ROOT = Path(__file__).parents[2]
_PATIENCE = 120  # seconds for the whole story


def killed_run(root: Path, kind: str, place: str, kills: int, seed: int, env: Mapping[str, str]) -> None:
    """Bring input file by file while the program is killed at random moments, then let it end."""
    rng, began, number = random.Random(seed), time.monotonic(), 0
    command = [sys.executable, "-m", "tests.lakes.program", str(root), kind, place]
    write_input(root, number)
    for life in range(kills + 1):
        with (root / f"life-{life}.log").open("wb") as log:
            run = subprocess.Popen(command, cwd=_ROOT, env=dict(env), stdout=log, stderr=log)
        known, patience = _files(root), time.monotonic() + 5
        while life < kills and run.poll() is None and _files(root) == known and time.monotonic() < patience:
            time.sleep(0.02)  # until it is at work, if there is something left to do
        pause = time.monotonic() + rng.random() * 1.5
        while life < kills and run.poll() is None and time.monotonic() < pause and number < FILES - 1:
            number += 1
            write_input(root, number)
            time.sleep(rng.random() * 0.2)
        if life == kills:
            for rest in range(number + 1, FILES):
                write_input(root, rest)
            (root / "last").touch()
            left = _PATIENCE - (time.monotonic() - began)
            assert run.wait(left) == 0, (root / f"life-{life}.log").read_text(encoding="utf-8")
        else:
            assert run.poll() is None, (root / f"life-{life}.log").read_text(encoding="utf-8")
            run.kill()
            run.wait()


def _files(root: Path) -> set[Path]:
    """The files of the program's checkpoint."""
    return {path for path in (root / "checkpoint").rglob("*") if path.is_file()}


def wanted() -> list[tuple[object, ...]]:
    """The results of the whole input, by the definition: every row has one partner."""
    table = pa.concat_tables([batch(number) for number in range(FILES)])
    return sorted(tuple(row.values()) for row in table.sort_by("k").to_pylist())
