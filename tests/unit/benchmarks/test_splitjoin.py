"""SplitJoin's streams, Weft's peers and what is made of the figures: other data make a wrong claim."""

from __future__ import annotations

import io
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from benchmarks import splitjoin
from benchmarks._harness import ContenderError
from benchmarks._splitjoin import KINDS, SCHEMAS, SPAN, Shape, kept_data, read_rows, sql
from benchmarks._splitjoin_peers import PEERS, PeerTask, run_peer
from benchmarks._splitjoin_report import (
    CORES,
    LARGE,
    Case,
    Latency,
    Peer,
    Report,
    Steady,
    latency_cases,
    parse,
    peer_cases,
    peers_table,
    precision_cases,
    precision_table,
    selectivity_cases,
    throughput_cases,
    throughput_table,
    verdicts,
)
from benchmarks._splitjoin_run import Visits, WeftTask, make_query, make_session, visits
from rich.console import Console

import weft
from tests.local_runner import LocalRunner
from weft.logical.codec import decode, encode
from weft.runtime.observe.metrics import BatchMetrics
from weft.stats.histogram import Histogram
from weft.stats.histogram import Latency as Measured

SHAPE = Shape(size=1_000, fill_rows=400, batch_rows=150, batches=3, domain=500)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return kept_data(tmp_path_factory.mktemp("splitjoin"), SHAPE)


def whole(data: Path, stream: str) -> pa.Table:
    columns = [part.split()[0] for part in SCHEMAS[stream].split(", ")]
    return read_rows(data / stream, 0, sum(SHAPE.files), columns)


def test_streams_are_as_in_the_paper_and_repeatable(data: Path, tmp_path: Path) -> None:
    again = kept_data(tmp_path, SHAPE)
    r, s = whole(data, "r"), whole(data, "s")
    assert r.equals(whole(again, "r"))
    assert not r["x"].equals(s["a"])
    for column in (r["x"], r["y"], s["a"], s["b"]):
        bounds = pc.min_max(column).as_py()
        assert 1 <= bounds["min"] < 10
        assert SHAPE.domain - 10 < bounds["max"] <= SHAPE.domain
    assert set(pc.utf8_length(r["z"]).to_pylist()) == {20}
    assert r.schema.field("y").type == s.schema.field("b").type == pa.float32()
    assert not np.any(r["y"].to_numpy() * 64 % 1)  # no rounding decides
    files = sorted((data / "r").iterdir())
    assert [pq.ParquetFile(file).metadata.num_rows for file in files] == SHAPE.files
    assert SHAPE.files == [333, 334, 333, 150, 150, 150]


def test_a_window_of_time_holds_as_many_tuples_as_one_by_count(data: Path) -> None:
    times = whole(data, "s")["ts"].cast(pa.int64()).to_numpy()
    newest = 1_300
    held = times[: newest + 1] >= times[newest] - SPAN * 1_000_000
    assert np.count_nonzero(held) == SHAPE.size + 1  # itself, and those of the last 15 minutes


def test_data_that_is_there_is_not_written_again(tmp_path: Path) -> None:
    small = Shape(10, 10, 5, 1)
    file = kept_data(tmp_path, small) / "r" / "00000.parquet"
    pq.write_table(pa.table({"x": [1]}), file)
    assert kept_data(tmp_path, small) == file.parents[1]
    assert pq.read_table(file).num_rows == 1
    assert kept_data(tmp_path, replace(small, seed=8)) != file.parents[1]


@pytest.fixture(scope="module", params=KINDS)
def batch(request: pytest.FixtureRequest, data: Path) -> tuple[str, BatchMetrics]:
    """The last batch of the join, as Weft runs it."""
    task = WeftTask(str(data), "", request.param, SHAPE.size, SHAPE.domain, cores=1, partitions=3)
    session = make_session(task, data)
    runner = LocalRunner(make_query(session, task, None).graph)
    for number in range(len(SHAPE.files)):
        runner.process(
            {name: pq.read_table(data / name / f"{number:05}.parquet") for name in SCHEMAS},
        )
    return request.param, runner.metrics[-1]


@pytest.mark.parametrize("peer", PEERS)
def test_peers_find_what_weft_finds_in_a_batch(
    batch: tuple[str, BatchMetrics], data: Path, peer: str
) -> None:
    """Or their rates are those of another question."""
    kind, metrics = batch
    first, second = metrics.order
    begin = sum(SHAPE.files[:-1])
    task = PeerTask(
        peer, str(data), kind, SHAPE.size, SHAPE.domain, 1, begin, SHAPE.batch_rows, (first, second)
    )
    found = run_peer(task)
    assert found["results"] == metrics.results > 100
    assert found["tuples"] == 2 * SHAPE.batch_rows
    some = run_peer(replace(task, most=30))
    assert 0 < some["results"] < metrics.results
    assert some["tuples"] == 60
    assert found["expected"] is None  # Weft's
    if peer != "cells":
        assert some["expected"] == some["results"]


