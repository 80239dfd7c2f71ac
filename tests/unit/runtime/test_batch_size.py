"""How much a batch takes, and of which streams: too much is late or does not fit, too little never catches up."""

from __future__ import annotations

import random
import sys
import time
from collections import deque
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.shares import examples, quick, seeds
from weft.connectors.memory.source import TableSource
from weft.errors import ConfigError
from weft.ports.source import Offer, Part
from weft.runtime.loop.intake.batch_size import SHARE, BatchSize
from weft.runtime.loop.intake.choice import StreamTimes, choose_parts

MINUTE = 60_000_000
MB = 1 << 20

SIZES = st.lists(st.integers(1, 100), min_size=1, max_size=12)
STREAMS = st.dictionaries(st.sampled_from("abcde"), SIZES, min_size=1)


def _offers(sizes: dict[str, list[int]]) -> dict[str, Offer]:
    return {
        name: Offer(
            tuple(Part({"n": n}, size) for n, size in enumerate(some)), backlog=(len(some), sum(some))
        )
        for name, some in sizes.items()
    }


@examples(100)
@given(STREAMS, st.integers(1, 400), st.integers(0, 9))
def test_a_batch_takes_first_parts_that_fit(sizes: dict[str, list[int]], wanted: int, turn: int) -> None:
    """A part that is passed over would never be read, and one too many may not fit into memory."""
    most, offers = 2 * wanted, _offers(sizes)
    taken = choose_parts(offers, wanted, most, turn=turn)
    assert taken
    for name, parts in taken.items():
        assert parts == offers[name].parts[: len(parts)]
    size = sum(part.bytes for parts in taken.values() for part in parts)
    assert size <= most or sum(map(len, taken.values())) == 1
    if sum(map(sum, sizes.values())) <= wanted:
        assert {name: len(parts) for name, parts in taken.items()} == {n: len(s) for n, s in sizes.items()}


@examples(50)
@given(STREAMS, st.integers(1, 100))
def test_no_stream_waits_for_ever(sizes: dict[str, list[int]], most: int) -> None:
    """Where others always bring parts that are smaller than its own."""
    seen = set[str]()
    for turn in range(len(sizes)):
        seen |= choose_parts(_offers(sizes), most, most, turn=turn).keys()
    assert seen == sizes.keys()


@examples(50)
@given(st.integers(0, 2**32))
def test_joined_streams_advance_together(seed: int) -> None:
    """A stream that runs ahead would fill the state: no part is taken while an older one of another stream waits."""
    rng = random.Random(seed)
    told = rng.random() < 0.5  # else, times are estimated from how far bytes have led
    times = StreamTimes()
    waiting = {name: _timed(rng, told=told) for name in "abc"[: rng.randint(2, 3)]}
    times.newest = dict.fromkeys(waiting, 0)
    if not told:
        times.per_byte = dict.fromkeys(waiting, MINUTE / 10)
    reached = dict.fromkeys(waiting, 0)
    for turn in range(200):
        offers = {
            name: Offer(tuple(parts)[: rng.randint(1, 5)], backlog=(len(parts), sum(p.bytes for p in parts)))
            for name, parts in waiting.items()
            if parts
        }
        if not offers:
            break
        taken = choose_parts(offers, rng.randint(10, 60), 1000, [set(waiting)], times, turn)
        assert taken
        for name, parts in taken.items():
            for _ in parts:
                reached[name] = waiting[name].popleft().what["end"]
        times.newest = dict(reached)
        late = [parts[0].what["begin"] for parts in waiting.values() if parts]
        if late:
            assert max(reached[name] for name in taken) <= min(late) + 2 * 5 * MINUTE
    assert not any(waiting.values())


def _timed(rng: random.Random, *, told: bool) -> deque[Part]:
    """Parts of up to five minutes, one after the other, from some minute on."""
    at = 0 if not told else rng.randint(0, 90) * MINUTE
    found = deque[Part]()
    for _ in range(rng.randint(0, 15)):
        minutes = rng.randint(1, 5)
        what = {"begin": at, "end": at + minutes * MINUTE}
        part = Part(what, 10 * minutes)
        found.append(replace(part, oldest=what["begin"], newest=what["end"]) if told else part)
        at = what["end"]
    return found


