"""Every operation over a real session: what it says, and what it says of mistakes."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.unit.service.api.running import JOIN, Place, wait_for
from weft.service.api.app import make_service
from weft.service.api.guard import GuardSettings
from weft.service.hub.hub import SessionHub

LOCAL = "http://127.0.0.1:8080"


@pytest.fixture
def api(hub: SessionHub) -> TestClient:
    """Requests to the service, in this process."""
    service = make_service(hub, GuardSettings(rate=1e6, burst=10**6))
    return TestClient(service.guarded, base_url=f"{LOCAL}/api/v1", raise_server_exceptions=False)


def get(api: TestClient, path: str, status: int = 200) -> Any:
    found = api.get(path)
    assert found.status_code == status, found.text
    return found.json()


def test_health_and_overview(api: TestClient) -> None:
    """What runs, at a glance."""
    assert get(api, "/health/live") == {"status": "live"}
    assert get(api, "/health/ready") == {"status": "ready"}
    assert get(api, "/health")["state"] == "running"
    found = get(api, "/overview")
    assert found["health"]["ready"]
    assert found["results"] >= 2
    assert found["rows"] >= 4
    assert {one["name"] for one in found["streams"]} >= {"a", "b"}
    assert {one["name"] for one in found["stores"]} == {"a", "b"}
    assert set(found["latency"]) == {"p50", "p95", "p99", "max"}


def test_streams(api: TestClient, hub: SessionHub) -> None:
    """What each is, who reads it and what it brought."""
    wait_for(lambda: hub.stream("a").rows >= 2)
    found = get(api, "/streams/a")
    assert found["columns"][0] == {"name": "k", "type": "long"}
    assert (found["event_time"], found["source"], found["declared"]) == ("ts", "csv files in a", "file")
    assert "q" in found["readers"]
    assert found["watermark"] == found["newest"] == "2024-01-01T00:00:00Z"
    assert (found["watermark_delay"], found["delay_of"]) == (0.0, "data")  # the clock says nothing of 2024
    assert get(api, "/streams/c", 404)["hint"] == "there are: a, b"


def test_a_watermark_is_set(api: TestClient, hub: SessionHub) -> None:
    """That of a stream which has one, to a time; mistakes are named."""
    wait_for(lambda: hub.stream("a").rows >= 2)
    same = {"to": "2024-01-01T00:00:00Z"}
    made = api.put("/streams/a/watermark", json=same)
    assert made.status_code == 202, made.text
    assert made.json()["name"] == "a"
    assert made.json()["ahead"] == 86400
    wrong = api.put("/streams/a/watermark", json={"to": "soon"})
    assert "to cannot be 'soon'" in wrong.text
    assert 400 <= wrong.status_code < 500
    assert api.put("/streams/c/watermark", json=same).status_code == 404
    assert api.put("/streams/a/watermark", json={"to": "2999-01-01"}).status_code in (400, 409, 422)


def test_queries_and_their_results(api: TestClient) -> None:
    """Page by page, with all types as JSON has them."""
    found = get(api, "/queries/q")
    assert (found["status"], found["sink"], found["readable"]) == ("running", "recent", True)
    assert found["columns"] == [{"name": "k", "type": "long"}, {"name": "x", "type": "string"}]
    first = get(api, "/queries/q/results?limit=1")
    second = get(api, f"/queries/q/results?after={first['last']}&origin={first['origin']}&limit=1")
    rows = sorted((row["k"], row["x"]) for row in first["rows"] + second["rows"])
    assert rows == [(1, "one"), (2, 'tw"o')]
    assert (first["first"], second["first"], first["missed"]) == (1, 2, 0)
    anew = get(api, "/queries/q/results?after=7&origin=another")
    assert (anew["restarted"], anew["first"]) == (True, 1)
    assert get(api, "/queries/q/results?after=-1")["rows"] == []
    assert get(api, "/queries/none", 404)["detail"] == "there is no query 'none'"


def test_plans(api: TestClient) -> None:
    """As text and as data, of one query and of all."""
    assert api.get("/queries/q/explain").text.startswith("Plan of q")
    assert "Plan of q" in api.get("/explain").text
    assert get(api, "/queries/q/graph")["is"] == "PhysicalGraph"
    graph = get(api, "/graph")
    ids = {node["id"] for node in graph["nodes"]}
    assert {"store:a", "store:b", "result:q"} <= ids
    assert all(edge["source"] in ids and edge["target"] in ids for edge in graph["edges"])
    assert any(edge["matches"] for edge in graph["edges"]) or graph["batch"] is not None
    assert get(api, "/plan-history") == []
    assert any(row["what"] == "rate" for row in get(api, "/statistics"))
    assert get(api, "/batches?limit=1")[0]["seconds"] > 0
    assert get(api, "/state")["directory"] == "ck"


def test_a_plan_without_running(api: TestClient) -> None:
    """It says what would be shared, and changes nothing."""
    before = get(api, "/queries")
    body = {"sql": JOIN}
    found = api.post("/queries/plan", json=body).json()
    assert sorted(found["shares"]) == ["a", "b"]
    assert found["adds"] == []
    assert found["explain"].startswith("Plan of query")
    assert found["graph"]["is"] == "PhysicalGraph"
    assert [one["name"] for one in get(api, "/queries")] == [one["name"] for one in before]


def test_errors_of_sql_have_caret_and_hint_as_fields(api: TestClient) -> None:
    """For editors that show them in place."""
    sql = "SELECT a.k FROM a,\n  b WHERE a.k = b.kk"
    for path in ("/queries/plan", "/queries"):
        found = api.post(path, json={"sql": sql})
        assert found.status_code == 422
        assert found.headers["content-type"] == "application/problem+json"
        problem = found.json()
        assert (problem["stage"], problem["type"]) == ("SQL", "urn:weft:sqlerror")
        assert problem["hint"].startswith("did you mean k?")
        assert sql[problem["start"] : problem["end"]] == "kk"
        assert (problem["line"], problem["excerpt"][1].strip()) == (2, "^^")


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"{", 400),
        (b"", 422),
        (b"[]", 422),
        (b"\xff\xfe", 400),
        (b'{"sql": 3}', 422),
        (b'{"sql": "SELECT", "code": "import os"}', 422),
        (b'{"sql": ""}', 422),
        (b'{"sql": "\\u0000"}', 422),
        (b'{"sql": "\\ud800"}', 422),
        (b'{"sql": "SELECT a.k FROM a", "name": "a/b"}', 422),
        (b'{"sql": "SELECT a.k FROM a", "name": "a\\u0000"}', 422),
        (b'{"sql": "SELECT a.k FROM a", "name": ""}', 422),
        (b'{"sql": "SELECT a.k FROM a", "strategy": "best"}', 422),
        (b'{"sql": "SELECT a.k FROM a", "emit_unmatched_after": "soon"}', 422),
        (b'{"sql": "SELECT a.k FROM a", "order": "none", "precision": 0}', 422),
        (b'{"sql": "SELECT a.k FROM a", "sink": {"parquet": "/etc/x"}}', 403),
        (b'{"sql": "SELECT a.k FROM a", "sink": "console"}', 403),
        (b'{"sql": "SELECT a.k FROM a", "sink": {"python": "os:system"}}', 403),
        (b'{"sql": "SELECT system(a.x) FROM a"}', 422),
        (b'{"sql": "DROP TABLE a"}', 422),
        (b'{"sql": "SELECT a.k FROM parquet.`/etc/passwd` AS a"}', 422),
        (b"[" * 100_000, 400),
        (json.dumps({"sql": "SELECT a.k FROM a WHERE " + "(" * 5000}).encode(), 422),
        (json.dumps({"sql": "x" * 300_000}).encode(), 413),
    ],
)
def test_what_is_no_query(api: TestClient, body: bytes, status: int) -> None:
    """Whatever is sent, the answer is a problem document, and nothing has begun."""
    before = [one["name"] for one in get(api, "/queries")]
    found = api.post("/queries", content=body, headers={"Content-Type": "application/json"})
    assert found.status_code == status, found.text
    assert found.headers["content-type"] == "application/problem+json"
    assert {"type", "title", "status", "detail"} <= set(found.json())
    assert [one["name"] for one in get(api, "/queries")] == before


def test_a_query_comes_and_goes(api: TestClient, here: Place) -> None:
    """It sees what is stored; stopped, it stays so, and another may have its name."""
    made = api.post("/queries", json={"sql": JOIN, "name": "näh 名", "backfill": True})
    assert made.status_code == 201, made.text
    path = "/queries/n%C3%A4h%20%E5%90%8D"
    wait_for(lambda: get(api, f"{path}/results")["newest"] >= 2)
    assert get(api, path)["declared"] == "api"
    again = api.post("/queries", json={"sql": JOIN, "name": "näh 名"})
    assert (again.status_code, again.json()["detail"]) == (409, "there is already a query 'näh 名'")
    assert api.delete(path).status_code == 202
    wait_for(lambda: get(api, path)["status"] == "stopped")
    assert api.delete(path).status_code == 202
    assert get(api, path)["status"] == "stopped"
    assert get(api, f"{path}/results")["newest"] >= 2  # they can still be read
    other = api.post("/queries", json={"sql": "SELECT a.x FROM a [RANGE 1 HOUR]", "name": "näh 名"})
    assert other.status_code == 201, other.text
    here.pair(3, "three")
    wait_for(lambda: {"x": "three"} in get(api, f"{path}/results")["rows"])
    api.delete(path)


def test_a_name_that_many_want_at_once(api: TestClient, hub: SessionHub) -> None:
    """One gets it, the others are told."""
    answers = list[int]()

    def create() -> None:
        answers.append(api.post("/queries", json={"sql": JOIN, "name": "race"}).status_code)

    threads = [threading.Thread(target=create) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == [201, *[409] * 7]
    hub.stop_query("race")


def test_streams_come_and_go(api: TestClient, here: Place) -> None:
    """If the operator allows their source, and nobody reads them any more."""
    body = {"name": "more", "source": {"files": "csv", "path": "in/more"}, "columns": "k long, ts timestamp"}
    body["event_time"] = "ts"
    refused = api.post("/streams", json={**body, "source": {"files": "csv", "path": "in/../ck"}})
    assert (refused.status_code, refused.json()["title"]) == (403, "not allowed")
    wrong = api.post("/streams", json={**body, "lateness": "soon"})
    assert (wrong.status_code, "soon" in wrong.text) == (422, True)
    made = api.post("/streams", json=body)
    assert made.status_code == 201, made.text
    assert (made.json()["declared"], made.json()["source"]) == ("api", "csv files in more")
    assert api.post("/streams", json=body).status_code == 409
    sql = "SELECT a.k FROM a [RANGE 1 HOUR], more [RANGE 1 HOUR] AS m WHERE a.k = m.k"
    assert api.post("/queries", json={"sql": sql, "name": "wide"}).status_code == 201
    here.put("more", "1,2024-01-01T00:00:00Z")
    wait_for(lambda: get(api, "/queries/wide/results")["newest"] >= 1)
    held = api.delete("/streams/more")
    assert (held.status_code, held.json()["hint"]) == (409, "stop query wide first")
    api.delete("/queries/wide")
    wait_for(lambda: get(api, "/queries/wide")["status"] == "stopped")
    assert api.delete("/streams/more").status_code == 202
    assert get(api, "/streams/more", 404)
    wait_for(lambda: "which was removed" in api.post("/streams", json=body).text)  # its name stays taken
    assert api.delete("/streams/a").json()["detail"] == "stream a is declared in the operator's file"


def test_dead_letters(api: TestClient, here: Place) -> None:
    """Listed by batch, and given as they are."""
    here.put("a", "nonsense,x,yesterday")
    wait_for(lambda: bool(get(api, "/dead-letters")))
    found = get(api, "/dead-letters")[0]
    assert found["records"] == 1
    lines = api.get(f"/dead-letters/{found['batch']}")
    assert lines.headers["content-type"].startswith("application/x-ndjson")
    assert "nonsense" in lines.text
    assert get(api, "/dead-letters/999999", 404)["status"] == 404
    for wrong in ("../../ck/weft.json", "..%2f..%2fweft.json", "-1", "x", "1.5", "9" * 30):
        assert api.get(f"/dead-letters/{wrong}").status_code in (404, 422), wrong


def test_what_is_not_there_or_not_by_this_method(api: TestClient) -> None:
    """A problem document, also beside a page that is mounted at the root."""
    assert get(api, "/nothing", 404)["title"] == "not found"
    found = api.put("/queries", json={})
    assert (found.status_code, found.headers["allow"]) == (405, "GET, POST")
    assert api.get("/openapi.json").json()["info"]["title"] == "Weft"
    assert api.get("/../../docs").status_code == 404


def test_an_error_of_the_service_tells_nothing_internal(
    api: TestClient, hub: SessionHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    """But a number under which the log has it."""

    def fail() -> None:
        raise RuntimeError("the password is tiger")

    monkeypatch.setattr(hub, "plan_history", fail)
    found = api.get("/plan-history")
    assert found.status_code == 500
    assert found.headers["content-type"] == "application/problem+json"
    assert "tiger" not in found.text
