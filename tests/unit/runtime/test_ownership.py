"""Whose a log is: `weft.json`, written by the thread that commits and by those that change streams and queries."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from weft.errors import StateError
from weft.runtime.log.lease import Lease
from weft.runtime.log.ownership import Ownership
from weft.storage.storage import LocalDisk, Memory

THREADS = 4
STREAMS = 40  # of each thread


def test_threads_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    """A first commit, a first stop and changes of streams may fall together: each of them must be there afterwards."""
    ownership = Ownership(LocalDisk(tmp_path))
    ownership.open({}, {})
    ownership.claim()

    def change(thread: int) -> None:
        for number in range(STREAMS):
            ownership.add_streams({f"s{thread}_{number}": ["a long"]})
            if number == STREAMS // 2:
                ownership.note_commit() if thread % 2 else ownership.note("stops")

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(change, range(THREADS)))
    found = ownership.read()
    ownership.close()
    assert found["committed"]
    assert found["stops"]
    assert len(found["streams"]) == THREADS * STREAMS


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (["k int, x decimal(10,2)", "ts"], "stream a has other columns now: with k int for k long"),
        (["k long", "ts"], r"stream a has other columns now: without x decimal\(10,2\)"),
        (["x decimal(10,2), k long", "ts"], "the same ones in another order"),
        (["k long, x decimal(10,2), y int", "ts"], "other columns now: with y int"),
        (["k long, x decimal(10,2)", None], "had its event time in ts, and has it when rows arrive now"),
        (["k long, x decimal(10,2)", "ts", "table"], "a was a stream, and is a table now"),
    ],
)
def test_what_of_a_stream_is_another_is_said(now: list[str | None], said: str, tmp_path: Path) -> None:
    """Two lists of words would be left to compare."""
    first = Ownership(LocalDisk(tmp_path))
    first.open({"a": ["k long, x decimal(10,2)", "ts"]}, {})
    first.claim()
    first.note_commit()
    first.close()
    second = Ownership(LocalDisk(tmp_path))
    with pytest.raises(StateError, match=said):
        second.open({"a": now}, {})
    second.close()


def test_a_lease_whose_holder_left_no_name_is_waited_for_by_no_name(caplog: pytest.LogCaptureFixture) -> None:
    """A session would wait for the lease of None."""
    storage = Memory()
    lease = Lease(storage, 0.02)
    storage.put("lease/1.json", b"{", flush=False)
    lease.take()
    lease.close()
    assert "for the lease of a session that left no name to end" in caplog.text
