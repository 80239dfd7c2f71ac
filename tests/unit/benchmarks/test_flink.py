"""Flink as a contender, without Flink: where it is looked for, what it is given, and what it must answer."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from benchmarks import sustainable
from benchmarks._data import Shape, write_streams
from benchmarks._flink import count_results, find_flink, flink_statements, write_csv
from benchmarks._joins import JOINS, Task
from benchmarks._sustainable import latencies


def test_an_interpreter_without_flink_is_told_from_one_with_it(tmp_path: Path) -> None:
    fake = tmp_path / "python"
    fake.write_text("#!/bin/sh\nexit 0\n")
    fake.chmod(0o755)
    assert find_flink(str(fake)) == str(fake)
    fake.write_text("#!/bin/sh\nexit 1\n")
    assert find_flink(str(fake)) is None
    assert find_flink(str(tmp_path / "nowhere")) is None


def test_where_flink_is_not_installed_it_is_left_out_with_a_sentence(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing fails, since nothing else was asked for."""
    monkeypatch.setattr(sustainable, "find_flink", lambda _: None)
    assert sustainable.main(["--contenders", "flink", "--joins", "pair", "--flink", "some-python"]) == 0
    assert "Flink is not measured: some-python has no package apache-flink" in capsys.readouterr().err


@pytest.mark.parametrize("name", sorted(JOINS))
def test_the_results_to_wait_for_are_those_of_the_join(name: str, tmp_path: Path) -> None:
    """Counted from what Flink reads, as DuckDB counts them from what the others read."""
    join = JOINS[name]
    write_streams(tmp_path / "data", join.streams, Shape(2000, 500, 200, 50))
    base = duckdb.connect()
    for stream in join.streams:
        base.read_parquet(f"{tmp_path}/data/{stream}/*.parquet").create_view(stream)
    wanted = base.sql(f"SELECT count(*) FROM ({join.batch_sql()})").fetchall()[0][0]
    base.close()
    write_csv(tmp_path / "data")
    assert not list((tmp_path / "data").rglob("*.parquet"))
    assert count_results(join, tmp_path / "data") == wanted > 0


def test_every_stream_is_joined_with_the_one_before_it() -> None:
    task = Task("chain3", "flink", "/in", "/work", 10, 1, 2, "1g", 4)
    *tables, insert = flink_statements(JOINS["chain3"], task)
    assert len(tables) == 4
    assert all(f"'path' = 'file:///in/{name}'" in table for name, table in zip("vwc", tables, strict=False))
    assert "JOIN w ON v.vid = w.vid AND v.ts BETWEEN w.ts" in insert
    assert "JOIN c ON w.uid = c.uid AND w.ts BETWEEN c.ts" in insert
    assert "GREATEST(v.micros, w.micros, c.micros) - LEAST(v.micros, w.micros, c.micros) <= 5000000" in insert


def test_results_are_read_from_either_format(tmp_path: Path) -> None:
    """The file that its last tuple was in says when a result's last tuple came."""
    parquet, other = tmp_path / "a.parquet", tmp_path / "part-0"
    pq.write_table(pa.table({"v_n": [3], "w_n": [12], "v_price": [0.5]}), parquet)
    other.write_text("25,1,0.25\n")
    came, took = latencies([(105.0, [parquet]), (106.0, [other])], ("v", "w"), 10, [100.0, 101.0, 102.0])
    assert (came.tolist(), took.tolist()) == ([101.0, 102.0], [4.0, 4.0])
