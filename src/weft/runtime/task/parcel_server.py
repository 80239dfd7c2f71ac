"""Large parcels between tasks on different hosts, by Arrow Flight: who has a file serves it, who needs it fetches it.

Guarantees: a server gives only files of its own folder, by names that only senders know, and only to those who know the
stage's token. A fetch is a stream of batches as they were written: they are neither split nor joined, and the sender
maps them while it sends, so neither end holds more than what is on its way beside what the receiver keeps. A fetch ends
in bounded time: with the batches, or with a `ConnectionError`. Nothing is encrypted.
"""

from __future__ import annotations

import hmac
import os
import re
import shutil
import tempfile
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import pyarrow as pa

__all__ = ["ParcelFolder", "fetch_parcel", "know_token", "token_of"]

PATIENCE = 60.0  # seconds that a fetch may take
_NAME = re.compile(r"[0-9a-f]{32}")
_tokens: dict[str, str] = {}  # by stage; processes that run several sessions know several


def token_of(key: bytes) -> str:
    """The token of a stage, given the key of its control channel, which the token does not reveal."""
    return hmac.new(key, b"parcels", "sha256").hexdigest()


def know_token(stage: str, token: str) -> None:
    """From now on, fetch parcels of a stage with its token."""
    _tokens[stage] = token


class ParcelFolder:
    """A folder of this host's for the parcels of a task, and the server that gives them to tasks of other hosts.

    ``origin`` is what a message says about where its file is: host, port and stage.
    """

    def __init__(self, host: str, stage: str, token: str) -> None:
        know_token(stage, token)
        self.path = tempfile.mkdtemp(prefix="weft-parcels-")  # for this user alone
        self._server = _server(host, self.path, token)
        self.origin = f"{host}:{self._server.port}/{stage}"

    def clear(self) -> None:
        """Delete all files; whoever has mapped one keeps it."""
        for file in os.scandir(self.path):
            os.unlink(file.path)

    def close(self) -> None:
        """Serve no more, and delete the folder."""
        self._server.shutdown()
        shutil.rmtree(self.path, ignore_errors=True)


def fetch_parcel(origin: str, name: str) -> list[pa.RecordBatch]:
    """The batches of a file that is on another host."""
    from pyarrow import flight

    address, _, stage = origin.partition("/")
    header = (b"authorization", f"Bearer {_tokens.get(stage, '')}".encode())
    options = flight.FlightCallOptions(timeout=PATIENCE, headers=[header])
    try:
        reader = _client(address).do_get(flight.Ticket(name.encode()), options)
        return [chunk.data for chunk in reader]
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        raise ConnectionError(f"a parcel could not be fetched from {address}: {error}") from error


@lru_cache(maxsize=1024)
def _client(address: str) -> Any:
    from pyarrow import flight

    return flight.connect(f"grpc://{address}")


def _server(host: str, folder: str, token: str) -> Any:
    """A server of the files in a folder, on a free port; Flight is loaded only where there is one."""
    from pyarrow import flight

    wanted = f"Bearer {token}"

    class Guard(flight.ServerMiddlewareFactory):  # type: ignore[misc]
        def start_call(self, info: Any, headers: Mapping[str, list[str]]) -> None:  # noqa: ARG002
            given = headers.get("authorization") or [""]
            if not hmac.compare_digest(str(given[0]).encode(), wanted.encode()):
                raise flight.FlightUnauthenticatedError("only tasks of this stage are served")

    class Server(flight.FlightServerBase):  # type: ignore[misc]
        def do_get(self, context: Any, ticket: Any) -> Any:  # noqa: ARG002
            name = ticket.ticket.decode(errors="replace")
            if _NAME.fullmatch(name) is None:
                raise flight.FlightServerError("this is no name of a parcel")
            try:
                file = pa.memory_map(os.path.join(folder, name))
            except FileNotFoundError:
                raise flight.FlightServerError("there is no such parcel any more") from None
            return flight.RecordBatchStream(pa.ipc.open_stream(file))

    return Server(f"grpc://{host}:0", middleware={"guard": Guard()})
