"""The control channel between the driver and the tasks that stay (design, D2).

Guarantees: nothing that is received is ever run: a frame is JSON and bytes, never a pickle. Both ends prove that they
know the stage's key before anything else is read, so that no other process can be taken for a task or for the driver.
Where the stage has a certificate, all of this is inside TLS. A frame arrives whole, or a `ConnectionError` is raised.
It consists of:

    length of the head │ head, JSON: {"kind": …, "sizes": [size of each part], …} │ parts
"""

from __future__ import annotations

import contextlib
import hmac
import json
import secrets
import socket
import ssl
import struct
from collections.abc import Sequence
from typing import Any

from weft.runtime.wire.credentials import Credentials
from weft.runtime.wire.messages import Message

__all__ = ["Channel", "bound_silence", "messages_of", "open_channel", "parts_of"]

_LENGTH = struct.Struct("<Q")
_MOST = 1 << 34  # bytes that a part of a frame may have
_HEAD = 1 << 28  # bytes that the head of a frame may have


class Channel:
    """A connection over which frames go both ways."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def send(self, head: dict[str, Any], parts: Sequence[Any] = ()) -> None:
        """Send a frame: plain data, and buffers that travel as they are."""
        views = [memoryview(part).cast("B") for part in parts if memoryview(part).nbytes]
        sizes = [memoryview(part).nbytes for part in parts]
        text = json.dumps({**head, "sizes": sizes}, separators=(",", ":")).encode()
        waiting: list[Any] = [memoryview(_LENGTH.pack(len(text)) + text), *views]
        if isinstance(self.socket, ssl.SSLSocket):  # which cannot send several buffers at once
            for view in waiting:
                self.socket.sendall(view)
            return
        while waiting:
            sent = self.socket.sendmsg(waiting[:256])
            while waiting and sent >= waiting[0].nbytes:
                sent -= waiting.pop(0).nbytes
            if sent:
                waiting[0] = waiting[0][sent:]

    def receive(self) -> tuple[dict[str, Any], list[memoryview]]:
        """Wait for the next frame, and return its head and its parts."""
        (size,) = _LENGTH.unpack(self._exactly(_LENGTH.size))
        if size > _HEAD:
            raise ConnectionError("this is no frame of the control channel")
        head = json.loads(bytes(self._exactly(size)))
        sizes = head.pop("sizes")
        if any(not 0 <= one <= _MOST for one in sizes):
            raise ConnectionError("this is no frame of the control channel")
        whole = self._exactly(sum(sizes))
        parts, start = [], 0
        for one in sizes:
            parts.append(whole[start : start + one])
            start += one
        return head, parts

    def _exactly(self, size: int) -> memoryview:
        data = memoryview(bytearray(size))
        done = 0
        while done < size:
            got = self.socket.recv_into(data[done:])
            if not got:
                raise ConnectionError("the other end of the control channel is gone")
            done += got
        return data

    def close(self) -> None:
        """Close the connection; if the other end waits for a frame, a `ConnectionError` is raised there."""
        with contextlib.suppress(OSError):
            self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()


def bound_silence(connection: socket.socket, seconds: int) -> None:
    """Have the system break a TCP connection whose other end has answered nothing, not even probes, for so long.

    Whoever waits for it then gets an `OSError`. Without it, a cut network or a machine without power is waited for
    without end.
    """
    probing = {"TCP_KEEPIDLE": max(1, seconds // 3), "TCP_KEEPINTVL": max(1, seconds // 6), "TCP_KEEPCNT": 4}
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in {**probing, "TCP_USER_TIMEOUT": 1000 * seconds}.items():
        if hasattr(socket, name):  # not on every system
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def open_channel(connection: socket.socket, credentials: Credentials, *, driver: bool) -> Channel:
    """A channel to an end of the same stage, encrypted if the stage has a certificate.

    If the other end does not have these credentials, an `OSError` is raised and the connection is closed.
    """
    try:
        if credentials.encrypts:
            connection = credentials.tls(server=driver).wrap_socket(connection, server_side=driver)
        _authenticate(connection, credentials.key, driver=driver)
    except BaseException:
        connection.close()
        raise
    return Channel(connection)


def _authenticate(connection: socket.socket, key: bytes, *, driver: bool) -> None:
    """Prove to the other end that this one knows the key, and have it prove the same; else raise `ConnectionError`.

    Each end sends 32 random bytes and answers those it gets with their HMAC under the key and the name of its role.
    """
    mine = secrets.token_bytes(32)
    connection.sendall(mine)
    theirs = _receive(connection, 32)
    roles = (b"driver", b"task") if driver else (b"task", b"driver")
    connection.sendall(_proof(key, roles[0], theirs))
    if not hmac.compare_digest(_receive(connection, 32), _proof(key, roles[1], mine)):
        raise ConnectionError("the other end of the control channel does not know the key")


def _proof(key: bytes, role: bytes, challenge: bytes) -> bytes:
    return hmac.digest(key, role + challenge, "sha256")


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = connection.recv(size - len(data))
        if not more:
            raise ConnectionError("the other end of the control channel is gone")
        data += more
    return data


def parts_of(messages: Sequence[Message]) -> tuple[list[list[Any]], list[Any]]:
    """Messages for a frame: the tasks and targets that its head lists, and the data, which are its parts."""
    return [[one.task, one.target] for one in messages], [one.data for one in messages]


def messages_of(heads: Sequence[Sequence[Any]], parts: Sequence[Any]) -> list[Message]:
    """The messages that `parts_of` took apart."""
    import pyarrow as pa

    found = zip(heads, parts, strict=True)
    return [Message(task, target, pa.py_buffer(data)) for (task, target), data in found]
