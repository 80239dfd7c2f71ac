"""The socket that a service listens on.

Guarantees: a port that is taken, or a host that is not this machine's, is an error that says so. A connection whose
other end takes nothing for a minute is closed by the system, where it can (Linux), so that readers that have gone or
have stopped reading hold no place and no memory. The process may open as many files as the system lets it, so that
connections do not use up those that batches need.
"""

from __future__ import annotations

import socket
from contextlib import suppress

from weft.errors import ConfigError

__all__ = ["allow_many_files", "listen"]

STALLED = 60.0  # seconds for which the other end of a connection may take nothing of what it is sent


def listen(host: str, port: int, *, any_port: bool = False, stalled: float = STALLED) -> socket.socket:
    """Listen on a port; if it is taken, on ``any_port`` if that will do."""
    found: socket.socket | None = None
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if hasattr(socket, "TCP_USER_TIMEOUT"):  # connections have it from the socket that they came by
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
