"""The benchmark of samples: its estimates, its table and its chart."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from benchmarks._chart import HEIGHT, WIDTH, Chart, write_chart
from benchmarks._estimates import BANDS, KEYS, Trial, comparisons, trials
from benchmarks.statistics import KEPT, Cost, chart_of, main, verdicts

pytestmark = pytest.mark.bench


@pytest.mark.parametrize("shape", KEYS)
def test_larger_samples_than_there_are_values_leave_no_error(shape: str) -> None:
    """So the truth is what is estimated."""
    for trial in trials(shape, 2_000, 500, (4_000,), seed=3):
        assert trial.off < 1e-6


@pytest.mark.parametrize("name", BANDS)
def test_comparisons_of_all_values_are_exact(name: str) -> None:
    """A sample that keeps all values counts all pairs."""
    (trial,) = comparisons(name, 500, (4_000,), seed=3)
    assert trial.off < 1e-6


def test_the_benchmark_runs_small(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Without Spark, where no costs are asked for."""
    png = tmp_path / "errors.png"
    small = ["--trials", "2", "--rows", "2000", "--keys", "300", "--batch-rows", "", "--png", str(png)]
    assert main(small) == 0
    out = capsys.readouterr().out
    assert "Zipf 1.2" in out
    assert "verdict:" in out
    assert png.read_bytes().startswith(b"\x89PNG")


def test_verdicts_say_what_was_measured() -> None:
    """Each with its figure."""
    found = [Trial("selectivity", shape, kept, 1.1, 1.0, 0.2) for shape in KEYS for kept in KEPT]
    costs = [Cost(1_000, 0.004, 0.02, 3_000), Cost(9_000, 0.001, 0.1, 9_000)]
    assert [reached for _, reached in verdicts(found, costs)] == [True, False, False]
    assert chart_of(found).lines["uniform"] == pytest.approx([10.0] * 3)


@pytest.mark.parametrize("log", [False, True])
def test_charts_are_images(tmp_path: Path, log: bool) -> None:
    """With a header that says how large they are, and something drawn."""
    write_chart(tmp_path / "a.png", Chart("a title", "x", "y", ("1", "2", "3"), {"α": [1, 5, 2]}, log=log))
    data = (tmp_path / "a.png").read_bytes()
    assert struct.unpack(">II", data[16:24]) == (WIDTH, HEIGHT)
    assert len(data) > 2_000
