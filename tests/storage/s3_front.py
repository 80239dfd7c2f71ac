"""A front before an S3 interface, on loopback, that makes trouble: what networks and stores do to requests.

Guarantees: what happens to the n-th request follows from a seed. Every fault is counted by its kind, so that a test can
assert that there were some. A request that is repeated by its client meets at most `IN_A_ROW` faults one after the
other, so a client that is patient enough always comes through. A request can be watched for, before and after it is
passed on, while its client waits for the answer.
"""

from __future__ import annotations

import http.client
import random
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

__all__ = ["KINDS", "Front", "Trouble", "fronting"]

IN_A_ROW = 2  # faults that one request may meet
KINDS = ("delayed", "refused", "dropped", "unanswered", "repeated", "cut", "in conflict")
_HOP = ("connection", "keep-alive", "transfer-encoding", "content-length", "date", "server")


@dataclass(frozen=True, slots=True)
class Trouble:
    """How many requests of a hundred meet a fault, and the longest delay, in seconds.

    "refused" is an error 500 or 503 (SlowDown) in place of an answer; "dropped" a connection that ends before the
    request was passed on, "unanswered" one that ends after, so that a client repeats what took effect; "repeated" a
    request that is passed on twice, of which the second answer counts; "cut" an answer that ends in its middle;
    "in conflict" the error 409 by which S3 turns down one of two conditional puts at a time.
    """

    percent: float = 12.0
    kinds: tuple[str, ...] = KINDS
    delay: float = 0.2


@dataclass
class Front:
    """What a front does to requests, and what it has done; ``trouble`` may be changed while it runs."""

    server: str  # its address, as in "127.0.0.1:1234"
    seed: int = 0
    trouble: Trouble = field(default_factory=Trouble)
    counts: Counter[str] = field(default_factory=Counter)
    url: str = ""

    def __post_init__(self) -> None:
        self._chance = random.Random(f"front {self.seed}")
        self._guard = threading.Lock()
        self._in_a_row: Counter[tuple[str, str]] = Counter()
        self._watch: tuple[re.Pattern[str], str, Callable[[], None]] | None = None
        self._awaited = 0

    def begin(self, seed: int, trouble: Trouble) -> None:
        """Make this trouble from now on."""
        with self._guard:
            self.seed, self.trouble, self._chance = seed, trouble, random.Random(f"front {seed}")

    def watch(self, pattern: str, when: str, act: Callable[[], None], nth: int = 1) -> None:
        """Call a function, "before" or "after" the n-th request from now on that is like a pattern is passed on.

        A request is written as in "PUT /weft/ck/plan/1.json".
        """
        with self._guard:
            self._watch, self._awaited = (re.compile(pattern), when, act), nth

    def seen(self, request: str, when: str) -> None:
        """Do what is watched for."""
        with self._guard:
            if self._watch is None or self._watch[1] != when or not self._watch[0].search(request):
                return
            self._awaited -= 1
            if self._awaited:
                return
            act, self._watch = self._watch[2], None
        act()

    def watch_no_more(self) -> None:
        """Let what is watched for pass, if it comes."""
        with self._guard:
            self._watch = None

    def fault(self, method: str, path: str, conditional: bool) -> tuple[str, float]:
        """What happens to a request, if anything, and a number from 0 to 1 for how."""
        with self._guard:
            happens = self._chance.random() * 100 < self.trouble.percent
            kind, how = self._chance.choice(self.trouble.kinds), self._chance.random()
            one = (method, path)
            if kind == "in conflict" and not conditional:
                kind = "refused"
            if not happens or (kind != "delayed" and self._in_a_row[one] >= IN_A_ROW):
                self._in_a_row.pop(one, None)
                return "", how
            if kind not in ("delayed", "repeated"):
                self._in_a_row[one] += 1
            self.counts[kind] += 1
            return kind, how


def _handler(front: Front) -> type[BaseHTTPRequestHandler]:
    """A class of handlers, as the library wants it: one of them for each connection."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def setup(self) -> None:
            super().setup()
            self.upstream = http.client.HTTPConnection(front.server, timeout=60)

        def finish(self) -> None:
            with suppress(OSError):
                super().finish()
            self.upstream.close()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

        def serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kind, how = front.fault(self.command, self.path, "If-None-Match" in self.headers)
            request = f"{self.command} {unquote(self.path)}"
            if kind == "dropped":
                self.drop(how)
                return
            if kind == "refused":
                code, error = ((500, "InternalError"), (503, "SlowDown"), (503, "ServiceUnavailable"))[
                    int(how * 3)
                ]
                self.refuse(code, error)
                return
            if kind == "in conflict":
                self.refuse(409, "ConditionalRequestConflict")
                return
            if kind == "delayed":
                time.sleep(how * front.trouble.delay)
            front.seen(request, "before")
            status, headers, answer = self.pass_on(body)
            if kind == "repeated":
                status, headers, answer = self.pass_on(body)
            front.seen(request, "after")
            if kind == "unanswered":
                self.drop(how)
            else:
                self.answer(status, headers, answer, whole=kind != "cut")

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = serve  # noqa: N815

        def pass_on(self, body: bytes) -> tuple[int, list[tuple[str, str]], bytes]:
            headers = {name: value for name, value in self.headers.items() if name.lower() not in _HOP}
            try:
                self.upstream.request(self.command, self.path, body, headers)
                found = self.upstream.getresponse()
            except (http.client.HTTPException, OSError):  # the server has closed a connection that was idle
                self.upstream.close()
                self.upstream.request(self.command, self.path, body, headers)
                found = self.upstream.getresponse()
            return found.status, found.getheaders(), found.read()

        def answer(self, status: int, headers: list[tuple[str, str]], body: bytes, *, whole: bool) -> None:
            length = str(len(body))
            with suppress(OSError):  # the client has gone, as one that was killed
                self.send_response_only(status)
                for name, value in headers:
                    if name.lower() not in _HOP:
                        self.send_header(name, value)
                    elif name.lower() == "content-length" and self.command == "HEAD":
                        length = value
                self.send_header("Content-Length", length)
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body if whole else body[: len(body) // 2])
                self.wfile.flush()
            if not whole:
                self.drop(0.0)

        def refuse(self, status: int, error: str) -> None:
            text = f"<?xml version='1.0'?><Error><Code>{error}</Code><Message>try again</Message></Error>"
            self.answer(status, [("Content-Type", "application/xml")], text.encode(), whole=True)

        def drop(self, how: float) -> None:
            """End the connection, in order or, in half of all cases, by a reset."""
            self.close_connection = True
            with suppress(OSError):
                if how > 0.5:
                    self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    self.connection.close()
                else:
                    self.connection.shutdown(socket.SHUT_RDWR)

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def handle_error(self, *_: object) -> None:
        """Say nothing: clients come and go as they are killed."""


@contextmanager
def fronting(url: str, seed: int, trouble: Trouble | None = None) -> Iterator[Front]:
    """A front before the S3 interface at a URL, which ends with this block."""
    front = Front(urlsplit(url).netloc, seed, trouble or Trouble())
    server = _Server(("127.0.0.1", 0), _handler(front))
    front.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield front
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
