"""What the benchmark of driver policies is measured on, and what it makes of its figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from benchmarks._mjoin_report import CONTENDERS, FEW, Figures, averages, figures_of, verdicts, write_csv
from benchmarks._mjoin_report import TABLE_4 as PAPER
from benchmarks._mjoin_run import (
    DATASETS,
    SPAN,
    STREAMS,
    Batch,
    Run,
    batches,
    bursts,
    generate,
    in_quarters,
    wave,
)
from benchmarks.mjoin import main, measure

pytestmark = pytest.mark.bench


class TestData:
    """The paper's streams."""

    @pytest.mark.parametrize("dataset", DATASETS, ids=lambda one: one.name)
    def test_they_have_the_paper_s_selectivities(self, dataset: object) -> None:
        """Table 2, scaled: as many partners of a tuple as at full size."""
        scale = 0.02
        assert isinstance(dataset, type(DATASETS[0]))
        streams = generate(dataset, scale)
        counts = {name: np.bincount(table.column("k").to_numpy()) for name, table in streams.items()}
        most = max(map(len, counts.values()))
        s1, s2, s3 = (np.pad(counts[name], (0, most - len(counts[name]))).astype(float) for name in STREAMS)
        few = dataset.name in ("I", "II", "III", "IV")
        wanted = (5e3, 1e6, 5e6, 5e6) if few else (1e4, 1e5, 1e6, 1e6)
        found = ((s1 * s2).sum(), (s1 * s3).sum(), (s2 * s3).sum(), (s1 * s2 * s3).sum())
        assert found == pytest.approx([scale * one for one in wanted])
        sizes = (1e6, 1e6, 1e6) if few else (1e4, 1e5, 1e6)
        assert [table.num_rows for table in streams.values()] == [scale * one for one in sizes]

    @pytest.mark.parametrize("dataset", DATASETS, ids=lambda one: one.name)
    def test_batches_are_all_tuples_in_the_order_of_their_times(self, dataset: object) -> None:
        assert isinstance(dataset, type(DATASETS[0]))
        streams = generate(dataset, 0.01)
        cut = list(batches(streams, 10))
        for name, table in streams.items():
            assert pa.concat_tables([one[name] for one in cut]).equals(table)
            times = table.column("ts").cast(pa.int64()).to_numpy()
            assert (np.diff(times) >= 0).all()
            assert times[0] >= 0
            assert 0.9 * SPAN < times[-1] < SPAN  # all streams end about together

    def test_bursts_are_a_b_model(self) -> None:
        """A fifth of the tuples in the first half, and a fifth of these in its first half."""
        times = bursts(0.2)(100_000)
        parts = [np.mean(times < bound) for bound in (0.5, 0.25, 0.75)]
        assert parts == pytest.approx([0.2, 0.04, 0.2 + 0.8 * 0.2], abs=0.001)
        assert np.mean(bursts(0.8)(100_000) < 0.5) == pytest.approx(0.8, abs=0.001)

    def test_rates_change_with_every_quarter_of_the_tuples(self) -> None:
        gaps = np.diff(in_quarters(5, 15)(1_000))
        assert gaps[600] / gaps[100] == pytest.approx(3)

    def test_a_wave_has_its_crest_before_its_trough(self) -> None:
        counts = np.histogram(wave(100_000), bins=8)[0]
        assert counts[0] > 3 * counts[3]
        assert counts.sum() == 100_000


class TestFigures:
    """Times are in those of the policy timestamp."""

    def batch(self, seconds: float, *given: tuple[float, int]) -> Batch:
        return Batch(seconds, {"s1": 10, "s2": 30}, given=given, done={"s1": 1.0, "s2": seconds}, peak=7)

    def test_figures(self) -> None:
        """The first of five batches does not count; half of the time is 2 s, though this run takes 3."""
        reference = Run([self.batch(4.0, (3.9, 8))] * 5, 9)
        mine = Run([self.batch(99.0)] + [self.batch(3.0, (1.0, 2), (2.5, 6))] * 4, 9)
        found = figures_of(mine, reference)
        by_half = (2 + 6 * 10 / 30) / 8  # 20 of 40 tuples: all of s1, a third of s2
        assert found == Figures(3.0, 0.75, 0.25, by_half, (10 * 1 + 30 * 3) / 4 / 40, 9, 7)
        assert figures_of(reference, reference).running == 1

    def test_the_fastest_of_several_rounds_counts_batch_by_batch(self) -> None:
        one, two = Run([self.batch(1.0), self.batch(5.0)], 1), Run([self.batch(2.0), self.batch(3.0)], 1)
        assert [batch.seconds for batch in Run.fastest([one, two]).batches] == [1.0, 3.0]

    def test_averages_are_over_what_the_paper_has(self) -> None:
        """Its consumption rate was measured on data sets V and VI alone: 0.768 with large batches."""
        names = [dataset.name for dataset in DATASETS]
        same = {
            (FEW, name, policy): Figures(1, 0.5, 0.5, 0.5, 0, 0, 0) for name in names for policy in CONTENDERS
        }
        found = averages(same, lambda one: one.running, PAPER, FEW)
        assert found["consumption_rate"] == pytest.approx((0.5, 0.768))
        assert found["initial_output_size"] == pytest.approx((0.5, 0.714), abs=0.001)
        assert found["output_rate"] == pytest.approx((0.5, 0.803), abs=0.001)
        told = dict(verdicts(same, FEW))
        assert told["initial_output_size takes less time than timestamp (0.50 × its time)"]
        assert not told["initial_output_size gives more at half of the time (0.50, not 0.50)"]


def test_all_contenders_have_the_same_results_and_stores(tmp_path: Path) -> None:
    """Else their times could not be compared; a small run of each, and its files."""
    runs = measure(DATASETS[3], 10, 0.01, 1, 3)
    assert {one.results for one in runs.values()} == {50_000}
    assert runs.keys() == set(CONTENDERS)
    found = {(10, "IV", name): figures_of(one, runs["timestamp"]) for name, one in runs.items()}
    write_csv(found, tmp_path / "found.csv")
    lines = (tmp_path / "found.csv").read_text().splitlines()
    assert len(lines) == 1 + len(CONTENDERS)
    assert lines[2].startswith("10,IV,round_robin,")
    assert main(["--scale", "0.005", "--rounds", "1", "--batches", "10", "--datasets", "V"]) == 0
