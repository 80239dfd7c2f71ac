"""Parcels between hosts: they arrive as they were written, and only those who know the token get them."""

from __future__ import annotations

import os
import socket
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shares import examples
from weft.runtime.output.spill import Spill
from weft.runtime.wire import parcel_server
from weft.runtime.wire.channel import bound_silence
from weft.runtime.wire.credentials import Credentials
from weft.runtime.wire.exchange import SMALL, Exchange, PackedBatches
from weft.runtime.wire.parcel_server import ParcelFolder, fetch_parcel, know_stage

STAGE = Credentials(b"k" * 32)


@pytest.fixture(scope="module")
def folder() -> Iterator[ParcelFolder]:
    found = ParcelFolder("127.0.0.1", STAGE)
    yield found
    found.close()
    assert not os.path.exists(found.path)


def elsewhere(packed: PackedBatches, folder: ParcelFolder) -> PackedBatches:
    """The same file as a task of another host knows it: its path is not there."""
    path, _, origin = packed.data.to_pybytes().decode().partition("\n")
    assert origin == folder.origin
    return PackedBatches.in_file(f"/elsewhere/{os.path.basename(path)}", origin)


def batches(sizes: list[int]) -> list[pa.RecordBatch]:
    """Batches of so many rows, of numbers and texts, some of them missing."""
    return [
        pa.record_batch(
            {
                "n": pa.array(range(size), pa.int64()),
                "s": pa.array([None if row % 3 else "x" * row for row in range(size)], pa.string()),
            }
        )
        for size in sizes
    ]


@examples(15)
@given(sizes=st.lists(st.integers(0, 300), min_size=1, max_size=6))
def test_batches_arrive_as_they_were_written(folder: ParcelFolder, sizes: list[int]) -> None:
    """Sorted runs that were joined or split would no longer be merged in order."""
    spill = Spill(Exchange(folder.path, origin=folder.origin), -1)
    sent = batches(sizes)
    for batch in sent:
        spill.write(batch)
    (packed,) = spill.close()
    assert elsewhere(packed, folder).batches() == sent
    assert packed.batches() == sent  # here, where the file is mapped


def test_large_parcels_are_fetched_and_small_ones_travel_along(folder: ParcelFolder) -> None:
    exchange = Exchange(folder.path, origin=folder.origin)
    large = pa.record_batch({"n": pa.array(range(SMALL))})
    assert elsewhere(exchange.pack(large), folder).batches() == [large]
    assert exchange.pack(large.slice(0, 10)).how == "bytes"


def test_only_who_knows_the_token_gets_a_parcel(folder: ParcelFolder) -> None:
    """Anybody on the network could read what is joined."""
    packed = Exchange(folder.path, origin=folder.origin).pack(pa.record_batch({"n": pa.array(range(SMALL))}))
    name = os.path.basename(packed.data.to_pybytes().decode().partition("\n")[0])
    address = folder.origin.partition("/")[0]
    other = Credentials(b"o" * 32)
    with pytest.raises(ConnectionError, match="of another stage"):
        fetch_parcel(f"{address}/{other.stage}", name)
    know_stage(other)
    with pytest.raises(ConnectionError, match="only tasks of this stage are served"):
        fetch_parcel(f"{address}/{other.stage}", name)
    assert fetch_parcel(folder.origin, name)


@pytest.mark.parametrize("name", ["../secret", "", "0" * 31, "0" * 33, "0" * 31 + "/", "/etc/hostname"])
def test_only_parcels_are_given(folder: ParcelFolder, name: str) -> None:
    with pytest.raises(ConnectionError, match="this is no name of a parcel"):
        fetch_parcel(folder.origin, name)


def test_a_parcel_that_is_gone_is_an_error(folder: ParcelFolder) -> None:
    with pytest.raises(ConnectionError, match="there is no such parcel any more"):
        fetch_parcel(folder.origin, uuid.uuid4().hex)


def test_a_silent_sender_is_not_waited_for_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A task would wait for a host that has lost its power."""
    monkeypatch.setattr(parcel_server, "PATIENCE", 0.5)
    know_stage(STAGE)
    silent = socket.create_server(("127.0.0.1", 0))  # it takes connections, and says nothing
    with silent, pytest.raises(ConnectionError, match="could not be fetched"):
        fetch_parcel(f"127.0.0.1:{silent.getsockname()[1]}/{STAGE.stage}", uuid.uuid4().hex)


def test_silence_is_bounded() -> None:
    server = socket.create_server(("127.0.0.1", 0))
    with server, socket.create_connection(server.getsockname()) as connection:
        bound_silence(connection, 9)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 9_000
