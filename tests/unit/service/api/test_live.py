"""Results as they come, over a real connection; and the client, which reads them."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from typer.testing import CliRunner

from tests.unit.service.api.running import JOIN, PIPELINE, Place, place, running_hub, served, wait_for
from weft.errors import ConfigError
from weft.service.api.guard import GuardSettings
from weft.service.api.tokens import read_tokens
from weft.service.cli import app
from weft.service.client import Client, Results, ServiceError
from weft.service.hub.hub import SessionHub
from weft.service.hub.values import NewQuery

TOKEN, READ = "a-token-of-many-letters", "a-reading-token-of-letters"


def test_the_client_says_what_the_hub_says(hub: SessionHub, url: str) -> None:
    """Value for value."""
    client = Client(url)
    assert client.health() == hub.health()
    assert replace(client.query("q"), results_per_second=0) == replace(hub.query("q"), results_per_second=0)
    assert [one.name for one in client.streams()] == ["a", "b"]
    assert client.graph().nodes == hub.graph().nodes
    assert client.batches(limit=1) == hub.batches(limit=1)
    assert {one.of for one in client.statistics()} == {one.of for one in hub.statistics()}
    assert [one.name for one in client.overview().queries] == [one.name for one in client.queries()]
    assert client.explain("q") == hub.explain("q")
    assert client.explain().startswith("Plan of q")
    assert client.plan(JOIN).shares == hub.plan(NewQuery(JOIN)).shares
    assert client.state()["directory"] == "ck"
    assert client.plan_history() == hub.plan_history()
    assert client.dead_letters() == hub.dead_letters()
    assert client.metrics().endswith("# EOF\n")
    page = client.results("q", limit=1)
    assert (page.last, len(page.rows)) == (1, 1)


def test_errors_are_the_services_own(url: str) -> None:
    """With the caret and the hint, as if the session had been asked."""
    client = Client(url)
    with pytest.raises(ServiceError) as caught:
        client.plan("SELECT a.kk FROM a")
    assert caught.value.status == 422
    assert str(caught.value).splitlines() == [
        "service: a has no column kk",
        "1 | SELECT a.kk FROM a",
        "             ^^",
        "hint: did you mean k? There are: k, ts, x",
    ]
    with pytest.raises(ServiceError, match="there is no query"):
        client.stop("none")
    with pytest.raises(ServiceError, match="cannot be reached"):
        Client("http://127.0.0.1:1").health()
    for wrong in ("ftp://x", "127.0.0.1:8080", "http://user:secret@x", "http://"):
        with pytest.raises(ConfigError, match="not the URL"):
            Client(wrong)


def test_results_as_they_come(hub: SessionHub, url: str, here: Place) -> None:
    """Each once; who comes back goes on where it was; when the query stops, so does the stream."""
    client = Client(url)
    client.create("SELECT a.k FROM a [RANGE 1 HOUR]", name="live")
    wait_for(lambda: hub.query("live").status == "running")
    found = list[Results]()
    reader = threading.Thread(target=lambda: found.extend(client.follow("live", 0)))
    reader.start()
    for key in range(100, 110):
        here.put("a", f"{key},x,2024-01-01T00:00:00Z")
        time.sleep(0.05)
    wait_for(lambda: sum(len(page.rows) for page in found) >= 10)
    half = found[0]
    again = next(client.follow("live", half.first - 1, origin=half.origin))
    assert again.rows[: len(half.rows)] == half.rows
    client.stop("live")
    reader.join(60)
    assert not reader.is_alive()
    assert [row["k"] for page in found for row in page.rows] == list(range(100, 110))
    assert [page.missed for page in found] == [0] * len(found)
    other = next(client.follow("live", 5, origin="another"))
    assert (other.restarted, other.first) == (True, 1)


def test_events_can_be_resumed_by_their_id(url: str) -> None:
    """As browsers do: the last event's id says where to go on, and of which origin."""
    page = Client(url).results("q", limit=1)
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
    connection.request(
        "GET", "/api/v1/queries/q/results/live", headers={"Last-Event-ID": f"{page.origin}:{page.last}"}
    )
    answer = connection.getresponse()
    assert answer.getheader("content-type") == "text/event-stream; charset=utf-8"
    lines = [answer.readline() for _ in range(5)]
    assert lines[:2] == [b"retry: 1000\n", b"\n"]
    assert lines[2].startswith(f"id: {page.origin}:".encode())
    assert json.loads(lines[4].removeprefix(b"data: "))["first"] == 2
    connection.close()


