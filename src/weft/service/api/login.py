"""Who has logged in to the page with a token: a form sets a cookie, so that a token is never in a URL or in a script.

Guarantees: the cookie is a random number that says nothing, cannot be read by scripts, is sent to this service alone,
and is forgotten after some hours or when the process ends. It opens the page, not the API.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from urllib.parse import parse_qs

from fastapi import Response
from fastapi.responses import HTMLResponse, RedirectResponse

from weft.service.api.tokens import Client, Tokens

__all__ = ["COOKIE", "LOGIN", "Logins"]

LOGIN = "/login"
COOKIE = "weft_login"
HOURS = 12
MOST = 1000  # so many may be logged in at a time; then the oldest is forgotten


class Logins:
    """Who is logged in, by the number in the cookie."""

    def __init__(self, tokens: Tokens, clock: Callable[[], float] = time.monotonic) -> None:
        self._tokens, self._clock = tokens, clock
        self._known: dict[str, tuple[float, Client]] = {}

    def client(self, cookies: str) -> Client | None:
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
