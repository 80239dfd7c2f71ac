"""Nexmark's events follow the public rules; else its figures could not be compared with anybody's."""

from __future__ import annotations

from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest
from benchmarks._nexmark_data import ACTIVE_PEOPLE, FIRST_ID, LEAD, SCHEMAS, Events, make_events, write_events
from benchmarks._nexmark_queries import QUERIES
from benchmarks.nexmark import NexmarkTask, checksum, connect, rate

import weft

EVENTS = Events(100_000, rate=10_000, file_events=25_000)


@pytest.fixture(scope="module")
def tables() -> dict[str, pa.Table]:
    return make_events(EVENTS, 0, EVENTS.count, 0)


def test_of_fifty_events_one_is_a_person_and_three_are_auctions(tables: dict[str, pa.Table]) -> None:
    assert {name: table.num_rows for name, table in tables.items()} == {
        "person": 2_000,
        "auction": 6_000,
        "bid": 92_000,
    }
    assert tables["person"]["id"].to_pylist() == list(range(FIRST_ID, FIRST_ID + 2_000))
    assert tables["auction"]["id"].to_pylist() == list(range(FIRST_ID, FIRST_ID + 6_000))


def test_sellers_bidders_and_auctions_are_hot_as_often_as_the_rules_say(tables: dict[str, pa.Table]) -> None:
    bids = tables["bid"]
    for column, least, most in (("auction", 0.49, 0.53), ("bidder", 0.74, 0.78)):
        base = 0 if column == "auction" else 1
        hot = (bids[column].to_numpy() - FIRST_ID) % 100 == base
        assert least < hot.mean() < most
    sellers = (tables["auction"]["seller"].to_numpy() - FIRST_ID) % 100 == 0
    assert 0.74 < sellers.mean() < 0.78


def test_nobody_bids_long_before_appearing(tables: dict[str, pa.Table]) -> None:
    bids = tables["bid"]
    last = (np.arange(EVENTS.count) // 50)[np.arange(EVENTS.count) % 50 >= 4]
    ahead = bids["bidder"].to_numpy() - FIRST_ID - last
    assert ahead.max() <= LEAD
    assert ahead.min() >= -ACTIVE_PEOPLE


def test_events_are_the_same_in_every_run() -> None:
    assert make_events(EVENTS, 25_000, 50_000, 1) == make_events(EVENTS, 25_000, 50_000, 1)
    assert make_events(EVENTS, 25_000, 50_000, 1) != make_events(EVENTS, 25_000, 50_000, 2)


@pytest.mark.parametrize("name", QUERIES)
def test_weft_answers_as_duckdb_does(name: str, tmp_path: Path) -> None:
    query = QUERIES[name]
    rate = 500 if query.aggregates else 10_000  # so that there are several windows
    events = Events(20_000, rate=rate, file_events=5_000)
    write_events(tmp_path / "data", events)
    session = weft.Session(execution="local", checkpoint=str(tmp_path / "checkpoint"))
    for stream in query.streams:
        source = weft.files(
            "parquet", str(tmp_path / "data" / stream), schema=SCHEMAS[stream], max_files_per_batch=1
        )
        session.stream(stream, source, event_time="ts")
    if ("side", "S") in query.inputs:
        session.table(
            "side", weft.files("parquet", str(tmp_path / "data/side"), schema="key long, value string")
        )
    session.query(query.sql(), name=name, sink=weft.to_parquet(str(tmp_path / "out")))
    session.run_available()
    task = NexmarkTask(name, "duckdb", str(tmp_path / "data"), str(tmp_path / "peer"), 20_000, 1, 1, "1g")
    (tmp_path / "peer").mkdir()
    base: duckdb.DuckDBPyConnection = connect(query, task)
    base.execute(f"COPY ({query.duckdb_sql()}) TO '{tmp_path}/peer/all.parquet' (FORMAT parquet)")
    count, total = checksum(query, str(tmp_path / "peer"))
    assert count > 0
    assert checksum(query, str(tmp_path / "out")) == (count, total)


def test_rates_leave_out_the_first_batch() -> None:
    task = NexmarkTask("q3", "weft", "", "", 3_000, 1, 2, "1g")
    assert rate(task, {"seconds": [9.0, 1.0, 1.0]}) == 1_000
