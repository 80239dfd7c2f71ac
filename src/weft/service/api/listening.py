"""The socket that a service listens on.

Guarantees: a port that is taken, or a host that is not this machine's, is an error that says so. A connection whose
other end takes nothing for a minute is closed by the system, where it can (Linux), so that readers that have gone or
have stopped reading hold no place and no memory; so is one whose other end has vanished without a word. Nor does a
connection hold a place by which no request comes: after some seconds it is closed. The process may open as many files
as the system lets it, so that connections do not use up those that batches need.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress

from weft.errors import ConfigError

__all__ = ["allow_many_files", "listen", "timed_protocol"]

REQUEST_SECONDS = 20.0  # that the head of a request may take, from the connection or its first byte on
STALLED = 60.0  # seconds for which the other end of a connection may take nothing of what it is sent


# A silent connection is tried after a minute, and closed after another without an answer.
_KEEP_ALIVE = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)] + [
    (socket.IPPROTO_TCP, getattr(socket, name), value)
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4))
    if hasattr(socket, name)
]


_NO_REQUEST = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/problem+json\r\nConnection: close\r\n"
    b"X-Content-Type-Options: nosniff\r\nCache-Control: no-store\r\n\r\n"
    b'{"type": "about:blank", "title": "the request cannot be read", "status": 400, "detail": "%s"}'
)


def timed_protocol(seconds: float = REQUEST_SECONDS) -> type[asyncio.Protocol]:
    """A protocol for uvicorn that closes connections whose next request does not come within so many seconds."""
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class TimedProtocol(AutoHTTPProtocol):  # type: ignore[misc, valid-type]
        """What uvicorn has, with a timer that runs while the head of a request is waited for."""

        _timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: asyncio.Transport) -> None:
            super().connection_made(transport)
            self._wait()

        def data_received(self, data: bytes) -> None:
            super().data_received(data)
            if self.cycle is not None and not self.cycle.response_complete:
                self._end_wait()
            else:
                self._wait()

        def handle_websocket_upgrade(self, *event: object) -> None:
            self._end_wait()
            super().handle_websocket_upgrade(*event)

        def connection_lost(self, exc: Exception | None) -> None:
            self._end_wait()
            super().connection_lost(exc)

        def send_400_response(self, msg: str) -> None:
            """Answer what is no request, or one by a method that HTTP does not have."""
            self.transport.write(_NO_REQUEST % (msg.encode("ascii", "replace").replace(b'"', b"'"),))
            self.transport.close()

        def _wait(self) -> None:
            if self._timer is None and not self.transport.is_closing():
                self._timer = self.loop.call_later(seconds, self._give_up)

        def _end_wait(self) -> None:
            if self._timer is not None:
                self._timer.cancel()
                self._timer = None

        def _give_up(self) -> None:
            self._timer = None
            if self.cycle is None or self.cycle.response_complete:
                self.transport.close()

    return TimedProtocol


def listen(host: str, port: int, *, any_port: bool = False, stalled: float = STALLED) -> socket.socket:
    """Listen on a port; if it is taken, on ``any_port`` if that will do."""
    found: socket.socket | None = None
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        for (
            level,
            option,
            value,
        ) in _KEEP_ALIVE:  # connections have all this from the socket that they came by
            found.setsockopt(level, option, value)
        if hasattr(socket, "TCP_USER_TIMEOUT"):
            found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(stalled * 1000))
        found.bind(address)
        found.listen(2048)
    except (OSError, UnicodeError) as error:
        if found is not None:
            found.close()
        if any_port and port:
            return listen(host, 0, stalled=stalled)
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            f"cannot listen on {host}:{port}: {reason}", hint="choose another --host or --port; 0 takes any"
        ) from None
    return found


def allow_many_files() -> None:
    """Let this process, and those that it starts, open as many files and connections as the system allows."""
    with suppress(ImportError, OSError, ValueError):  # not everywhere, and not always by everybody
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
