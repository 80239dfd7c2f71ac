"""The S3 interface of these tests, and a place in it for each."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.storage import s3_server
from tests.storage.s3_front import Front, Trouble, fronting
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


@pytest.fixture
def front(s3_url: str, s3: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Front]:  # noqa: ARG001
    """A front before the object store, through which all requests of this test go; it makes no trouble yet."""
    with fronting(s3_url, 0, Trouble(percent=0)) as found:
        monkeypatch.setenv("AWS_ENDPOINT_URL", found.url)
        _store.cache_clear()
        yield found
