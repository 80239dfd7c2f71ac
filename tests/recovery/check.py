"""Whether everything is there after kills, and once."""

from __future__ import annotations

from pathlib import Path

from tests.recovery.cases import Case, Rows, broken_lines, dead_letters
from tests.recovery.moments import last_batch
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import Manifest
from weft.runtime.model.batch_order import ENDED


def check(case: Case, root: Path, story: list[str]) -> None:
    """Everything is there, and once."""
    told = f"{case}, {case.shape}\n" + "\n".join(story)
    for name, answer in case.answers(root).items():
        about = f"{name}, {answer.life}: {told}"
        _same(answer.found, answer.must, answer.may, f"results: {about}")
        assert answer.in_order, f"results are not in order: {about}"
    if case.outer:
        left = Checkpoint.at(root / "ck").manifest(last_batch(root)) or Manifest()
        assert set(left.closed.values()) == {ENDED}, f"the input has not ended: {told}"
    broken = broken_lines(root, case.files)
    _same(dead_letters(root), broken, broken, f"dead letters: {told}")


def _same(found: Rows, must: Rows, may: Rows, told: str) -> None:
    lost, extra = must - found, found - may
    assert not lost, f"{sum(lost.values())} lost, as {next(iter(lost))}; {told}"
    assert not extra, f"{sum(extra.values())} too many, as {next(iter(extra))}; {told}"
