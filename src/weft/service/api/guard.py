"""What every request passes before it is answered, be it for the API, for metrics or for the page.

Guarantees: a request that is addressed to another host, comes from another site, has no token where one is demanded, or
is too large or too frequent is refused with a problem document, before any of it is looked at further. A token that may
only read changes nothing. No answer can be framed, sniffed or read by other sites, and the page loads nothing from
elsewhere; answers of the API are not cached.

Whoever opens the page without a token is asked for it by a form, which sets a cookie, so that a token is never in a URL
or in a script. The cookie is a random number that says nothing, cannot be read by scripts, is sent to this service
alone, and is forgotten after some hours or when the process ends. It opens the page, not the API.

How often a client may ask is limited by a bucket of tokens each, which fills at a rate. Memory is bounded, however many
clients there are: those that have not asked for longest are forgotten, and begin with a full bucket again.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from fastapi import Response
from fastapi.responses import HTMLResponse, RedirectResponse

from weft.service.api.problems import problem_response
from weft.service.api.tokens import TokenHolder, Tokens

__all__ = ["COOKIE", "LOGIN", "Guard", "GuardSettings", "Logins", "RateLimit"]


Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Tell = Callable[[str, int, float], None]

SAFE = ("GET", "HEAD", "OPTIONS")
OPEN = ("/api/v1/health/live", "/api/v1/health/ready")  # for those who watch over processes
PLANS = "/api/v1/queries/plan"  # changes nothing, though it is posted
BODY_SECONDS = 20.0

HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
)
POLICY = b"content-security-policy"
NOTHING = b"default-src 'none'; frame-ancestors 'none'"
# The page has scripts and styles in its text, and makes functions of the templates of its elements.
OWN = b"; ".join(
    (
        b"default-src 'self'",
        b"script-src 'self' 'unsafe-inline' 'unsafe-eval'",
        b"style-src 'self' 'unsafe-inline'",
        b"img-src 'self' data: blob:",
        b"font-src 'self' data:",
        b"object-src 'none'",
        b"base-uri 'self'",
        b"form-action 'self'",
        b"frame-ancestors 'none'",
    )
)


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """What is demanded of requests: tokens, hosts by which they address the service (None: any), and limits."""

    tokens: Tokens | None = None
    hosts: tuple[str, ...] | None = ("localhost", "127.0.0.1", "[::1]")
    rate: float = 50.0
    burst: int = 200
    body_bytes: int = 256 << 10


class Guard:
    """Stands before an application; ``tell`` is told of every answer: method, status and seconds."""

    def __init__(self, app: Any, settings: GuardSettings, tell: Tell = lambda *_: None) -> None:
        self._app, self._settings, self._tell = app, settings, tell
        self._limit = RateLimit(settings.rate, settings.burst, time.monotonic)
        self._logins = Logins(settings.tokens) if settings.tokens is not None else None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request pass, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        began, method = time.monotonic(), scope.get("method", "GET")
        status = 0

        async def sent(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                given = list(message.get("headers", ()))
                message = {**message, "headers": [*given, *_own_headers(scope, given)]}
            await send(message)

        try:
            await self._pass(scope, receive, sent)
        finally:
            if scope["type"] == "http":
                self._tell(method, status, time.monotonic() - began)

    async def _pass(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = _Headers(scope)
        refused = self._refused(scope, headers)
        if refused is None and scope["type"] == "http" and scope["method"] not in SAFE:
            body, refused = await self._body(headers, receive)
            receive = _replayed(body, receive)
            if refused is None and self._logins is not None and scope["path"] == LOGIN:
                refused = self._logins.enter(body, secure=scope.get("scheme") == "https")
            if refused is None and body and _is_api(scope) and not headers.is_json():
                refused = problem_response(
                    415, "the body is not application/json", hint="send Content-Type: application/json"
                )
        if refused is None:
            await self._app(scope, receive, send)
        elif scope["type"] == "websocket":
            await receive()
            await send({"type": "websocket.close", "code": 1008})
        else:
            await refused(scope, receive, send)

    def _refused(self, scope: Scope, headers: _Headers) -> Response | None:
        if headers.doubled:
            return problem_response(400, f"the header {headers.doubled} is there twice")
        hosts = self._settings.hosts
        if hosts is not None and headers.host not in hosts:
            return problem_response(
                421, "this service is not addressed by that name", hint="use http://127.0.0.1, or serve.hosts"
            )
        changes = scope["type"] == "websocket" or scope["method"] not in SAFE
        if changes and not headers.is_same_site():
            return problem_response(403, "requests of other sites are refused")
        if scope["path"] in OPEN:
            return None
        if self._logins is not None and scope["path"] == LOGIN and changes:
            return self._too_often(f"login {_address(scope)}")
        client = self._client(scope, headers)
        if client is None:
            return self._too_often(f"unknown {_address(scope)}") or self._unknown(scope)
        scope.setdefault("state", {}).update(access=client.access, client=client.key)
        refused = self._too_often(client.key) if _is_api(scope) else None
        if refused is not None:
            return refused
        if client.access == "read" and _is_api(scope) and changes and scope["path"] != PLANS:
            return problem_response(403, "this token may only read")
        return None

    def _too_often(self, key: str) -> Response | None:
        """Count a request of a client; a refusal if there are too many. Who guesses tokens is counted as well."""
        wait = self._limit.wait(key)
        if not wait:
            return None
        seconds = str(max(1, round(wait + 0.5)))
        return problem_response(429, "this client asks too often", headers={"Retry-After": seconds})

    def _unknown(self, scope: Scope) -> Response:
        """What somebody without a token is told."""
        if self._logins is not None and not _is_api(scope):
            return self._logins.form()
        return problem_response(
            401,
            "this service demands a token",
            hint="send Authorization: Bearer TOKEN",
            headers={"WWW-Authenticate": "Bearer"},
        )

    def _client(self, scope: Scope, headers: _Headers) -> TokenHolder | None:
        if self._settings.tokens is not None:
            found = self._settings.tokens.client(headers.get("authorization"))
            if found is None and self._logins is not None and not _is_api(scope):
                found = self._logins.client(headers.get("cookie"))
            return found
        return TokenHolder("full", _address(scope))

    async def _body(self, headers: _Headers, receive: Receive) -> tuple[bytes, Response | None]:
        """The whole body of a request, which is read here, so that what follows never holds more than is allowed."""
        most = self._settings.body_bytes
        too_large = problem_response(413, f"the body has more than {most:,} bytes")
        length = headers.get("content-length")
        is_number = length.isascii() and length.isdecimal() and len(length) < 20
        if length and (not is_number or int(length) > most):
            return b"", too_large
        parts, size, more, until = list[bytes](), 0, True, time.monotonic() + BODY_SECONDS
        try:
            while more:
                message = await asyncio.wait_for(receive(), until - time.monotonic())
                part, more = message.get("body", b""), message.get("more_body", False)
                parts.append(part)
                size += len(part)
                if size > most:
                    return b"", too_large
        except asyncio.TimeoutError:
            return b"", problem_response(400, f"the body did not come within {BODY_SECONDS:g} seconds")
        return b"".join(parts), None


def _own_headers(scope: Scope, given: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[bytes, bytes]]:
    """What every answer says to browsers; one that has a policy of its own keeps it."""
    yield from HEADERS
    if _is_api(scope):
        yield b"cache-control", b"no-store"
    if all(name.lower() != POLICY for name, _ in given):
        yield POLICY, NOTHING if _is_api(scope) else OWN


def _address(scope: Scope) -> str:
    """Where a request comes from, by which those without a token are told apart."""
    client = scope.get("client")
    return str(client[0]) if client else ""


def _is_api(scope: Scope) -> bool:
    path: str = scope["path"]
    return path.startswith("/api/") or path == "/metrics"


def _replayed(body: bytes, receive: Receive) -> Receive:
    """The rest of a request whose body has been read: the body at once, then what comes after it."""
    given = False

    async def again() -> MutableMapping[str, Any]:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


class _Headers:
    """The headers that decide whether a request passes; each may be there once."""

    ONCE = ("host", "authorization", "content-length", "content-type", "origin", "sec-fetch-site", "cookie")

    def __init__(self, scope: Scope) -> None:
        self._found: dict[str, str] = {}
        self.doubled = ""
        for raw, value in scope.get("headers", ()):
            name = raw.decode("latin-1").lower()
            if name in self.ONCE:
                self.doubled = name if name in self._found else self.doubled
                self._found[name] = value.decode("latin-1")

    def get(self, name: str) -> str:
        """The value of a header; empty if it is not there."""
        return self._found.get(name, "")

    @property
    def host(self) -> str:
        """The host that a request is addressed to, without its port."""
        text = self.get("host").lower()
        return text.partition("]")[0] + "]" if text.startswith("[") else text.rpartition(":")[0] or text

    def is_same_site(self) -> bool:
        """Whether a browser says that a request comes from a page of this service; others say nothing."""
        origin, site = self.get("origin"), self.get("sec-fetch-site")
        if site in ("cross-site", "same-site"):
            return False
        if site == "same-origin":  # a form of a page that is sent without a referrer has the origin "null"
            return True
        return not origin or urlsplit(origin).netloc.lower() == self.get("host").lower()

    def is_json(self) -> bool:
        """Whether the body is said to be JSON."""
        return self.get("content-type").partition(";")[0].strip().lower() == "application/json"


CLIENTS = 10_000


@dataclass(slots=True)
class _Bucket:
    left: float
    at: float


class RateLimit:
    """So many requests a second for each client, after a burst; for one thread, such as that of an event loop."""

    def __init__(self, rate: float, burst: int, clock: Callable[[], float]) -> None:
        self._rate, self._burst, self._clock = rate, burst, clock
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def wait(self, client: str) -> float:
        """Count a request of a client; returns 0, or the seconds after which it may ask again."""
        now = self._clock()
        bucket = self._buckets.pop(client, None) or _Bucket(float(self._burst), now)
        self._buckets[client] = bucket
        if len(self._buckets) > CLIENTS:
            self._buckets.popitem(last=False)
        bucket.left = min(float(self._burst), bucket.left + (now - bucket.at) * self._rate)
        bucket.at = now
        if bucket.left < 1:
            return (1 - bucket.left) / self._rate
        bucket.left -= 1
        return 0.0


LOGIN = "/login"
COOKIE = "weft_login"
HOURS = 12
MOST = 1000  # so many may be logged in at a time; then the oldest is forgotten


class Logins:
    """Who is logged in, by the number in the cookie."""

    def __init__(self, tokens: Tokens, clock: Callable[[], float] = time.monotonic) -> None:
        self._tokens, self._clock = tokens, clock
        self._known: dict[str, tuple[float, TokenHolder]] = {}

    def client(self, cookies: str) -> TokenHolder | None:
        """Who sends a header `Cookie`; None if nobody who is logged in."""
        number = next((v for n, v in _pairs(cookies) if n == COOKIE), "")
        until, client = self._known.get(number, (0.0, None))
        return client if until > self._clock() else None

    def form(self, *, wrong: bool = False) -> Response:
        """The page that asks for a token."""
        said = '<p role="alert">This token is not known.</p>' if wrong else ""
        headers = {"Cache-Control": "no-store", "Content-Security-Policy": _POLICY}
        return HTMLResponse(_FORM.replace("SAID", said), 401, headers)

    def enter(self, body: bytes, *, secure: bool) -> Response:
        """Log in with what the form sent."""
        try:
            found = parse_qs(body.decode("utf-8"), max_num_fields=8).get("token", [""])
        except ValueError:
            found = [""]
        client = self._tokens.client(f"Bearer {found[0].strip()}")
        if client is None:
            return self.form(wrong=True)
        now = self._clock()
        self._known = {n: one for n, one in self._known.items() if one[0] > now}
        while len(self._known) >= MOST:
            self._known.pop(next(iter(self._known)))
        number = secrets.token_urlsafe(32)
        self._known[number] = now + HOURS * 3600, client
        answer = RedirectResponse("/", 303)
        answer.set_cookie(COOKIE, number, HOURS * 3600, httponly=True, samesite="strict", secure=secure)
        return answer


def _pairs(cookies: str) -> list[tuple[str, str]]:
    pairs = (part.strip().partition("=") for part in cookies.split(";"))
    return [(name, value) for name, _, value in pairs]


_POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'"

_FORM = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Weft</title>
<style>
:root { color-scheme: light dark; font-family: system-ui, sans-serif; }
body { display: grid; place-items: center; min-height: 90vh; margin: 0; }
form { display: grid; gap: 12px; width: 320px; }
input, button { font: inherit; padding: 9px; border-radius: 6px; border: 1px solid #8795a5; }
button { background: #2563eb; color: white; border: 0; cursor: pointer; }
p { color: #dc2626; margin: 0; }
</style></head>
<body><form method="post" action="/login"><h1>Weft</h1>
<label for="token">This service demands a token.</label>
<input id="token" name="token" type="password" autocomplete="current-password" required autofocus>SAID
<button>Log in</button></form></body></html>
"""
