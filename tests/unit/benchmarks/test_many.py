"""What the benchmarks of many queries make of their figures: a wrong sum is a wrong claim."""

from __future__ import annotations

import pytest
from benchmarks._ajoin import stream_names
from benchmarks._ajoin_run import input_rows, state_bytes
from benchmarks.adhoc import Outcome, Request, remarks
from benchmarks.adhoc import verdicts as adhoc_verdicts
from benchmarks.many import Found, Run, differences, make_queries, verdicts

from weft.runtime.observe.metrics import BatchMetrics, StoreMetrics
from weft.stats.input_figures import InputFigures


def batch(number: int, inputs: dict[str, int], stores: dict[str, int]) -> BatchMetrics:
    rows = {alias: InputFigures(count) for alias, count in inputs.items()}
    held = {name: StoreMetrics(size // 10, size, 1) for name, size in stores.items()}
    return BatchMetrics(number, tuple(inputs), rows, {}, held, 0)


def run(rate: float, state: int = 0, **results: int) -> Run:
    return Run([10, round(rate), round(rate)], [100.0, 1.0, 1.0], state, 0.0, results)


def test_what_queries_share_is_counted_once() -> None:
    """Or a hundred queries over one stream would seem to read a hundred times as much."""
    progress = {
        "one": [
            batch(0, {"s1": 5, "s2": 5}, {"s1": 100, "s2": 200}),
            batch(1, {"s1": 6, "s2": 7}, {"s1": 110}),
        ],
        "other": [batch(1, {"s2": 7, "s3": 1}, {"s1": 110, "s2": 30})],
    }
    assert input_rows(progress) == [10, 14]
    assert state_bytes(progress) == 300
    assert state_bytes({}) == 0


def test_queries_are_prefixes_of_each_other() -> None:
    """So that one query and a hundred differ in the ninety-nine only; the first reads all streams."""
    streams = stream_names(3)
    few, many = (make_queries(count, streams, [3, 2], 50, seed=1) for count in (5, 20))
    assert list(many.items())[:5] == list(few.items())
    assert len(set(many.values())) == 20
    assert all(f"{name} [RANGE" in many["q000"] for name in streams)


def test_the_first_batch_does_not_count() -> None:
    """It pays for compiling."""
    assert run(50.0).rate == 50
    assert Run([10], [2.0], 0, 0.0, {}).rate == 5


def test_verdicts_of_many() -> None:
    """Cost by input rows per second, state against the sum of separate sessions."""
    found = Found({1: run(100), 100: run(25)}, {}, {"state": 20}, {"state": 100, "results": {}})
    assert [reached for _, reached in verdicts(found, 10)] == [True, True]
    found = Found({1: run(100), 100: run(20)}, {}, {"state": 30}, {"state": 100, "results": {}})
    assert [reached for _, reached in verdicts(found, 10)] == [False, False]
    assert verdicts(Found(), 10) == []


def test_results_that_differ_are_told() -> None:
    """Between counted, kept and separate runs."""
    counted = {1: run(1, a=3), 2: run(1, a=3, b=4)}
    same = Found(counted, {1: run(1, a=3)}, {"results": {"b": 7}}, {"results": {"b": 7}})
    assert differences(same) == []
    other = Found(counted, {1: run(1, a=2)}, {"results": {"b": 7}}, {"results": {"b": 8}})
    assert differences(other) == ["a has [2, 3] results", "b has [7, 8] results"]


def outcome(*requests: Request) -> Outcome:
    batches = [(number, 100.0 + number, 0.5 + number / 10) for number in range(5)]
    return Outcome(100.0, batches, list(requests))


def test_how_long_a_request_waits() -> None:
    """Until the batch begins that knows it; the batches that begin meanwhile count, that one included."""
    one = outcome(
        Request("create", "q0", 100.5, 100.6, 1),
        Request("create", "q1", 100.5, 100.6, 3),
        Request("delete", "q0", 101.25, 101.3, 2),
        Request("delete", "q1", 101.25, 101.3, None),
    )
    assert one.seconds("create") == [0.5, 2.5]
    assert one.waited("create") == [1, 3]
    assert one.seconds("delete") == [0.75]
    assert one.waited("delete") == [1]
    assert one.lost == 1
    assert one.latencies == pytest.approx([0.6, 0.7, 0.8])


def test_verdicts_of_adhoc() -> None:
    """By the median; a run without requests has none, but is what the others are compared with."""
    one = outcome(Request("create", "q0", 100.5, 100.6, 1))
    late = outcome(Request("create", "q0", 100.5, 100.6, 3))
    found = {"SC1": one, "SC2": late, "steady": outcome()}
    assert [reached for _, reached in adhoc_verdicts(found)] == [True, False]
    assert len(remarks(found)) == 2
    assert remarks({"SC1": one}) == []
    assert found["steady"].latencies == pytest.approx([0.5, 0.6, 0.7, 0.8, 0.9])
