"""What strangers try: every place for themselves, connections without a request, methods that are not there."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import httpx
import pytest

from tests.unit.service.api.running import JOIN, PIPELINE, place, running_hub, served, wait_for
from weft.service.api.guard import GuardSettings
from weft.service.api.tokens import read_tokens
from weft.service.client import Client, ServiceError
from weft.service.hub.hub import SessionHub

FULL, READ = "full-token-of-many-letters", "read-token-of-many-letters"


def test_one_token_does_not_take_all_live_readers(tmp_path: Path) -> None:
    """It did, and nobody else could follow anything."""
    place(tmp_path)
    text = PIPELINE.replace("result_rows: 1000", "result_rows: 1000, live_readers: 4, live_readers_each: 2")
    tokens = GuardSettings(read_tokens((), {"WEFT_TOKEN": FULL, "WEFT_READ_TOKEN": READ}), None)
    with running_hub(tmp_path, text) as hub, served(hub, tokens) as (url, service):

        def follow(token: str) -> None:
            list(Client(url, token=token)._events("q", -1, None))

        for _ in range(2):
            threading.Thread(target=follow, args=(READ,), daemon=True).start()
        wait_for(lambda: service.live.readers == 2)
        with pytest.raises(ServiceError, match="follows results live 2 times already"):
            next(Client(url, token=READ).follow("q"))
        threading.Thread(target=follow, args=(FULL,), daemon=True).start()
        wait_for(lambda: service.live.readers == 3)


def closes(connection: socket.socket, seconds: float = 30) -> bool:
    """Whether the other end closes a connection."""
    connection.settimeout(seconds)
    try:
        while connection.recv(1 << 16):
            pass
    except ConnectionError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.mark.ci
def test_connections_without_a_request_are_closed(hub: SessionHub) -> None:
    """Whoever opened enough of them took all there may be."""
    with served(hub, request=0.5) as (url, _):
        host, port = url.removeprefix("http://").split(":")
        head = b"GET /api/v1/health/live HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        for begun in (b"", b"GET /api", head, head + b"\r\nGET /api"):
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(begun)
                assert closes(connection), begun
        with httpx.Client() as client:  # those with requests stay
            for _ in range(3):
                assert client.get(f"{url}/api/v1/health/live").status_code == 200
        assert Client(url).query("q").name == "q"


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("FOO", "/api/v1/queries", 400),
        ("PATCH", "/api/v1/queries", 405),
        ("PROPFIND", "/api/v1/queries/q", 405),
        ("PROPFIND", "/metrics", 405),
        ("POST", "/metrics", 405),
        ("PUT", "/api/v1/queries", 405),
        ("LOCK", "/api/v1/nothing", 404),
        ("GET", "/api/nothing", 404),
        ("POST", "/api/v1/openapi.json", 405),
        ("DELETE", "/", 405),
        ("PROPFIND", "/state", 405),
    ],
)
def test_methods_that_are_not_there_are_named_as_such(url: str, method: str, path: str, status: int) -> None:
    """The answer was a page in HTML which said that the path did not exist."""
    found = httpx.request(method, f"{url}{path}")
    assert (found.status_code, found.headers["content-type"]) == (status, "application/problem+json")
    assert found.json()["status"] == status
    assert ("allow" in found.headers) == (status == 405)


def test_every_answer_has_a_policy(url: str) -> None:
    """Which lets browsers load nothing for an answer of the API."""
    for path in ("/api/v1/queries", "/api/v1/nothing", "/metrics"):
        found = httpx.get(f"{url}{path}").headers["content-security-policy"]
        assert found == "default-src 'none'; frame-ancestors 'none'"
    page = httpx.get(f"{url}/").headers["content-security-policy"]
    assert "default-src 'self'" in page
    assert "http" not in page


@pytest.mark.parametrize("name", [".", ".."])
def test_a_query_is_not_called_as_a_folder(hub: SessionHub, url: str, name: str) -> None:
    """Nobody could have asked for it, nor stopped it: browsers and clients take the name out of a URL."""
    with pytest.raises(ServiceError, match="cannot be called"):
        Client(url).create(JOIN, name=name)
    assert name not in [one.name for one in hub.queries()]
