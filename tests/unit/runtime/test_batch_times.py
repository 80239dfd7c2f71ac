"""When batches begin: a period that is not kept, or that holds up whoever waits, is worse than none."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.connectors.memory.source import TableSource
from weft.errors import ConfigError
from weft.runtime.loop.wake_ups import ProcessingTimeTrigger

SECOND = 1_000_000


@given(st.integers(1, 5 * SECOND), st.lists(st.integers(0, 3 * SECOND), max_size=20))
def test_batches_begin_at_multiples_and_late_ones_at_once(period: int, durations: list[int]) -> None:
    """However long each of them takes."""
    trigger, now, late = ProcessingTimeTrigger(period / SECOND), 12_345_678, True
    for duration in durations:
        wait = round(trigger.seconds_left(now) * SECOND)
        assert (wait == 0) if late else (0 < wait <= period and (now + wait) % period == 0)
        now += wait
        trigger.begin(now)
        late = (now + duration) // period > now // period
        now += duration


def test_a_clock_that_is_set_back_does_not_stop_the_session() -> None:
    """Which waits for one period, not for an hour."""
    trigger = ProcessingTimeTrigger(1.0)
    trigger.begin(4_000 * SECOND)
    assert trigger.seconds_left(400 * SECOND) == 1.0


def test_a_session_runs_a_batch_every_so_often(tmp_path: Path) -> None:
    """Tables that come one by one are taken together; whoever waits is not kept waiting."""
    source = TableSource("k long")
    session = weft.Session(checkpoint=tmp_path, execution="local", every="250 ms")
    session.stream("a", source)
    query = session.query("SELECT a.k FROM a", name="q", sink=weft.to_memory())
    session.start()
    session.process_all_available()
    for number in range(40):
        source.offer(pa.table({"k": [number]}))
        time.sleep(0.02)
    session.process_all_available()
    batches = [one for one in session.progress["q"] if one.results]
    session.stop()
    assert sorted(query.results()["k"].to_pylist()) == list(range(40))
    assert 2 <= len(batches) <= 6
    assert all(one.started % 0.25 < 0.2 for one in batches[:-1])


def test_whoever_waits_does_not_wait_for_the_period(tmp_path: Path) -> None:
    """An hour would be long for `process_all_available`, and for `stop`."""
    source = TableSource("k long")
    session = weft.Session(checkpoint=tmp_path, execution="local", every="1 hour")
    session.stream("a", source)
    session.query("SELECT a.k FROM a", name="q", sink=weft.to_memory())
    session.start()
    for number in range(3):
        source.offer(pa.table({"k": [number]}))
        session.process_all_available()
    assert session.progress["q"][-1].number == 2
    session.stop()


@pytest.mark.parametrize("option", ["latency", "every"])
@pytest.mark.parametrize(
    "wrong", [5, 0.5, True, "soon", "", "0 s", timedelta(0), timedelta(seconds=-1), "-1 s"]
)
def test_a_time_that_is_none_is_refused(option: str, wrong: object) -> None:
    """Before anything starts."""
    with pytest.raises(ConfigError, match=option) as refused:
        weft.Session(**{option: wrong})  # type: ignore[arg-type]
    assert '"500 ms"' in (refused.value.hint or "")


def test_a_period_longer_than_the_target_is_refused() -> None:
    """No result could be there in time."""
    with pytest.raises(ConfigError, match=r"no result can be expected within 0\.5 s"):
        weft.Session(latency="500 ms", every="1 second")
    weft.Session(latency="1 second", every=timedelta(milliseconds=100)).stop()
    with pytest.raises(ConfigError, match="no way with queries that are too slow 'stopp'"):
        weft.Session(too_slow="stopp")
