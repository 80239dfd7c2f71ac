"""The runner as a user of tests sees it."""

from __future__ import annotations

from datetime import datetime, timedelta

import pyarrow as pa
import pytest

from tests.local_runner import LocalRunner
from tests.unit.runtime.joins import SECOND, graph, sorted_rows, v, w
from weft.errors import CatalogError
from weft.logical.codec import encode

PAIR = "SELECT v.x, w.uid FROM v [RANGE 5 SECONDS], w [RANGE 5 SECONDS] WHERE v.vid = w.vid"


def test_results_come_with_the_batch_that_completes_them() -> None:
    """And all of them can be asked for at the end."""
    runner = LocalRunner(graph(PAIR))
    assert runner.process({"v": v((1, 10, 0))}).num_rows == 0
    assert sorted_rows(runner.process({"w": w((1, 7, None, 3))})) == [(10, 7)]
    assert sorted_rows(runner.process({"w": w((1, 8, None, 5), (1, 9, None, 6))})) == [(10, 8)]
    assert sorted_rows(runner.results()) == [(10, 7), (10, 8)]
    assert runner.results().schema.names == ["x", "uid"]


def test_a_query_of_one_input_filters() -> None:
    """Nothing to join, nothing to store."""
    runner = LocalRunner(graph("SELECT v.x + 1 AS y FROM v WHERE v.vid = 1"))
    assert sorted_rows(runner.process({"v": v((1, 10, 0), (2, 20, 1))})) == [(11,)]


def test_a_stream_joined_with_itself_is_given_once() -> None:
    """By the name of the stream; each alias counts as a relation."""
    runner = LocalRunner(graph("SELECT a.x AS a, b.x AS b FROM v AS a, v AS b WHERE a.vid = b.vid"))
    runner.process({"v": v((1, 10, 0))})
    runner.process({"v": v((1, 20, 1))})
    assert sorted_rows(runner.results()) == [(10, 10), (10, 20), (20, 10), (20, 20)]


def test_without_event_time_the_arrival_counts() -> None:
    """Given, not read from a clock."""
    runner = LocalRunner(graph("SELECT u.x, w.uid FROM u [RANGE 5 SECONDS], w WHERE u.vid = w.vid"))
    start = datetime(1970, 1, 1)
    runner.process({"u": pa.table({"vid": [1], "x": [10]})}, now=start)
    runner.process({"u": pa.table({"vid": [1], "x": [20]})}, now=start + timedelta(seconds=4))
    assert sorted_rows(runner.process({"w": w((1, 7, None, 8))}, now=8 * SECOND)) == [(20, 7)]


def test_late_tuples_are_dropped_and_counted_or_joined() -> None:
    """As the user says."""
    for late, expected in (("drop", []), ("join", [(11, 7)])):
        runner = LocalRunner(graph(PAIR, late=late))
        runner.process({"v": v((1, 10, 9)), "w": w((1, 7, None, 4))})
        assert sorted_rows(runner.process({"v": v((1, 11, 2))})) == expected
        assert runner.metrics[-1].inputs["v"].late == (1 if late == "drop" else 0)


def test_an_idle_source_lets_the_others_forget() -> None:
    """And what it brings afterwards is late."""
    held = LocalRunner(graph(PAIR))
    freed = LocalRunner(graph(PAIR, idle_after="10 seconds"))
    for runner in (held, freed):
        runner.process({"v": v((1, 0, 0)), "w": w((1, 7, None, 0))})
        for second in range(1, 60):
            runner.process({"v": v((1, second, second))}, now=second * SECOND)
    assert held.metrics[-1].stores["v"].rows == 60
    assert freed.metrics[-1].stores["v"].rows < 20
    freed.process({"w": w((1, 8, None, 1))}, now=60 * SECOND)
    assert freed.metrics[-1].inputs["w"].late == 1


def test_a_batch_is_measured() -> None:
    """Progress and the optimiser live on these figures."""
    runner = LocalRunner(graph(PAIR), partitions=2)
    runner.process({"v": v((1, 10, 0), (2, 20, None)), "w": w((1, 7, None, 1))})
    metrics = runner.metrics[0]
    assert metrics.inputs["v"].rows == 1
    assert metrics.inputs["v"].malformed == 1  # without a time it cannot be placed
    assert sum(step.matches for step in metrics.steps.values()) == metrics.results == 1
    assert {name: store.rows for name, store in metrics.stores.items()} == {"v": 1, "w": 1}
    assert metrics.watermarks == {"v": 0, "w": SECOND}
    assert len(metrics.seconds) == 2  # to read, and of the only hop
    assert encode(metrics)["order"] == metrics.order


def test_an_empty_batch_is_a_batch() -> None:
    """Sources pause."""
    runner = LocalRunner(graph(PAIR))
    assert runner.process({}).num_rows == 0
    assert runner.process({"v": v(), "w": w()}).num_rows == 0


def test_what_cannot_be_is_refused_with_what_can() -> None:
    """A typing error must not look like an empty result."""
    with pytest.raises(CatalogError, match="no stream 'x'"):
        LocalRunner(graph(PAIR)).process({"x": v()})


def test_bands_hold_at_the_ends_of_their_type() -> None:
    """Where adding a constant overflows, it gives NULL, and that joins nothing; what does not overflow joins."""
    last = 2**63 - 1
    sql = "SELECT v.x, w.uid FROM v, w WHERE w.uid BETWEEN v.x - 1 AND v.x + 1"
    for first, second in (("v", "w"), ("w", "v")):
        runner = LocalRunner(graph(sql))
        data = {
            "v": v((1, last - 1, 0), (1, last, 0), (1, -last - 1, 0), (1, -last, 0), (1, None, 0)),
            "w": w((1, last, None, 0), (1, -last - 1, None, 0), (1, None, None, 0)),
        }
        runner.process({first: data[first]})
        runner.process({second: data[second]})
        assert sorted_rows(runner.results()) == [(-last, -last - 1), (last - 1, last)]
