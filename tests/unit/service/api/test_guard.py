"""What every request passes: tokens, hosts, sites, sizes and rates; without a session."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from fastapi import FastAPI, Request, WebSocket
from starlette.testclient import TestClient
from starlette.websockets import WebSocketDisconnect

from weft.errors import ConfigError
from weft.service.api.guard import CLIENTS, Guard, GuardSettings, RateLimit
from weft.service.api.tokens import Tokens, read_tokens

FULL, READ = "full-token-of-many-letters", "read-token-of-many-letters"
TOKENS = read_tokens((), {"WEFT_TOKEN": FULL, "WEFT_READ_TOKEN": READ})
LOCAL = "http://127.0.0.1:8080"


def client(settings: GuardSettings | None = None, base: str = LOCAL) -> TestClient:
    """An application that says what it was sent, behind a guard."""
    app = FastAPI()

    @app.api_route("/{path:path}", methods=["GET", "POST", "DELETE"])
    async def echo(request: Request) -> dict[str, Any]:
        size = len(await request.body())
        return {"size": size, "access": getattr(request.state, "access", None)}

    @app.websocket("/socket")
    async def socket(socket: WebSocket) -> None:
        await socket.accept()
        await socket.close()

    return TestClient(Guard(app, settings or GuardSettings()), base_url=base)


def test_without_tokens_this_machine_may_do_everything() -> None:
    """Which is the default, on localhost."""
    found = client().get("/api/v1/queries")
    assert found.json() == {"size": 0, "access": "full"}
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["x-frame-options"] == "DENY"
    assert found.headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in found.headers
    assert client().post("/api/v1/queries", json={}).status_code == 200


@pytest.mark.parametrize(
    ("header", "status"),
    [
        (None, 401),
        ("", 401),
        ("Bearer", 401),
        ("Bearer " + FULL[:-1], 401),
        ("Bearer " + FULL + "x", 401),
        ("Basic !!!", 401),
        ("Basic " + base64.b64encode(f"{FULL}:x".encode()).decode(), 401),
        ("Token " + FULL, 401),
        ("Bearer " + FULL, 200),
        ("bearer  " + FULL + " ", 200),
        ("Basic " + base64.b64encode(f"anyone:{FULL}".encode()).decode(), 200),
    ],
)
def test_tokens(header: str | None, status: int) -> None:
    """Only the whole token opens, in a header."""
    headers = {} if header is None else {"Authorization": header}
    with client(GuardSettings(TOKENS, None)) as found:
        for path in ("/api/v1/queries", "/metrics", "/", "/_nicegui/x"):
            answer = found.get(path, headers=headers)
            assert answer.status_code == status, path
            if status == 401 and path in ("/api/v1/queries", "/metrics"):
                assert answer.headers["www-authenticate"] == "Bearer"
                assert answer.headers["content-type"] == "application/problem+json"


def test_a_token_in_a_url_is_none() -> None:
    """It would stand in logs."""
    with client(GuardSettings(TOKENS, None)) as found:
        for name in ("token", "access_token", "Authorization"):
            assert found.get("/api/v1/queries", params={name: FULL}).status_code == 401


def test_a_token_that_may_only_read() -> None:
    """It may ask for a plan, and change nothing."""
    headers = {"Authorization": f"Bearer {READ}"}
    with client(GuardSettings(TOKENS, None)) as found:
        assert found.get("/api/v1/queries", headers=headers).json()["access"] == "read"
        assert found.post("/api/v1/queries/plan", headers=headers, json={}).status_code == 200
        assert found.post("/api/v1/queries", headers=headers, json={}).status_code == 403
        assert found.delete("/api/v1/queries/q", headers=headers).status_code == 403
        assert found.get("/", headers=headers).json()["access"] == "read"  # the page decides what it shows


def test_watchers_of_processes_need_no_token() -> None:
    """Whether it lives and is ready, and no more."""
    with client(GuardSettings(TOKENS, None)) as found:
        assert found.get("/api/v1/health/live").status_code == 200
        assert found.get("/api/v1/health/ready").status_code == 200
        assert found.get("/api/v1/health").status_code == 401


def test_another_name_is_refused() -> None:
    """Else a page on the web could have its own name lead here (DNS rebinding)."""
    for host in ("evil.example", "127.0.0.1.evil.example", "localhost.evil.example:8080", "", "[::2]:8080"):
        assert client().get("/api/v1/queries", headers={"Host": host}).status_code == 421, host
    for host in ("localhost", "LOCALHOST:9", "127.0.0.1:8080", "[::1]:8080", "[::1]"):
        assert client().get("/api/v1/queries", headers={"Host": host}).status_code == 200, host
    assert client().get("/api/v1/health/live", headers={"Host": "evil.example"}).status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:9999"},
        {"Origin": "http://127.0.0.1:8080", "Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "cross-site"},
    ],
)
def test_other_sites_change_nothing(headers: dict[str, str]) -> None:
    """A page that somebody visits must not steer the service on their machine."""
    assert client().post("/api/v1/queries", headers=headers, json={}).status_code == 403
    assert client().delete("/api/v1/queries/q", headers=headers).status_code == 403
    with pytest.raises(WebSocketDisconnect), client().websocket_connect("/socket", headers=headers):
        pass


def test_its_own_page_may() -> None:
    """A browser says where a request comes from."""
    own = {"Origin": LOCAL, "Sec-Fetch-Site": "same-origin"}
    assert client().post("/api/v1/queries", headers=own, json={}).status_code == 200
    with client().websocket_connect("/socket", headers={**own, "Host": "127.0.0.1:8080"}):
        pass
    with pytest.raises(WebSocketDisconnect), client(GuardSettings(TOKENS)).websocket_connect("/socket"):
        pass


def test_bodies_are_json_and_bounded() -> None:
    """A form of another site is neither, and nothing large is held."""
    found = client(GuardSettings(body_bytes=1000))
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    assert found.post("/api/v1/queries", content=b"sql=x", headers=form).status_code == 415
    assert found.post("/api/v1/queries", content=b"{}").status_code == 415
    json = {"Content-Type": "application/json; charset=utf-8"}
    assert found.post("/api/v1/queries", content=b"x" * 1000, headers=json).json()["size"] == 1000
    assert found.post("/api/v1/queries", content=b"x" * 1001, headers=json).status_code == 413
    chunks = (b"x" * 100 for _ in range(11))
    assert found.post("/api/v1/queries", content=chunks, headers=json).status_code == 413
    for wrong in ("-1", "1e3", "9" * 5000):
        answer = found.post("/api/v1/queries", content=b"x", headers={**json, "Content-Length": wrong})
        assert answer.status_code in (400, 413)


def test_a_header_twice_is_refused() -> None:
    """Else one could be checked and the other used."""
    found = client().get("/api/v1/x", headers=[("Host", "127.0.0.1"), ("Host", "evil.example")])
    assert found.status_code == 400


def test_rates() -> None:
    """After a burst, so many a second; each client for itself, and clients that are forgotten begin anew."""
    now = 0.0
    limit = RateLimit(2.0, 3, lambda: now)
    assert [limit.wait("a") for _ in range(4)] == [0, 0, 0, 0.5]
    assert limit.wait("b") == 0
    now = 0.5
    assert [limit.wait("a"), limit.wait("a")] == [0, 0.5]
    now = 1000.0
    assert [limit.wait("a") for _ in range(4)] == [0, 0, 0, 0.5]
    for number in range(CLIENTS + 10):
        limit.wait(f"client {number}")
    assert len(limit._buckets) == CLIENTS
    assert limit.wait("a") == 0


def test_a_client_that_asks_too_often_is_told_when_to_come_back() -> None:
    """A page's own files are not counted."""
    found = client(GuardSettings(rate=0.01, burst=2))
    answers = [found.get("/api/v1/queries") for _ in range(3)]
    assert [one.status_code for one in answers] == [200, 200, 429]
    assert int(answers[-1].headers["retry-after"]) > 50
    assert found.get("/_nicegui/x").status_code == 200


