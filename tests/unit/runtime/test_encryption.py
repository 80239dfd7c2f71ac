"""What resident tasks on several machines send each other is encrypted, if the stage has a certificate."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from weft.runtime.wire.channel import Channel, open_channel
from weft.runtime.wire.credentials import Credentials
from weft.runtime.wire.exchange import SMALL, Exchange
from weft.runtime.wire.parcel_server import ParcelFolder, fetch_parcel, know_stage

pytest.importorskip("cryptography", reason='needs "weft[tls]"')

SECRET = b"the secret of the stream "
LOOPBACK = "127.0.0.1"
KINDS = ("plain", "encrypted")


@pytest.fixture(scope="module")
def stage() -> Credentials:
    return Credentials.create(encrypted=True)


class Wire:
    """A way to a port of this machine that keeps a copy of all that passes, in both directions."""

    def __init__(self, port: int) -> None:
        self._port, self.seen = port, bytearray()
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = int(self._listener.getsockname()[1])
        self._run(self._accept)

    def _run(self, target: Callable[..., None], *arguments: Any) -> None:
        threading.Thread(target=target, args=arguments, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                one, _ = self._listener.accept()
                other = socket.create_connection((LOOPBACK, self._port))
                self._run(self._carry, one, other)
                self._run(self._carry, other, one)

    def _carry(self, one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(1 << 16):
                self.seen += data
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self._listener.close()


class Driver(threading.Thread):
    """Takes one connection, and answers the first frame with the same."""

    def __init__(self, credentials: Credentials) -> None:
        super().__init__(daemon=True)
        self.credentials, self.error = credentials, ""
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = int(self._listener.getsockname()[1])
        self.start()

    def run(self) -> None:
        connection, _ = self._listener.accept()
        connection.settimeout(60)
        try:
            with closing(open_channel(connection, self.credentials, driver=True)) as channel:
                channel.send(*channel.receive())
        except OSError as error:
            self.error = str(error) or type(error).__name__

    def end(self) -> str:
        self.join(60)
        self._listener.close()
        return self.error


@contextmanager
def task(port: int, credentials: Credentials) -> Iterator[Channel]:
    """The channel of a task."""
    connection = socket.create_connection((LOOPBACK, port), timeout=60)
    with closing(open_channel(connection, credentials, driver=False)) as channel:
        yield channel


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_channel_carries_is_seen_by_its_ends_alone(kind: str) -> None:
    """Whoever listens in the network would read what is joined."""
    credentials = Credentials.create(encrypted=kind == "encrypted")
    driver = Driver(credentials)
    parts = [SECRET * 200_000, b"", memoryview(SECRET)]
    with closing(Wire(driver.port)) as wire:
        with task(wire.port, credentials) as channel:
            channel.send({"kind": "read"}, parts)
            head, found = channel.receive()
        assert not driver.end()
    assert head == {"kind": "read"}
    assert [bytes(part) for part in found] == [bytes(part) for part in parts]
    assert len(wire.seen) > 2 * len(parts[0])
    assert (SECRET in wire.seen) == (kind == "plain")


def exchange(port: int, credentials: Credentials) -> None:
    """Send a frame, and get it back."""
    with task(port, credentials) as channel:
        channel.send({"kind": "hello"})
        channel.receive()


def strangers(stage: Credentials) -> dict[str, Credentials]:
    """Ends that are none of the stage's, though all of them know its key."""
    other = Credentials.create(encrypted=True)
    return {
        "no certificate": Credentials(stage.key),
        "another certificate": replace(other, key=stage.key),
    }


@pytest.mark.parametrize("who", ["no certificate", "another certificate"])
@pytest.mark.parametrize("side", ["task", "driver"])
def test_only_who_has_the_certificate_is_an_end_of_a_channel(stage: Credentials, side: str, who: str) -> None:
    """Somebody between a task and its driver could read all and change it."""
    stranger = strangers(stage)[who]
    driver = Driver(stranger if side == "driver" else stage)
    with pytest.raises(OSError):  # noqa: PT011  # TLS says why in many ways
        exchange(driver.port, stranger if side == "task" else stage)
    assert driver.end()


def test_a_certificate_alone_does_not_open_a_channel(stage: Credentials) -> None:
    driver = Driver(stage)
    with (
        pytest.raises(ConnectionError, match="does not know the key"),
        task(driver.port, replace(stage, key=b"o" * 32)),
    ):
        pass
    assert "does not know the key" in driver.end() or driver.error


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_parcel_holds_is_seen_by_its_receiver_alone(kind: str) -> None:
    """Large parcels take a way of their own."""
    credentials = Credentials.create(encrypted=kind == "encrypted")
    with closing(ParcelFolder(LOOPBACK, credentials)) as folder:
        address, _, name = folder.origin.partition("/")
        sent = pa.record_batch({"text": [SECRET.decode()] * SMALL})
        parcel = os.path.basename(path_of(folder, sent))
        with closing(Wire(int(address.rpartition(":")[2]))) as wire:
            assert fetch_parcel(f"{LOOPBACK}:{wire.port}/{name}", parcel) == [sent]
    assert len(wire.seen) > len(SECRET) * SMALL
    assert (SECRET in wire.seen) == (kind == "plain")


def path_of(folder: ParcelFolder, batch: pa.RecordBatch) -> str:
    """Where a batch is kept for those who fetch it."""
    packed = Exchange(folder.path, origin=folder.origin).pack(batch)
    return str(packed.data.to_pybytes().decode().partition("\n")[0])


@pytest.mark.parametrize("who", ["no certificate", "another certificate"])
def test_only_who_has_the_certificate_fetches_a_parcel(stage: Credentials, who: str) -> None:
    """The token alone must not do: whoever is asked for a parcel has seen it."""
    with closing(ParcelFolder(LOOPBACK, stage)) as folder:
        parcel = os.path.basename(path_of(folder, pa.record_batch({"n": list(range(SMALL))})))
        try:
            know_stage(strangers(stage)[who])  # of the same name, since that follows from the key
            with pytest.raises(ConnectionError, match="could not be fetched"):
                fetch_parcel(folder.origin, parcel)
        finally:
            know_stage(stage)
        assert fetch_parcel(folder.origin, parcel)


def test_a_private_key_is_shown_nowhere(stage: Credentials) -> None:
    """Setups and their errors are logged."""
    assert "PRIVATE" not in repr(stage)
    assert repr(stage.key) not in repr(stage)
    assert b"PRIVATE" in stage.private_key
