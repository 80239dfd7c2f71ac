"""Samples that read tasks take: from tables to statistics, through the loop."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import weft
from tests.local_runner import LocalRunner
from weft.logical.expr.expression import Column
from weft.logical.schema import DataType
from weft.runtime.hop import admission as sampling
from weft.runtime.hop.admission import admit
from weft.runtime.wire.reports import ReadReport, read_report
from weft.stats.sampling.attributes import Attribute, JoinAttribute
from weft.stats.sampling.sampled import SampledStatistics, sampled_statistics

SCHEMA = "k int, j long, s string, d double, ts timestamp"
OTHER = "k long, j string, s string, d float, ts timestamp"


def session() -> weft.Session:
    """Two streams whose columns have different types."""
    made = weft.Session(options=weft.Options(partitions=3))
    made.stream("r", SCHEMA, event_time="ts")
    made.stream("s", OTHER, event_time="ts")
    return made


def table(seed: int, rows: int, *, other: bool = False) -> pa.Table:
    """Some tuples, a tenth of their keys NULL."""
    rng = np.random.default_rng(seed)
    keys = pa.array(rng.integers(0, 3_000, rows), mask=rng.random(rows) < 0.1)
    numbers = pa.array(rng.integers(0, 100, rows))
    return pa.table(
        {
            "k": keys.cast(pa.int64() if other else pa.int32()),
            "j": numbers.cast(pa.string()) if other else numbers,
            "s": pa.array(rng.integers(0, 40, rows)).cast(pa.string()),
            "d": pa.array(rng.random(rows), pa.float32() if other else pa.float64()),
            "ts": pa.array(np.arange(rows) + seed * rows, pa.timestamp("us", "UTC")),
        }
    )


def measured(sql: str, batches: int = 1, rows: int = 9_000) -> tuple[SampledStatistics, LocalRunner]:
    """What the samples of a query's batches tell."""
    query = session().query(sql)
    runner = LocalRunner(query.graph)
    for number in range(batches):
        runner.process({"r": table(2 * number, rows), "s": table(2 * number + 1, rows, other=True)})
    return sampled_statistics(runner.loop.history.samples.merged(), [query.query]), runner


def test_equalities_of_different_types_are_estimated() -> None:
    """An int joins a long, a long joins a text that is cast, a text joins a text; filters change nothing."""
    found, _ = measured(
        "SELECT r.d FROM r [RANGE 1 SECOND], s [RANGE 1 SECOND] "
        "WHERE r.k = s.k AND r.j = CAST(s.j AS BIGINT) AND r.s = s.s AND r.d < 0.1 AND s.d > 0.9"
    )
    values = {name: one.value for name, one in found.selectivities.items()}
    assert len(values) == 3
    texts, numbers, keys = sorted(values.values(), reverse=True)
    assert texts == pytest.approx(1 / 40, rel=0.1)
    assert numbers == pytest.approx(1 / 100, rel=0.1)
    assert keys == pytest.approx(0.81 / 3_000, rel=0.3)
    assert found.distinct["r"]["k"].value == pytest.approx(3_000, rel=0.2)
    assert found.nulls["s"]["k"].value == pytest.approx(0.1, abs=0.02)
    assert len(found.heavy["r"]["s"]) == 32


def test_comparisons_and_bands_are_estimated() -> None:
    """A double with a float, alone and as a band; event times are part of the windows."""
    window = "FROM r [RANGE 1 SECOND], s [RANGE 1 SECOND]"
    less, _ = measured(f"SELECT r.d {window} WHERE r.k = s.k AND r.d < s.d AND r.ts < s.ts")
    assert less.selectivities["r.d < CAST(s.d AS DOUBLE)"].value == pytest.approx(0.5, abs=0.05)
    assert len(less.selectivities) == 2
    band, _ = measured(f"SELECT r.d {window} WHERE r.k = s.k AND r.d BETWEEN s.d - 0.1 AND s.d + 0.1")
    bounds = [one.value for name, one in band.selectivities.items() if ".d" in name]
    assert bounds[0] * bounds[1] == pytest.approx(0.19, abs=0.03)


def test_one_batch_of_several_is_sampled() -> None:
    """The first, so that something is known soon, and then one of four."""
    _, runner = measured("SELECT r.d FROM r, s WHERE r.k = s.k", batches=6, rows=500)
    history = runner.loop.history.samples
    assert [one.batch for one in history._samples[Attribute("r", "k")]] == [0, 4]


def test_a_large_batch_is_looked_at_in_part(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that sampling takes little time, whatever the batch; what was not looked at is extrapolated."""
    monkeypatch.setattr(sampling, "LOOKED", 3_000)
    found, runner = measured("SELECT r.d FROM r, s WHERE r.k = s.k")
    merged: Any = runner.loop.history.samples.merged()[Attribute("r", "k")]
    assert (merged.tuples, merged.tuples_looked_at) == (9_000, 3_000)
    (selectivity,) = found.selectivities.values()
    assert selectivity.value == pytest.approx(0.81 / 3_000, rel=0.5)
    assert found.distinct["r"]["k"].value == pytest.approx(2_800, rel=0.25)


def test_a_stream_that_is_read_twice_is_sampled_once() -> None:
    """Whatever names a query gives it."""
    made = session()
    query = made.query("SELECT a.d FROM r AS a, r AS b WHERE a.k = b.k")
    runner = LocalRunner(query.graph)
    runner.process({"r": table(0, 9_000)})
    merged = runner.loop.history.samples.merged()
    assert [(one.stream, one.name) for one in merged] == [("r", "k")]
    assert merged[Attribute("r", "k")].tuples == 9_000
    (selectivity,) = sampled_statistics(merged, [query.query]).selectivities.values()
    assert selectivity.value == pytest.approx(0.81 / 3_000, rel=0.4)


@pytest.mark.parametrize(
    "values",
    [
        pa.array([True, False, None, True]),
        pa.array([1, 2, None, 1], pa.int8()),
        pa.array([1, 2, None, 1], pa.date32()),
        pa.array([1, 2, None, 1], pa.timestamp("us", "UTC")),
        pa.array([1, 2, None, 1], pa.duration("us")),
        pa.array([1, 2, None, 1]).cast(pa.decimal128(30, 2)),
        pa.array([0.5, float("nan"), None, 0.5]),
        pa.array([b"a", b"", None, b"a"]),
        pa.array(["a", "", None, "a"]),
        pa.array([None, None, None, None], pa.int64()),
    ],
    ids=lambda values: str(values.type),
)
def test_keys_of_every_type_are_sampled(values: Any) -> None:
    """Whatever can be joined on; a sample that fails would stop the query."""
    one = JoinAttribute("r", Attribute("r", "k"), Column("r", "k", DataType("long")), equal=True)
    found = sampling.sample_column(one, values, 4, 0)
    assert (found.looked, found.nulls) == (4, values.null_count)
    assert sorted(found.counts) == ([1, 2] if values.null_count < 4 else [])
    report = ReadReport(0, samples=(found,))
    assert read_report(report.to_message()) == report


def test_samples_are_small() -> None:
    """A few KB per attribute and task."""
    query = session().query("SELECT r.d FROM r, s WHERE r.k = s.k AND r.d < s.d")
    runner = LocalRunner(query.graph)
    program = runner.program
    (alias,) = [a for a in program.graph.aliases if program.graph.input(a).stream.name == "r"]
    batch = admit(program, alias, table(0, 50_000), now=0, watermark=None).batch
    for sample in sampling.sample_values(program, alias, batch, 0):
        message = ReadReport(0, samples=(sample,)).to_message()
        assert message.data.size + len(message.target) < 6_000
