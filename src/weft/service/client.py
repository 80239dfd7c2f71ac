"""A client of a service, for Python (`Client`) and for the command line (`weft query`, `weft apply`).

Guarantees: what the HTTP interface offers are methods with types, and answers are the values of
`weft.service.hub.values`; a field that is not known is passed over, so that a client reads what a newer service says.
What the service refuses is a `ServiceError` with its message, hint and excerpt. A token is sent in a header to the
service alone: redirects are not followed. It needs nothing that Weft does not need.

    client = Client("http://127.0.0.1:8080")
    client.create("SELECT …", name="trolls")
    for page in client.follow("trolls"):
        print(page.rows)
"""

from __future__ import annotations

import http.client
import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeVar
from urllib.parse import quote, urlencode, urlsplit

from weft.errors import ConfigError, WeftError
from weft.logical import codec
from weft.service.hub.values import (
    BatchInfo,
    ColumnInfo,
    DeadLetterInfo,
    FigureInfo,
    GraphInfo,
    Health,
    Overview,
    PlanChangeInfo,
    PlanInfo,
    QueryInfo,
    QueryLineage,
    StreamInfo,
)

__all__ = [
    "Client",
    "Results",
    "ServiceError",
    "decode",
]


Value = TypeVar("Value")


class ServiceError(WeftError):
    """A service refused a request, or cannot be reached; ``status`` is that of its answer, 0 if there was none."""

    stage = "service"

    def __init__(self, message: str, *, status: int = 0, problem: Mapping[str, Any] | None = None) -> None:
        self.status, self.problem = status, dict(problem or {})
        hint = self.problem.get("hint")
        super().__init__(message, hint=None if hint is None else str(hint))

    def excerpt(self) -> list[str]:
        """The culprit's line of a query's text, with carets under it."""
        return [str(line) for line in self.problem.get("excerpt") or ()]


@dataclass(frozen=True, slots=True)
class Results:
    """A page of results, as `ResultsPage` has them; rows are JSON's values."""

    query: str
    origin: str
    restarted: bool
    first: int
    last: int
    newest: int
    missed: int
    columns: tuple[ColumnInfo, ...]
    rows: tuple[dict[str, Any], ...]


