"""The S3 interface of these tests, and a place in it for each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage import s3_server
from weft.storage.objects import _store, host_cache


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    """The URL of an S3 interface with a bucket ``weft``."""
    why = s3_server.why_missing()
    if why is not None:
        pytest.skip(why)
    with s3_server.serving() as url:
        s3_server.make_bucket(url, "weft")
        yield url


@pytest.fixture
def s3(s3_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    """A new place in an object store, with a cache of its own."""
    for name, value in s3_server.environment(s3_url).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    _store.cache_clear()
    host_cache.cache_clear()
    yield f"s3://weft/{uuid.uuid4().hex}"
    _store.cache_clear()
    host_cache.cache_clear()
