"""Large parcels between tasks on different hosts, by Arrow Flight: who has a file serves it, who needs it fetches it.

Guarantees: a server gives only files of its own folder, by names that only senders know, and only to those who know the
stage's token. A fetch is a stream of batches as they were written: they are neither split nor joined, and the sender
maps them while it sends, so neither end holds more than what is on its way beside what the receiver keeps. A fetch ends
in bounded time: with the batches, or with a `ConnectionError`. What is sent is encrypted where the stage's credentials
have a certificate, and both ends demand that certificate of the other.
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

from weft.runtime.wire.credentials import NAME, Credentials

__all__ = ["ParcelFolder", "fetch_parcel", "know_stage"]

PATIENCE = 60.0  # seconds that a fetch may take
_NAME = re.compile(r"[0-9a-f]{32}")
_stages: dict[str, Credentials] = {}  # processes that run several sessions know several


def know_stage(credentials: Credentials) -> None:
    """From now on, fetch parcels of a stage with its credentials."""
    _stages[credentials.stage] = credentials


class ParcelFolder:
    """A folder of this host's for the parcels of a task, and the server that gives them to tasks of other hosts.

    ``origin`` is what a message says about where its file is: host, port and stage.
    """

    def __init__(self, host: str, credentials: Credentials) -> None:
        know_stage(credentials)
        self.path = tempfile.mkdtemp(prefix="weft-parcels-")  # for this user alone
        self._server = _server(host, self.path, credentials)
        self.origin = f"{host}:{self._server.port}/{credentials.stage}"

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
    if (known := _stages.get(stage)) is None:
        raise ConnectionError(f"{address} has a parcel of another stage")
    header = (b"authorization", f"Bearer {known.token}".encode())
    options = flight.FlightCallOptions(timeout=PATIENCE, headers=[header])
    try:
        reader = _client(address, known).do_get(flight.Ticket(name.encode()), options)
        return [chunk.data for chunk in reader]
    except (flight.FlightError, pa.ArrowException, OSError) as error:
        raise ConnectionError(f"a parcel could not be fetched from {address}: {error}") from error


@lru_cache(maxsize=1024)
def _client(address: str, credentials: Credentials) -> Any:
    from pyarrow import flight

    if not credentials.encrypts:
        return flight.connect(f"grpc://{address}")
    return flight.connect(
        f"grpc+tls://{address}",
        tls_root_certs=credentials.certificate,
        cert_chain=credentials.certificate,
        private_key=credentials.private_key,
        override_hostname=NAME,
    )


def _server(host: str, folder: str, credentials: Credentials) -> Any:
    """A server of the files in a folder, on a free port; Flight is loaded only where there is one."""
    from pyarrow import flight

    wanted = f"Bearer {credentials.token}"

    class KeyCheck(flight.ServerMiddlewareFactory):  # type: ignore[misc]
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

    guard = {"guard": KeyCheck()}
    if not credentials.encrypts:
        return Server(f"grpc://{host}:0", middleware=guard)
    return Server(
        f"grpc+tls://{host}:0",
        middleware=guard,
        tls_certificates=[(credentials.certificate, credentials.private_key)],
        root_certificates=credentials.certificate,
        verify_client=True,
    )