def test_who_guesses_tokens_is_slowed_down() -> None:
    """In a header, or by the form of the page."""
    found = client(GuardSettings(TOKENS, None, rate=0.01, burst=2))
    guesses = [found.get("/api/v1/queries", headers={"Authorization": f"Bearer {n}"}) for n in range(3)]
    assert [one.status_code for one in guesses] == [401, 401, 429]
    forms = [found.post("/login", data={"token": str(number)}) for number in range(3)]
    assert [one.status_code for one in forms] == [401, 401, 429]
    known = {"Authorization": f"Bearer {FULL}"}
    assert found.get("/api/v1/queries", headers=known).status_code == 200  # others are not


def test_tokens_from_a_file(tmp_path: Path) -> None:
    """One a line; what cannot be one is refused, without showing it."""
    file = tmp_path / "tokens"
    file.write_text(f"# ours\n{FULL}\n\nread {READ}\n")
    found = read_tokens([file], {})
    assert found is not None
    full, read = found.client(f"Bearer {FULL}"), found.client(f"Bearer {READ}")
    assert full is not None
    assert read is not None
    assert (full.access, read.access) == ("full", "read")
    assert full.key != read.key
    assert FULL not in repr(found)
    assert FULL not in full.key
    for wrong in ("short", "with a space but many letters", "ümläute-und-viele-buchstaben"):
        file.write_text(wrong)
        with pytest.raises(ConfigError, match="a token in") as caught:
            read_tokens([file], {})
        assert wrong not in str(caught.value)
    file.write_text("# none\n")
    with pytest.raises(ConfigError, match="has no token"):
        read_tokens([file], {})
    with pytest.raises(ConfigError, match="cannot read the token file"):
        read_tokens([tmp_path / "none"], {})
    assert read_tokens((), {"WEFT_TOKEN": ""}) is None
    assert Tokens().client(f"Bearer {FULL}") is None


def test_tokens_from_several_places(tmp_path: Path) -> None:
    """All of them count; one that would be for everything here and for reading there is refused, without showing it."""
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.write_text(FULL)
    theirs.write_text(f"read {READ}\n{FULL}\n")
    found = read_tokens([ours, theirs], {"WEFT_READ_TOKEN": "another-for-reading"})
    assert found is not None
    for token, access in ((FULL, "full"), (READ, "read"), ("another-for-reading", "read")):
        client = found.client(f"Bearer {token}")
        assert client is not None
        assert client.access == access
    theirs.write_text(f"read {FULL}\n")
    for order in ([ours, theirs], [theirs, ours]):
        with pytest.raises(ConfigError, match="for everything and for reading alone") as caught:
            read_tokens(order, {})
        assert FULL not in str(caught.value)