class Client:
    """A service at a URL; the token is given, or that of the environment's WEFT_TOKEN."""

    def __init__(
        self, url: str = "http://127.0.0.1:8080", *, token: str | None = None, timeout: float = 30.0
    ) -> None:
        found = urlsplit(url)
        if found.scheme not in ("http", "https") or not found.hostname or found.query or "@" in found.netloc:
            raise ConfigError(f"{url} is not the URL of a service", hint="as in http://127.0.0.1:8080")
        self._secure, self._host, self._port = found.scheme == "https", found.hostname, found.port
        self._prefix, self._timeout = found.path.rstrip("/"), timeout
        given = token if token is not None else os.environ.get("WEFT_TOKEN")
        self._headers = {"Authorization": f"Bearer {given}"} if given else {}

    # The session

    def health(self) -> Health:
        """Whether the session runs, and if not, why."""
        return decode(Health, self._get("health"))

    def overview(self) -> Overview:
        """The session at a moment."""
        return decode(Overview, self._get("overview"))

    def batches(self, after: int = -1, limit: int = 100) -> tuple[BatchInfo, ...]:
        """The last batches, oldest first."""
        return decode(tuple[BatchInfo, ...], self._get("batches", after=after, limit=limit))

    def graph(self) -> GraphInfo:
        """The graph that all queries run by together."""
        return decode(GraphInfo, self._get("graph"))

    def plan_history(self) -> tuple[PlanChangeInfo, ...]:
        """Every change of the plan because the data changed."""
        return decode(tuple[PlanChangeInfo, ...], self._get("plan-history"))

    def statistics(self) -> tuple[FigureInfo, ...]:
        """What is known of every stream and predicate."""
        return decode(tuple[FigureInfo, ...], self._get("statistics"))

    def state(self) -> dict[str, Any]:
        """What the checkpoint holds."""
        return decode(dict[str, Any], self._get("state"))

    def dead_letters(self) -> tuple[DeadLetterInfo, ...]:
        """The batches that had bad records."""
        return decode(tuple[DeadLetterInfo, ...], self._get("dead-letters"))

    def dead_letter(self, batch: int) -> bytes:
        """The bad records of a batch, as lines of JSON."""
        return self._send("GET", f"/api/v1/dead-letters/{batch}")

    def metrics(self) -> str:
        """All metrics, as OpenMetrics writes them."""
        return self._send("GET", "/metrics").decode()

    # Streams

    def streams(self) -> tuple[StreamInfo, ...]:
        """All streams, by name."""
        return decode(tuple[StreamInfo, ...], self._get("streams"))

    def add_stream(self, name: str, source: Mapping[str, Any], **given: Any) -> StreamInfo:
        """Follow one more stream; ``columns``, ``event_time``, ``lateness`` and others of `Session.stream` as given."""
        body = {"name": name, "source": dict(source), **given}
        return decode(StreamInfo, self._call("POST", "streams", body))

    def remove_stream(self, name: str) -> StreamInfo:
        """Follow a stream no longer."""
        return decode(StreamInfo, self._call("DELETE", f"streams/{quote(name, safe='')}"))

    def set_watermark(self, name: str, to: str) -> StreamInfo:
        """Set a watermark that a record with a wrong time has moved, from the next batch on."""
        place = f"streams/{quote(name, safe='')}/watermark"
        return decode(StreamInfo, self._call("PUT", place, {"to": to}))

    # Queries

    def queries(self) -> tuple[QueryInfo, ...]:
        """All queries, oldest first."""
        return decode(tuple[QueryInfo, ...], self._get("queries"))

    def query(self, name: str) -> QueryInfo:
        """A query, and how it gets on."""
        return decode(QueryInfo, self._get(_query(name)))

    def plan(self, sql: str, **given: Any) -> PlanInfo:
        """The plan that a query would get now; ``strategy``, ``cross``, ``order``, ``precision`` as given."""
        return decode(PlanInfo, self._call("POST", "queries/plan", {"sql": sql, **given}))

    def create(self, sql: str, *, name: str | None = None, **given: Any) -> QueryInfo:
        """Run a query; ``sink``, ``strategy``, ``backfill``, ``order`` and others of `Session.query` as given."""
        named = {} if name is None else {"name": name}
        return decode(QueryInfo, self._call("POST", "queries", {"sql": sql, **named, **given}))

    def stop(self, name: str) -> QueryInfo:
        """Run a query no longer, from the next batch on."""
        return decode(QueryInfo, self._call("DELETE", _query(name)))

    def lineage(self, name: str) -> QueryLineage:
        """Where every column of a query's results comes from, and where they go."""
        return decode(QueryLineage, self._get(f"{_query(name)}/lineage"))

    def explain(self, name: str | None = None) -> str:
        """The plan of a query, or of all, as text."""
        path = "explain" if name is None else f"{_query(name)}/explain"
        return self._send("GET", f"/api/v1/{path}").decode()

    def results(self, name: str, after: int = 0, limit: int = 100, *, origin: str | None = None) -> Results:
        """Results of a query after a number."""
        given = {"after": after, "limit": limit, **({"origin": origin} if origin is not None else {})}
        return decode(Results, self._get(f"{_query(name)}/results", **given))

    def follow(
        self, name: str, after: int = -1, *, origin: str | None = None, retry: bool = True
    ) -> Iterator[Results]:
        """Results of a query as they come, until it stops; by default, only those that are new from now on.

        If the connection is lost, it is made again after a second, and goes on where it was, unless ``retry`` is false.
        """
        while True:
            try:
                for event, data in self._events(name, after, origin):
                    if event == "end":
                        return
                    page = decode(Results, data)
                    after, origin = page.last, page.origin
                    yield page
                lost = ServiceError("the service ended the connection")
            except ServiceError as error:
                if error.status:
                    raise
                lost = error
            if not retry:
                raise lost
            time.sleep(1.0)

    def _events(self, name: str, after: int, origin: str | None) -> Iterator[tuple[str, Any]]:
        given = {"after": after, **({"origin": origin} if origin is not None else {})}
        path = f"/api/v1/{_query(name)}/results/live?{urlencode(given)}"
        with closing(self._connect()) as connection:
            answer = self._answer(connection, "GET", path, None)
            event, data = "message", b""
            while line := self._guarded(answer.readline):
                field, _, value = line.rstrip(b"\r\n").partition(b": ")
                if field == b"event":
                    event = value.decode()
                elif field == b"data":
                    data += value
                elif not line.strip() and data:
                    yield event, json.loads(data)
                    event, data = "message", b""

    # The wire

    def _get(self, path: str, **given: Any) -> Any:
        asked = f"?{urlencode(given)}" if given else ""
        return self._call("GET", f"{path}{asked}")

    def _call(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        return json.loads(self._send(method, f"/api/v1/{path}", content))

    def _send(self, method: str, path: str, content: bytes | None = None) -> bytes:
        with closing(self._connect()) as connection:
            answer = self._answer(connection, method, path, content)
            return self._guarded(answer.read)

    def _connect(self) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self._secure else http.client.HTTPConnection
        return kind(self._host, self._port, timeout=self._timeout)

    def _answer(
        self, connection: http.client.HTTPConnection, method: str, path: str, content: bytes | None
    ) -> http.client.HTTPResponse:
        headers = {**self._headers, **({"Content-Type": "application/json"} if content is not None else {})}
        self._guarded(lambda: connection.request(method, f"{self._prefix}{path}", content, headers))
        answer = self._guarded(connection.getresponse)
        if answer.status >= 300:
            raise _refusal(answer.status, self._guarded(answer.read))
        return answer

    def _guarded(self, work: Callable[[], Value]) -> Value:
        """Do something on the wire; what goes wrong there is told as an error of the service."""
        try:
            return work()
        except (OSError, http.client.HTTPException) as error:
            reason = str(error) or type(error).__name__
            raise ServiceError(f"{self._host}:{self._port or ''} cannot be reached: {reason}") from None


def _query(name: str) -> str:
    return f"queries/{quote(name, safe='')}"


def _refusal(status: int, content: bytes) -> ServiceError:
    try:
        problem = json.loads(content)
        return ServiceError(str(problem["detail"]), status=status, problem=problem)
    except (ValueError, KeyError, TypeError):
        return ServiceError(f"the answer has status {status}", status=status)


Made = TypeVar("Made")


def decode(kind: type[Made], value: Any) -> Made:
    """A value of JSON as one of a type.

    >>> from datetime import datetime
    >>> decode(tuple[datetime, ...], ["2024-01-01T00:00:00Z"])[0].year
    2024
    """
    try:
        return codec.decode(kind, value)
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise WeftError(
            f"the answer is not what was expected: {error}", hint="is it of another version?"
        ) from None