def test_a_slow_reader_holds_nobody_up_and_is_told_what_it_missed(tmp_path: Path) -> None:
    """The service keeps a thousand results of a query, however long somebody does not read."""
    here = place(tmp_path)
    with running_hub(tmp_path) as hub, served(hub) as (url, service):
        hub.create(NewQuery("SELECT a.k, a.x FROM a [RANGE 1 HOUR]", "wide"))
        slow = socket.create_connection(("127.0.0.1", urlsplit(url).port or 0))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
        slow.sendall(b"GET /api/v1/queries/wide/results/live?after=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        text = "x" * 2000
        for number in range(30):
            here.put("a", *(f"{number * 300 + row},{text},2024-01-01T00:00:00Z" for row in range(300)))
        wait_for(lambda: hub.results("wide", -1).newest == 9000)
        assert service.live.readers == 1
        content = b""
        while b'"last": 9000' not in content[-200_000:] and b"event: end" not in content:
            content += slow.recv(1 << 20)
            slow.settimeout(60)
            if b'"newest": 9000' in content and content.endswith(b"\n\n"):
                break
        pages = [json.loads(one) for one in _data(content)]
        assert any(page["missed"] for page in pages)
        slow.close()
        wait_for(lambda: service.live.readers == 0)


@pytest.mark.skipif(
    not hasattr(socket, "TCP_USER_TIMEOUT"), reason="the system closes no stalled connections"
)
def test_readers_that_stop_reading_are_let_go(tmp_path: Path) -> None:
    """Each would keep its place, of which there are so many, and what was written for it, for ever."""
    here = place(tmp_path)
    with running_hub(tmp_path) as hub, served(hub, stalled=1.0) as (url, service):
        hub.create(NewQuery("SELECT a.k, a.x FROM a [RANGE 1 HOUR]", "wide"))
        client, stuck = Client(url), list[socket.socket]()
        for _ in range(20):
            one = socket.socket()
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            one.connect(("127.0.0.1", urlsplit(url).port or 0))
            one.sendall(b"GET /api/v1/queries/wide/results/live HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
            stuck.append(one)
        wait_for(lambda: service.live.readers == 20)
        reading = client.follow("wide")
        here.put("a", *(f"{row},{'x' * 20_000},2024-01-01T00:00:00Z" for row in range(500)))
        page = next(reading)
        assert page.rows
        assert len(page.rows) * 20_000 <= 5 << 20  # a page is bounded, however wide its rows are
        here.put("a", *(f"{row},{'x' * 20_000},2024-01-01T00:00:00Z" for row in range(500)))
        wait_for(lambda: service.live.readers <= 1)
        for one in stuck:
            one.close()


def _data(content: bytes) -> list[bytes]:
    events = [one for one in content.split(b"\n\n")[:-1] if b"data: {" in one]  # the last may not be complete
    return [one.partition(b"data: ")[2] for one in events]


def test_readers_are_bounded_and_end_with_the_service(tmp_path: Path) -> None:
    """One more than there may be is refused; at the end, all are told."""
    place(tmp_path)
    text = PIPELINE.replace("result_rows: 1000", "result_rows: 1000, live_readers: 3")
    ended = list[str]()
    with running_hub(tmp_path, text) as hub:
        with served(hub) as (url, service):
            client = Client(url)

            def follow() -> None:
                ended.extend(event for event, _ in client._events("q", -1, None))

            threads = [threading.Thread(target=follow) for _ in range(3)]
            for thread in threads:
                thread.start()
            wait_for(lambda: service.live.readers == 3)
            with pytest.raises(ServiceError, match="too many follow"):
                next(client.follow("q"))
        for thread in threads:
            thread.join(60)
        assert ended == ["end"] * 3


def test_queries_from_the_command_line(hub: SessionHub, url: str, here: Place) -> None:
    """`weft query`, as somebody types it."""

    def weft(*arguments: str, status: int = 0) -> str:
        done = CliRunner().invoke(app, ["query", *arguments, "--url", url])
        if status == 0:
            assert done.exit_code == 0, (done.output, done.exception)
        else:
            assert isinstance(done.exception, ServiceError | ConfigError)
        return done.stdout

    assert "Would share: a, b" in weft("add", JOIN, "--plan")
    assert weft("add", JOIN, "--name", "typed", "--backfill").startswith("query typed: ")
    wait_for(lambda: hub.results("typed").newest >= 2)
    assert "typed" in weft("list")
    assert any(one["name"] == "typed" for one in json.loads(weft("list", "--json")))
    lines = weft("results", "typed", "--limit", "2").splitlines()
    assert {json.loads(line)["k"] for line in lines} <= set(range(200))
    assert weft("explain", "typed").startswith("Plan of typed")
    assert "Plan of q" in weft("explain")
    assert weft("stop", "typed").startswith("query typed: ")
    file = here.root / "query.sql"
    file.write_text("SELECT a.k FROM nowhere")
    weft("add", f"@{file}", status=2)
    weft("add", "@nowhere.sql", status=2)
    weft("add", JOIN, "--sink", "{", status=2)
    weft("add", JOIN, "--sink", '{"parquet": "/etc/x"}', status=2)
    weft("results", "none", status=2)


def test_tokens_over_the_wire(hub: SessionHub, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the environment or given; one that may only read changes nothing."""
    settings = GuardSettings(read_tokens((), {"WEFT_TOKEN": TOKEN, "WEFT_READ_TOKEN": READ}), None)
    with served(hub, settings) as (url, _):
        with pytest.raises(ServiceError, match="demands a token"):
            Client(url).queries()
        assert Client(url, token=TOKEN).queries()
        monkeypatch.setenv("WEFT_TOKEN", READ)
        reading = Client(url)
        assert reading.plan(JOIN).adds == ()
        with pytest.raises(ServiceError, match="may only read"):
            reading.create(JOIN)