def test_which_stream_is_first_matters_by_count(data: Path) -> None:
    """The one that comes later meets the other's new tuples, and has lost as many old ones."""
    begin = sum(SHAPE.files[:-1])
    one = PeerTask("duckdb", str(data), "count", SHAPE.size, SHAPE.domain, 1, begin, 150, ("r", "s"))
    assert run_peer(one)["results"] != run_peer(replace(one, order=("s", "r")))["results"]
    timed = replace(one, kind="time")
    assert run_peer(timed)["results"] == run_peer(replace(timed, order=("s", "r")))["results"]


def test_windows_are_of_their_kind() -> None:
    session = weft.Session()
    for name, schema in SCHEMAS.items():
        session.stream(name, schema, event_time="ts")
    assert [str(one.window) for one in session.parse(sql("count", 64)).inputs] == ["ROWS 64"] * 2
    assert [str(one.window) for one in session.parse(sql("time", 64)).inputs] == ["RANGE 15 MINUTES"] * 2


def test_order_and_precision_are_handed_over() -> None:
    """Or all orders would cost nothing."""
    given: list[dict[str, Any]] = []

    class QueryRequest(weft.Session):
        def query(self, *_: Any, **arguments: Any) -> Any:
            given.append({name: arguments[name] for name in ("order", "precision") if name in arguments})

    plain = WeftTask("", "", "count", 64, 100, cores=1, partitions=1)
    for task in (plain, replace(plain, order="outer", precision=8), replace(plain, order="inner")):
        make_query(QueryRequest(), task, None)
    assert given == [{}, {"order": "outer", "precision": 8}, {"order": "inner"}]


class TestCases:
    def test_a_cross_by_default_and_the_grid_if_asked_for(self) -> None:
        cross = throughput_cases(parse("", []))
        assert len(cross) == len(set(cross)) == 6 + 1 + 3
        assert {(one.cores, one.partitions) for one in cross if one.size == LARGE} == {(2, 2)}
        assert {one.partitions for one in cross} == {2, 4, 8, 16}
        full = throughput_cases(parse("", ["--full"]))
        assert len(set(full)) == 2 * 3 * 2 * 4
        assert set(cross) < set(full)

    def test_peers_are_compared_with_a_case_of_the_throughput(self) -> None:
        options = parse("", ["--windows", "2^10", "2^12", "--cores", "1"])
        assert set(peer_cases(options)) < set(throughput_cases(options))
        assert {one.size for one in peer_cases(options)} == {4096}

    def test_figures_of_the_paper(self) -> None:
        options = parse("", ["--kinds", "count"])
        assert {one.size for one in selectivity_cases(options)} == {28 * 2**15}
        orders = [(one.order, one.precision) for one in precision_cases(options)]
        assert orders[0] == ("none", None)
        assert orders[1] == ("outer", 1)
        assert orders[-1] == ("inner", None)
        assert [one.kind for one in latency_cases(options)] == ["count"]

    @pytest.mark.parametrize("wrong", ["--windows=0", "--windows=2^x", "--sections=all", "--cores=two"])
    def test_options_that_mean_nothing_are_refused(
        self, wrong: str, capsys: pytest.CaptureFixture[str]
    ) -> None:
        with pytest.raises(SystemExit):
            parse("", [wrong])
        assert wrong.split("=")[0] in capsys.readouterr().err


CASE = Case("count", LARGE, CORES, 2)
RUN = Steady(  # three batches fill the windows, two count, one ends them
    skip=3,
    rows=[1, 1, 1, 120_000, 120_000, 7],
    started=[0, 90, 95, 100, 101.5, 102],
    results=[0, 0, 0, 5, 7, 9],
    orders=[["r", "s"]] * 6,
    seconds=[[9.0, 9.0]] * 3 + [[1.0, 2.0]] * 2 + [[9.0, 9.0]],
    stored=3,
    state=4,
)


def test_filling_and_the_last_batch_do_not_count() -> None:
    assert RUN.cycles == [0.5, 1.5]
    assert RUN.rate == 240_000 / 2
    assert RUN.matches == 12 / 240_000
    assert RUN.share(1) == 2


def shown(table: object) -> str:
    text = io.StringIO()
    Console(file=text, width=140).print(table)
    return text.getvalue()