@examples(30)
@given(st.floats(0.001, 0.3), st.floats(20, 500), st.floats(0.2, 5.0), st.integers(0, 2**16))
def test_a_backlog_is_drained_at_full_speed_and_then_results_are_in_time(
    fixed: float, speed: float, target: float, seed: int
) -> None:
    """A hundred of the largest batches' worth at once; `speed` is in MB a second."""
    rng, most = random.Random(seed), 512 * MB
    sizes, left, spent = BatchSize(most), 100 * most, 0.0
    while left > 0:
        size = min(left, sizes.next_bytes(target, waited=100 * target))
        assert size <= most
        took = (fixed + size / MB / speed) * rng.uniform(0.95, 1.05)
        sizes.measured(size, took)
        left, spent = left - size, spent + took
    largest = most / (fixed + most / MB / speed)
    assert 100 * most / spent >= 0.9 * largest
    for _ in range(20):
        size = sizes.next_bytes(target, waited=0.0)
        took = fixed + size / MB / speed
        sizes.measured(size, took * rng.uniform(0.95, 1.05))
    assert took <= max(1.3 * SHARE * target, 2.6 * fixed)


def test_without_a_target_a_batch_takes_what_memory_allows() -> None:
    """As it always has."""
    assert BatchSize(100).next_bytes(None, 0.0) == 100


def test_a_session_with_a_target_takes_a_backlog_in_several_batches(tmp_path: Path) -> None:
    """Which grow, and give all results; a query may want its results within another time."""
    source = TableSource("k long")
    rows = 200_000
    for number in range(40):
        keys = np.arange(number * rows, (number + 1) * rows)
        source.offer(pa.table({"k": keys}), arrived=int((time.time() - 60) * 1e6))
    session = weft.Session(checkpoint=tmp_path, execution="local", memory="64 MB", latency="2 seconds")
    session.stream("a", source)
    query = session.query(
        "SELECT a.k FROM a WHERE a.k % 1000 = 0", name="q", sink=weft.to_memory(), latency="100 ms"
    )
    session.start()
    session.process_all_available()
    batches = session.progress["q"]
    session.stop()
    assert sorted(query.results()["k"].to_pylist()) == list(range(0, 40 * rows, 1000))
    taken = [one.inputs["a"].rows * 8 for one in batches]
    assert taken[0] <= 8 * MB < max(taken)
    assert max(taken) <= 2 * (64 * MB) // 4


