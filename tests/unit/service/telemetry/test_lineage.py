"""OpenLineage's events: what is read and written, column by column, and what becomes of queries."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.unit.service.api.running import JOIN, place, running_hub, served, wait_for
from weft.service.client import Client
from weft.service.hub.hub import SessionHub
from weft.service.hub.values import ColumnSource, NewQuery
from weft.service.telemetry.lineage import AGAIN, LineageEvents, LineageTeller, lineage_teller, teller_of

NESTED = (
    "SELECT f.up AS loud, b.ts FROM (SELECT a.k, upper(a.x) AS up FROM a WHERE a.x <> 'no') AS f, "
    "b [RANGE 1 HOUR] WHERE f.k = b.k"
)


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[SessionHub]:
    """A session that has had a batch."""
    here = place(tmp_path)
    with running_hub(tmp_path) as running:
        here.pair(1)
        wait_for(lambda: running.query("q").results == 1)
        yield running


def sources(found: tuple[ColumnSource, ...]) -> set[tuple[str, str, str]]:
    """The last parts of datasets' names, their columns, and what became of these."""
    return {(Path(one.name).name, one.field, one.how) for one in found}


def test_every_column_is_followed_to_where_it_comes_from(hub: SessionHub, tmp_path: Path) -> None:
    """Through sub-selects and functions; what only decides whether there is a row is told apart."""
    hub.create(NewQuery(NESTED, "nested", {"parquet": "out/nested"}))
    found = hub.lineage("nested")
    assert sources(found.columns["loud"]) == {("a", "x", "TRANSFORMATION")}
    assert sources(found.columns["ts"]) == {("b", "ts", "IDENTITY")}
    assert sources(found.rows) >= {("a", "k", "JOIN"), ("b", "k", "JOIN"), ("a", "x", "FILTER")}
    assert {(one.namespace, one.name) for one in found.inputs} == {
        ("file", str(tmp_path / "in" / "a")),
        ("file", str(tmp_path / "in" / "b")),
    }
    assert (found.output.namespace, Path(found.output.name).name) == ("file", "nested")
    assert hub.lineage("q").output.name == "results of q"


def test_a_client_can_ask_for_it(hub: SessionHub) -> None:
    """The same value as the hub has."""
    with served(hub) as (url, _):
        assert Client(url).lineage("q") == hub.lineage("q")


def test_a_query_begins_goes_on_and_ends(hub: SessionHub) -> None:
    """One run of its own each time, with the columns' lineage in every event."""
    now = [1e9]
    events = LineageEvents(hub, "test", lambda: now[0])
    (start,) = events.look()
    assert (start["eventType"], start["job"]["name"], start["job"]["namespace"]) == ("START", "q", "test")
    assert start["eventTime"] == "2001-09-09T01:46:40+00:00"
    fields = start["outputs"][0]["facets"]["columnLineage"]["fields"]
    (of_x,) = fields["x"]["inputFields"]
    assert of_x["field"] == "x"
    assert of_x["transformations"][0]["type"] == "DIRECT"
    rows = start["outputs"][0]["facets"]["columnLineage"]["dataset"]
    assert {one["transformations"][0]["type"] for one in rows} == {"INDIRECT"}
    assert [one["name"] for one in start["inputs"][0]["facets"]["schema"]["fields"]] == ["k", "x", "ts"]
    for facet in (*start["job"]["facets"].values(), *start["inputs"][0]["facets"].values()):
        assert facet["_schemaURL"].startswith("https://openlineage.io/spec/facets/")
    assert events.look() == []
    now[0] += AGAIN
    (again,) = events.look()
    assert (again["eventType"], again["run"]["runId"]) == ("RUNNING", start["run"]["runId"])
    hub.stop_query("q")
    wait_for(lambda: hub.query("q").status == "stopped")
    (complete,) = events.look()
    assert (complete["eventType"], complete["run"]["runId"]) == ("COMPLETE", start["run"]["runId"])
    assert events.look() == []


def test_a_service_that_stops_says_that_its_queries_are_interrupted(hub: SessionHub, tmp_path: Path) -> None:
    """In the file, one event a line."""
    teller = lineage_teller(hub, "told/lineage.jsonl", tmp_path)
    teller.close()
    lines = (tmp_path / "told" / "lineage.jsonl").read_text().splitlines()
    assert [json.loads(line)["eventType"] for line in lines] == ["START", "ABORT"]


@contextmanager
def catalogue(status: list[int]) -> Iterator[tuple[str, list[Any]]]:
    """A server that takes events, and answers with the status that the list has now."""
    taken = list[Any]()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            taken.append((self.path, self.headers.get("Authorization"), json.loads(body)))
            self.send_response(status[0])
            self.end_headers()

        def log_message(self, *given: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/api/v1/lineage", taken
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def test_events_are_posted_and_a_catalogue_that_fails_harms_nobody(
    hub: SessionHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A warning says so, once; the next events are told when it answers again."""
    monkeypatch.setenv("OPENLINEAGE_API_KEY", "secret")
    status = [500]
    with catalogue(status) as (url, taken):
        teller = LineageTeller(LineageEvents(hub, "test"), teller_of(url, tmp_path), every=0.05)
        wait_for(lambda: len(taken) == 1)
        wait_for(lambda: "lineage cannot be told" in caplog.text)
        status[0] = 201
        hub.create(NewQuery(JOIN, "second"))
        wait_for(lambda: len(taken) == 2)
        teller.close()
    assert [(path, key, event["job"]["name"]) for path, key, event in taken[:2]] == [
        ("/api/v1/lineage", "Bearer secret", "q"),
        ("/api/v1/lineage", "Bearer secret", "second"),
    ]
    assert caplog.text.count("lineage cannot be told") == 1
