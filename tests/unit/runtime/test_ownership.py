"""Whose a log is: `weft.json`, written by the thread that commits and by those that change streams and queries."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from weft.runtime.log.ownership import Ownership
from weft.storage.storage import LocalDisk

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
                ownership.note_commit() if thread % 2 else ownership.note_stop()

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(change, range(THREADS)))
    found = ownership.read()
    ownership.close()
    assert found["committed"]
    assert found["stops"]
    assert len(found["streams"]) == THREADS * STREAMS
