"""What would be lost: a server that is away holds up all queries while one suspended query's sink is tried again."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta

import pyarrow as pa
import pytest

import weft
from weft.connectors import common
from weft.errors import WeftError
from weft.ports.sink import Sink, hurried
from weft.storage import objects

ROWS = pa.table({"id": [1, 2, 3]})
NOBODY = "127.0.0.1:9"  # where nothing listens


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """What is done here takes no longer."""
    begin = time.monotonic()
    yield
    assert time.monotonic() - begin < seconds


def test_kafka_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its client tries for two minutes by itself; the loop tries again anyway, later."""
    pytest.importorskip("confluent_kafka")
    monkeypatch.setattr(common, "_HURRIED_WAIT", 0.3)
    sink = weft.to_kafka(NOBODY, "t")
    sink.open(ROWS.schema, "owner")
    with hurried(), within(5), pytest.raises(WeftError, match="topic t"):
        sink.recover(-1)
    with hurried(), within(5), pytest.raises(WeftError, match="topic t"):
        sink.commit(0, ROWS)


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a server that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


@pytest.mark.parametrize("make", [weft.to_parquet, weft.to_delta])
def test_an_object_store_is_given_up_soon(
    make: type[Sink], silent: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that does not answer is asked again for a minute by itself."""
    pytest.importorskip("obstore")
    pytest.importorskip("deltalake")
    monkeypatch.setenv("AWS_ENDPOINT_URL", silent)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    monkeypatch.setenv("AWS_REGION", "us-east-1")
    short = timedelta(seconds=1)
    monkeypatch.setattr(objects, "_PROBED", short)
    monkeypatch.setattr(objects, "_TRIES", {short: 1, objects._PATIENCE: 10})
    objects._store.cache_clear()
    sink = make("s3://bucket/out")  # type: ignore[call-arg]
    with hurried(), within(10), pytest.raises(WeftError, match="s3://bucket/out"):
        sink.commit(0, ROWS)
    objects._store.cache_clear()
