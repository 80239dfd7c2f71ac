"""A schema registry that answers in every way, on loopback."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import weft
from weft.connectors.kafka.registry import RegistryOptions, SchemaRegistry, registry_options
from weft.errors import SourceError

ANSWERS: dict[str, Any] = {
    "/schemas/ids/1": {"schema": '"long"'},
    "/schemas/ids/2": {"schema": '{"type": "object"}', "schemaType": "JSON"},
    "/schemas/ids/3": {
        "schema": '{"type": "record", "name": "r", "fields": [{"name": "x", "type": "Other"}]}',
        "references": [{"name": "Other", "subject": "other", "version": 4}],
    },
    "/subjects/other/versions/4": {"id": 9, "schema": '{"type": "enum", "name": "Other", "symbols": ["a"]}'},
    "/schemas/ids/5": {"schema": '"int"', "references": [{"subject": "gone", "version": 1}]},
}


class Handler(BaseHTTPRequestHandler):
    """Answers from `ANSWERS`; a path may also want a password, fail at first, redirect or be no registry's."""

    asked: list[tuple[str, str | None]] = []  # noqa: RUF012
    failures = 0

    def do_GET(self) -> None:
        path = self.path
        Handler.asked.append((path, self.headers.get("Authorization")))
        if path.startswith("/secured") and self.headers.get("Authorization") is None:
            return self._answer(401, {"error_code": 401, "message": "who are you? not hush-hush"})
        if path.startswith("/away"):
            self.send_response(302)
            self.send_header("Location", "http://127.0.0.1:1/stolen")
            self.end_headers()
            return None
        if path.startswith("/html"):
            return self._answer(200, "<html>")
        if path.startswith("/flaky") and Handler.failures > 0:
            Handler.failures -= 1
            return self._answer(503, {"message": "soon"})
        path = "/" + path.removeprefix("/secured/").removeprefix("/flaky/").lstrip("/")
        if path in ANSWERS:
            return self._answer(200, ANSWERS[path])
        if path.startswith(("/schemas/ids/", "/subjects/")):
            return self._answer(404, {"error_code": 40403, "message": "not found"})
        return self._answer(404, "<html>")

    def _answer(self, status: int, what: Any) -> None:
        body = (what if isinstance(what, str) else json.dumps(what)).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    Handler.asked = []
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def asked(url: str, patience: float = 0.0, **given: str) -> SchemaRegistry:
    return SchemaRegistry(RegistryOptions(url, tuple(sorted(given.items()))), "kafka", SourceError, patience)


def test_a_schema_is_asked_for_once(address: str) -> None:
    found = asked(address).schema(1)
    assert found is not None
    assert (found.kind, found.text) == ("AVRO", '"long"')
    assert asked(address).schema(1) is found
    assert [path for path, _ in Handler.asked] == ["/schemas/ids/1"]
    other = asked(address).schema(2)
    assert other is not None
    assert other.kind == "JSON"


def test_schemas_that_others_refer_to_come_with_them(address: str) -> None:
    found = asked(address).schema(3)
    assert found is not None
    from weft.connectors.kafka.avro import parse_schema

    schema = parse_schema(found.text, found.references)
    assert schema.branches(schema.resolve(schema.root).fields[0].type)[0].symbols == ("a",)
    with pytest.raises(SourceError, match="refers to gone"):
        asked(address).schema(5)


def test_an_unknown_number_is_an_answer(address: str) -> None:
    assert asked(address).schema(77) is None
    assert asked(address).schema(77) is None
    assert len(Handler.asked) == 1


def test_a_registry_that_is_away_is_asked_again(address: str) -> None:
    Handler.failures = 2
    found = asked(f"{address}/flaky", patience=30).schema(1)
    assert found is not None
    Handler.failures = 1000
    with pytest.raises(SourceError, match=r"503 \(soon\)"):
        asked(f"{address}/flaky", patience=0.5).schema(2)
    Handler.failures = 0
    with pytest.raises(SourceError, match="refused"):
        asked("http://127.0.0.1:1").schema(1)


def test_passwords_are_sent_and_not_shown(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_TEST_SECRET", "hush-hush")
    with pytest.raises(SourceError, match="401") as error:
        asked(f"{address}/secured").schema(1)
    assert "registry_user" in str(error.value)
    user = asked(f"{address}/secured", registry_user="me", registry_password="env:WEFT_TEST_SECRET")
    assert user.schema(1) is not None
    expected = "Basic " + base64.b64encode(b"me:hush-hush").decode()
    assert Handler.asked[-1] == ("/secured/schemas/ids/1", expected)
    token = asked(f"{address}/secured", registry_token="env:WEFT_TEST_SECRET")
    assert token.schema(2) is not None
    assert Handler.asked[-1][1] == "Bearer hush-hush"
    assert "hush-hush" not in repr(token)


def test_secrets_in_what_a_registry_says_are_hidden(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WEFT_TEST_SECRET", "who are you")
    monkeypatch.setitem(ANSWERS, "/schemas/ids/8", None)
    registry = asked(f"{address}/away", registry_token="env:WEFT_TEST_SECRET")
    with pytest.raises(SourceError, match="302"):
        registry.schema(1)
    with pytest.raises(SourceError) as error:
        registry._refuse("who are you?")
    assert "who are you" not in str(error.value)


def test_what_is_no_registry_is_told(address: str) -> None:
    with pytest.raises(SourceError, match="no JSON"):
        asked(f"{address}/html").schema(1)
    with pytest.raises(SourceError, match="404"):
        asked(f"{address}/nothing").schema(1)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"registry": "localhost:8081"}, "no address"),
        ({"registry": "http://me:hush-hush@h:1"}, "must not stand in the registry's address"),
        ({"registry": "http://h:1", "registry_token": "hush-hush"}, "is a secret"),
        ({"registry": "http://h:1", "registry_user": "me"}, "a user with a password"),
        ({"registry": "http://h:1", "registry_usr": "me"}, "registry_user"),
        ({"registry_token": "env:X"}, "no registry"),
        ({"format": "csv", "registry": "http://h:1"}, "have no schema"),
        ({"format": "avro"}, "need a schema"),
        ({"avro_schema": '"long"'}, "but the format is json"),
        ({"format": "avro", "avro_schema": "no/such/file"}, "cannot be read"),
        ({"format": "avro", "avro_schema": "{"}, "no JSON"),
        ({"format": "avro", "avro_schema": '"long"'}, "one column"),
        ({"subject": "s"}, "no registry"),
        (
            {"format": "avro", "avro_schema": '{"type":"record","name":"r","fields":[{"name":"idd","type":"long"}]}'},
            "did you mean",
        ),
    ],
)  # fmt: skip
def test_wrong_options_are_refused_before_anything_starts(given: dict[str, Any], told: str) -> None:
    with pytest.raises(SourceError, match=told) as error:
        weft.kafka("h:1", "t", schema="id long, name string", **given)
    assert "hush-hush" not in str(error.value)


def test_a_registrys_certificate_that_is_not_there_is_told_at_once() -> None:
    registry = registry_options("kafka", "https://127.0.0.1:1", {"registry_ca": "no-such.pem"}, SourceError)
    assert registry is not None
    with pytest.raises(SourceError, match=r"no-such\.pem cannot be used"):
        SchemaRegistry(registry, "kafka", SourceError, 60.0).schema(1)