class TestVerdicts:
    def test_what_was_not_measured_has_none(self) -> None:
        assert {reached for _, reached in verdicts(Report())} == {None}
        small = replace(CASE, size=1024)
        report = Report(throughput={small: RUN}, peers={small: {"loops": Peer(10, 1.0)}})
        assert {reached for _, reached in verdicts(report)} == {None}

    def test_targets_are_missed_when_they_are(self) -> None:
        def judged(rate: float, loops: float, outer: float) -> list[bool | None]:
            run = replace(RUN, rows=[0, 0, 0, round(rate), round(rate), 0])
            ordered = replace(run, rows=[0, 0, 0, round(outer * rate), round(outer * rate), 0])
            report = Report(
                throughput={CASE: run},
                peers={CASE: {"loops": Peer(round(loops), 1.0)}},
                precision={CASE: run, replace(CASE, order="outer", precision=1): ordered},
            )
            return [reached for _, reached in verdicts(report)]

        assert judged(120_000, 2_400, 0.86) == [None, True, None, True, True]
        assert judged(99_000, 2_400, 0.84) == [None, False, None, False, False]

    def test_the_paper_stands_beside(self) -> None:
        text = "\n".join(target for target, _ in verdicts(Report(throughput={CASE: RUN})))
        assert "(120,000; paper, 28 cores: 5,200)" in text
        assert "(not measured; paper, 28 cores: 4,400)" in text


def test_tables_show_who_is_missing_and_who_differs() -> None:
    found = {
        "loops": Peer(100, 1.0, 3),
        "duckdb": Peer(100, 2.0, 3, expected=4),
        "polars": Peer(note="not installed"),
    }
    text = shown(peers_table(CASE, RUN, found))
    lines = {line.split("│")[1].strip(): line for line in text.splitlines() if "│" in line}
    assert "1,200.0 ×" in lines["nested loops, compiled"]
    assert " no " in lines["DuckDB, range join"]
    assert "not installed" in lines["Polars, join_where"]
    ordered = replace(CASE, order="outer", precision=8)
    half = replace(RUN, rows=[0, 0, 0, 60_000, 60_000, 0])
    assert "50.0%" in shown(precision_table({CASE: RUN, ordered: half}))
    assert "2^21" in shown(throughput_table({CASE: RUN}, 100))


def test_a_peer_that_is_not_installed_is_no_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splitjoin, "is_installed", lambda _: False)
    track = splitjoin.Track(tmp_path, parse("", []))
    assert "not installed" in track.peer("polars", CASE, RUN).note
    assert track.report.troubles == []


def test_a_run_that_fails_is_told_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []

    def fail(contender: Any, task: WeftTask, _: float) -> dict[str, Any]:
        asked.append(f"{contender.__name__} {task.kind}")
        raise ContenderError("it ended with 137")

    monkeypatch.setattr(splitjoin, "run_alone", fail)
    small = ["--windows", "16", "--batch-rows", "8", "--cores", "1", "--partitions", "2"]
    assert splitjoin.main([*small, "--sections", "throughput", "--directory", str(tmp_path)]) == 1
    assert asked == ["run_steady time", "run_steady count"]
    assert capsys.readouterr().out.count("it ended with 137") == 2
    assert list(tmp_path.iterdir()) == []


def counted(number: int, started: float, *latencies: float) -> BatchMetrics:
    measured = {"q": Measured(Histogram.of(round(one * 1e6) for one in latencies))} if latencies else {}
    return BatchMetrics(
        number,
        ("r", "s"),
        {},
        {},
        {},
        1,
        seconds=(0.1, 0.2),
        started=started,
        elapsed=0.5,
        latencies=measured,
    )


class TestLatency:
    def test_the_latency_of_batches_is_made_of_its_parts(self) -> None:
        """The first batch fills the windows, and the last has no results."""
        batches = [counted(0, 0, 9.0), counted(1, 10, 1.4, 1.4), counted(2, 20)]
        (found,) = visits(batches, 5.0, delivered={0: 1.0, 1: 10.4})
        assert found.batch == 1
        assert found.parts == pytest.approx((1.0, 0.1, 0.2, 0.1), abs=0.03)
        assert sum(found.parts) == pytest.approx(decode(Histogram, found.latency).mean)

    @pytest.mark.parametrize(("waited", "kept_up"), [(0.5, True), (5.0, False)])
    def test_input_that_is_too_fast_is_told(self, waited: float, kept_up: bool) -> None:
        usual = [Visits(batch, encode(Histogram.of([10**6])), (0.4, 0.1, 0.1, 0.4)) for batch in range(10)]
        slow = encode(Histogram.of([round((waited + 0.6) * 1e6)]))
        found = Latency(
            CASE, 100, 0.25, [asdict(one) for one in (*usual, Visits(10, slow, (waited, 0.1, 0.1, 0.4)))]
        )
        assert found.kept_up is kept_up
        assert found.latency.count == 11
        assert found.parts[1:] == pytest.approx([0.1, 0.1, 0.4])
