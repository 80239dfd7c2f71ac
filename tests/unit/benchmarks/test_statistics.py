"""The benchmark of samples: its estimates, its table and its chart."""

from __future__ import annotations

import struct
from dataclasses import replace
from pathlib import Path

import pytest
from benchmarks._estimates import BANDS, KEYS, Trial, comparisons, trials
from benchmarks._plot import Plot, draw
from benchmarks.statistics import KEPT, Cost, main, plotted, verdicts

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
    assert plotted(found).lines["uniform"][1] == pytest.approx([10.0] * 3)


def test_plots_are_images(tmp_path: Path) -> None:
    """Several below each other, in one file."""
    plot = Plot("a title", "x", "y", {"α": ([1, 2, 3], [1, 5, 2])}, {"here": 2.0})
    draw(tmp_path / "one.png", [plot])
    draw(tmp_path / "two.png", [plot, replace(plot, log_y=True)])
    heights = [
        struct.unpack(">II", (tmp_path / name).read_bytes()[16:24])[1] for name in ("one.png", "two.png")
    ]
    assert heights[1] == pytest.approx(2 * heights[0], rel=0.05)
