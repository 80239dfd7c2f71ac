"""The cache of a host: bounded, shared, and never wrong."""

from __future__ import annotations

import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from dataclasses import astuple, replace
from pathlib import Path

import pyarrow as pa
import pytest

from tests.shares import seeds
from tests.storage.test_sessions import session_at, write
from weft.errors import ConfigError
from weft.logical.codec import encode
from weft.runtime.observe.inspect import inspect
from weft.runtime.observe.log_lines import batch_fields
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.state.open_segments import _BY_STORAGE
from weft.service.terminal.state_view import state_summary
from weft.storage.cache import CacheCounter, CacheCounts, DiskCache, default_cache
from weft.storage.objects import ObjectStorage, host_cache


def test_what_was_opened_is_not_fetched_again(s3: str) -> None:
    """Executors would read all state from the store in every batch."""
    storage = ObjectStorage(s3)
    storage.put("segment", b"x" * 1000)
    assert storage.open_local("segment") == storage.open_local("segment")
    assert (host_cache().counts.hits, host_cache().counts.misses) == (1, 1)
    storage.delete("segment")
    found = storage.open_local("segment")
    assert found is not None
    assert found.size == 1000


def test_it_is_bounded_and_forgets_what_was_used_longest_ago(tmp_path: Path) -> None:
    """The disk of an executor would run full."""
    cache = DiskCache(tmp_path / "c", 10_000)
    for number in range(40):
        cache.keep(f"e{number}", pa.py_buffer(bytes([number]) * 1000))
        for path in (tmp_path / "c").iterdir():
            os.utime(path, ns=(path.stat().st_mtime_ns - 10**9,) * 2)
        assert cache.find("e0") is not None, "what is used stays"
        assert sum(path.stat().st_size for path in (tmp_path / "c").iterdir()) <= 10_000
    assert cache.find("e39") is not None
    assert cache.find("e5") is None


def test_a_mapped_entry_outlives_its_file(tmp_path: Path) -> None:
    """A task would crash when another process makes room."""
    cache = DiskCache(tmp_path / "c", 10_000)
    cache.keep("e", pa.py_buffer(b"y" * 3000))
    found = cache.find("e")
    assert found is not None
    for path in (tmp_path / "c").iterdir():
        path.unlink()
    assert found.to_pybytes() == b"y" * 3000


@pytest.mark.parametrize("damage", ["cut", "changed", "empty"])
def test_a_damaged_file_is_not_used(tmp_path: Path, damage: str) -> None:
    """A power failure of an executor would damage state."""
    cache = DiskCache(tmp_path / "c", 10_000)
    cache.keep("e", pa.py_buffer(b"z" * 3000))
    (path,) = (tmp_path / "c").iterdir()
    data = path.read_bytes()
    path.write_bytes({"cut": data[:-5], "changed": b"a" + data[1:], "empty": b""}[damage])
    assert cache.find("e") is None


def test_a_full_or_forbidden_disk_is_no_error(tmp_path: Path) -> None:
    """A cache would stop a run."""
    (tmp_path / "file").touch()
    cache = DiskCache(tmp_path / "file" / "c", 10_000)
    cache.keep("e", pa.py_buffer(b"1"))
    assert cache.find("e") is None
    assert DiskCache(tmp_path / "none", 0).find("e") is None


def test_a_wrong_limit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A typing error would mean no cache, or one without bounds."""
    monkeypatch.setenv("WEFT_CACHE_BYTES", "4 GB")
    with pytest.raises(ConfigError, match="WEFT_CACHE_BYTES"):
        default_cache()


@pytest.mark.parametrize("seed", seeds(5))
def test_counts_are_taken_once_whoever_asks(seed: int) -> None:
    """Tasks that run in one process at the same time would report a hit twice, or not at all."""
    chance, counter = random.Random(seed), CacheCounter()
    counts = [CacheCounts(*(chance.randrange(5) for _ in range(4))) for _ in range(200)]

    def work(one: CacheCounts) -> CacheCounts:
        counter.add(one)
        return counter.take()

    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(work, counts))
    assert sum(taken, counter.take()) == sum(counts, CacheCounts()) == counter.counts


def test_hits_and_bytes_are_counted(tmp_path: Path) -> None:
    """What does not fit is fetched and not kept; what is looked for in vain is a miss."""
    cache = DiskCache(tmp_path / "c", 10_000)
    assert cache.find("e") is None
    cache.keep("e", pa.py_buffer(b"y" * 3000))
    assert cache.find("e") is not None
    cache.keep("large", pa.py_buffer(b"z" * 9_000))
    assert cache.counts == CacheCounts(1, 1, 12_000, 3_000)
    assert cache.counts.hit_rate == 0.5
    assert not CacheCounts()
    assert CacheCounts().hit_rate == 1.0


def test_a_session_says_how_its_cache_was_used(
    s3: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In its progress, its log and its checkpoint; no lookup is counted twice."""
    chance, sides = random.Random(1), dict[str, list[tuple[int, int]]](a=[], b=[])
    last = -1
    for fresh in (False, False, True):
        write(tmp_path / "in", sides, chance, 4)
        _BY_STORAGE.clear()  # as a new process would
        if fresh:
            host_cache().folder.rename(tmp_path / "gone")
        host_cache.cache_clear()
        session = session_at(f"{s3}/ck", tmp_path / "in", tmp_path / "out")
        with caplog.at_level("INFO", "weft"):
            session.run_available()
        batches = [one for one in session.progress["q"] if one.number > last]
        last = batches[-1].number
        found = sum((one.cache for one in batches), CacheCounts())
        rest = astuple(host_cache().counts - found)  # what the driver looked for after the last batch
        assert min(rest) >= 0
        assert [BatchMetrics.from_dict(json.loads(json.dumps(encode(one)))) for one in batches] == batches
        assert inspect(f"{s3}/ck").cache == batches[-1].cache
        if fresh:
            assert found.misses > 0
            assert found.fetched >= found.kept > 0
    lines = [json.loads(one.getMessage()) for one in caplog.records if one.getMessage().startswith("{")]
    told = [one for one in lines if "cache_misses" in one]
    assert sum(one["cache_fetched_bytes"] for one in told) >= found.fetched
    assert {"cache_hits", "cache_kept_bytes"} <= set(told[-1])
    state = replace(inspect(f"{s3}/ck"), cache=CacheCounts(9, 1, 2048, 0))
    assert (
        state_summary(state)[2]
        == "cache in the last batch: 9 of 10 segments that were opened, 2048 B fetched"
    )


def test_a_session_on_a_disk_opens_no_cache(tmp_path: Path) -> None:
    """It would have a folder for nothing, and lines about it in its log."""
    host_cache.cache_clear()
    sides = dict[str, list[tuple[int, int]]](a=[], b=[])
    write(tmp_path / "in", sides, random.Random(1), 2)
    session = session_at(str(tmp_path / "ck"), tmp_path / "in", tmp_path / "out")
    session.run_available()
    assert all(one.cache == CacheCounts() for one in session.progress["q"])
    assert not any(name.startswith("cache") for name in batch_fields("q", session.progress["q"][-1]))
    assert host_cache.cache_info().currsize == 0