@pytest.mark.parametrize("behind", ["a", "b"])
def test_a_stream_an_hour_behind_does_not_let_the_other_fill_the_state(
    behind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of both waits; stored is a window of each, not an hour of the one that is ahead."""
    monkeypatch.setattr("weft.bucket.memory_limits._COPIES", 256)  # so that a batch takes half a MB at most
    minutes, rows = 90, 2_000
    session = weft.Session(checkpoint=tmp_path, execution="local", memory="64 MB", latency="10 ms")
    for name in ("a", "b"):
        source = TableSource("k long, ts timestamp")
        for minute in range(0 if name == behind else 60, minutes):
            keys = np.arange(rows) % 500
            moments = minute * MINUTE + np.arange(rows) * (MINUTE // rows)
            table = pa.table({"k": keys, "ts": pa.array(moments, pa.timestamp("us", tz="UTC"))})
            source.offer(table, arrived=1)
        session.stream(name, source, event_time="ts", ahead=None)
    text = "SELECT a.k FROM a [RANGE 1 MINUTE], b [RANGE 1 MINUTE] WHERE a.k = b.k"
    session.query(text, name="q", sink=weft.to_count())
    session.start()
    session.process_all_available()
    batches = session.progress["q"]
    session.stop()
    assert (
        sum(one.results for one in batches) == 30 * rows * 9 - 5_000
    )  # nine partners each, fewer at the end
    assert len(batches) > 5
    stored = [sum(store.rows for store in one.stores.values()) for one in batches]
    assert max(stored) <= 2 * MB // 2 // 16 + 4 * rows  # two batches of rows of 16 bytes, and the windows
    assert sum(one.rows for batch in batches for one in batch.inputs.values()) == (90 + 30) * rows


@dataclass
class _Reading:
    """A stream that is read: the bytes of its parts and from when to when they are; whether it tells, and offers."""

    parts: list[tuple[int, int, int]]
    tells: bool
    offers: int
    read: int = 0

    @classmethod
    def drawn(cls, rng: random.Random, begin: int, per_minute: float, size: float) -> _Reading:
        """A stream until minute 90, which brings now more bytes a minute, now fewer."""
        parts = list[tuple[int, int, int]]()
        while begin < 90 * MINUTE:
            taken = int(size * rng.uniform(0.2, 1))
            end = begin + int(taken / (per_minute * rng.uniform(0.3, 3)) * MINUTE) + 1
            parts.append((taken, begin, end))
            begin = end
        return cls(parts, rng.random() < 0.5, rng.choice((3, 20, len(parts))))

    def offer(self) -> Offer:
        """The next parts."""
        rest = self.parts[self.read :]
        parts = (
            Part({}, size, oldest=begin, newest=end) if self.tells else Part({}, size)
            for size, begin, end in rest[: self.offers]
        )
        return Offer(tuple(parts), backlog=(len(rest), sum(size for size, *_ in rest)))

    def stored(self, since: int, until: int = sys.maxsize) -> int:
        """The bytes of what was read that is from those times."""
        return sum(size for size, _, end in self.parts[: self.read] if since <= end <= until)


def _most_beside_windows(seed: int, joined: list[list[str]]) -> tuple[float, float]:
    """How much is stored at most beside the windows, and how much an hour brings at most, in largest batches."""
    rng = random.Random(seed)
    most, target = rng.choice((16, 512)) * MB, rng.choice((None, 0.05, 1.0))
    fixed, speed, window = (
        rng.choice((0.0, 0.05, 0.5)),
        rng.choice((10, 100)) * MB,
        rng.choice((1, 5)) * MINUTE,
    )
    rate, ahead = rng.choice((5, 15)) * most / 60, rng.choice("ab")
    streams = {
        name: _Reading.drawn(rng, 60 * MINUTE * (name == ahead), rate, rng.choice((0.1, 0.5)) * most)
        for name in "ab"
    }
    sizes, times, newest, mark = BatchSize(most), StreamTimes(), dict[str, int](), -sys.maxsize
    beside = largest = 0
    while any(one.read < len(one.parts) for one in streams.values()):
        offers = {name: one.offer() for name, one in streams.items()}
        taken = choose_parts(offers, sizes.next_bytes(target, 100.0), most, joined, times, largest)
        for name, parts in taken.items():
            streams[name].read += len(parts)
            newest[name] = streams[name].parts[streams[name].read - 1][2]
        size = sum(part.bytes for parts in taken.values() for part in parts)
        assert 0 < size <= most
        largest = max(largest, size)
        inside = sum(one.stored(mark - window, mark + window) for one in streams.values())
        beside = max(beside, sum(one.stored(mark - window) for one in streams.values()) - inside)
        times.measured(taken, newest)
        sizes.measured(size, (fixed + size / speed) * rng.uniform(0.9, 1.1))
        mark = min(newest.values()) if len(newest) == 2 else mark  # rows before it go with the next batch
    return beside / largest, 60 * rate / largest


@pytest.mark.parametrize("block", quick(range(4), 1))
def test_a_stream_an_hour_behind_leaves_few_batches_beside_the_windows_whatever_sizes_are(block: int) -> None:
    """Parts that tell their times or not, few or all of them offered, with a target or without."""
    together = [_most_beside_windows(seed, [["a", "b"]]) for seed in seeds(20, block)]
    assert max(beside for beside, _ in together) < 2.5
    assert max(hour for _, hour in together) > 12


def test_streams_that_do_not_wait_for_each_other_would_fill_the_state() -> None:
    """So the test above can fail."""
    apart = [_most_beside_windows(seed, []) for seed in seeds(10)]
    assert max(beside for beside, _ in apart) > 5


@pytest.mark.parametrize("wrong", ["soon", "0 s"])
def test_a_target_of_a_query_that_is_none_is_refused(wrong: str) -> None:
    """Before it is planned."""
    session = weft.Session()
    session.stream("a", "k long")
    with pytest.raises(ConfigError, match="latency") as refused:
        session.query("SELECT a.k FROM a", latency=wrong)
    assert '"500 ms"' in (refused.value.hint or "")
    session.query("SELECT a.k FROM a", latency="500 ms")
