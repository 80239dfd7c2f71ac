"""Who may open the page: a token that is typed into a form, and then a cookie that says nothing."""

from __future__ import annotations

import hashlib

from weft.service.api.guard import COOKIE, HOURS, MOST, Logins
from weft.service.api.tokens import Tokens

TOKEN = "a-token-for-everything"


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def logins(clock: Clock) -> Logins:
    return Logins(Tokens(((hashlib.sha256(TOKEN.encode()).digest(), "full"),)), clock)


def cookie(found: Logins, body: str, *, secure: bool = False) -> str:
    return found.enter(body.encode(), secure=secure).headers.get("set-cookie", "")


def test_a_cookie_opens_the_page_for_some_hours() -> None:
    clock = Clock()
    found = logins(clock)
    given = cookie(found, f"token={TOKEN}")
    assert "HttpOnly" in given
    assert "SameSite=strict" in given
    assert TOKEN not in given
    pair = given.partition(";")[0]
    client = found.client(f"weft_theme=dark; {pair}")
    assert client is not None
    assert client.access == "full"
    assert found.client(f"{COOKIE}=something") is None
    assert found.client("") is None
    clock.now = HOURS * 3600 + 1
    assert found.client(pair) is None


def test_what_is_no_token_is_refused() -> None:
    found = logins(Clock())
    for body in ("", "token=", "token=wrong", f"other={TOKEN}", "%ff", "&" * 100, "token=" + "x" * 100_000):
        answer = found.enter(body.encode(), secure=False)
        assert answer.status_code == 401
        assert "set-cookie" not in answer.headers


def test_a_cookie_is_for_https_where_there_is_https() -> None:
    assert "Secure" in cookie(logins(Clock()), f"token={TOKEN}", secure=True)


def test_the_oldest_login_is_forgotten() -> None:
    found = logins(Clock())
    first = cookie(found, f"token={TOKEN}").partition(";")[0]
    for _ in range(MOST):
        cookie(found, f"token={TOKEN}")
    assert found.client(first) is None
