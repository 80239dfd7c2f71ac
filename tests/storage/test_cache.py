"""The cache of a host: bounded, shared, and never wrong."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from weft.errors import ConfigError
from weft.storage.cache import DiskCache, default_cache
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
