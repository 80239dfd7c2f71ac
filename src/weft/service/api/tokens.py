"""Who may do what: tokens, from a file or the environment, for everything or for reading alone.

Guarantees: a token is compared in constant time, with all that are known, and is never in an error, a log or a URL;
what is kept of it is a hash. A token is long enough that it cannot be guessed.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from weft.errors import ConfigError

__all__ = ["Access", "TokenHolder", "Tokens", "read_tokens"]

Access = Literal["full", "read"]

SHORTEST = 16
FULL, READ = "WEFT_TOKEN", "WEFT_READ_TOKEN"


@dataclass(frozen=True, slots=True)
class TokenHolder:
    """Who sends a request, as far as it is known: what it may do, and by what it is told from others."""

    access: Access
    key: str


@dataclass(frozen=True, slots=True)
class Tokens:
    """The tokens that are known, as hashes, and what each permits."""

    known: tuple[tuple[bytes, Access], ...] = field(default=(), repr=False)

    def client(self, authorization: str) -> TokenHolder | None:
        """Who presents a header `Authorization`; None if its token is not known.

        A token is given as `Bearer TOKEN`, or as the password of `Basic`, which browsers ask for by themselves.
        """
        given = hashlib.sha256(_presented(authorization)).digest()
        found: TokenHolder | None = None
        for digest, access in self.known:  # all of them, so that the time tells nothing
            if hmac.compare_digest(digest, given):
                found = TokenHolder(access, digest.hex()[:16])
        return found


def _presented(authorization: str) -> bytes:
    scheme, _, rest = authorization.strip().partition(" ")
    if scheme.lower() == "bearer":
        return rest.strip().encode("utf-8", "surrogateescape")
    if scheme.lower() == "basic":
        try:
            return base64.b64decode(rest.strip(), validate=True).partition(b":")[2]
        except (binascii.Error, ValueError):
            return b""
    return b""


def read_tokens(files: Sequence[Path], environment: Mapping[str, str]) -> Tokens | None:
    """The tokens of all files and of the environment; None if there are none.

    A line of a file is a token, or `read` and a token; lines that begin with # are comments. A token that is given for
    everything in one place and for reading alone in another is refused, as nobody could say which is meant.
    """
    found: list[tuple[str, Access, str]] = []
    for file in files:
        found += _of_file(file)
    if environment.get(FULL):
        found.append((environment[FULL], "full", FULL))
    if environment.get(READ):
        found.append((environment[READ], "read", READ))
    for token, _, where in found:
        if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
            raise ConfigError(
                f"a token in {where} is not one: at least {SHORTEST} printable characters, without spaces",
                hint='as python -c "import secrets; print(secrets.token_urlsafe())" makes one',
            )
    _check_that_they_differ(found)
    if not found:
        return None
    return Tokens(tuple((hashlib.sha256(token.encode()).digest(), access) for token, access, _ in found))


def _check_that_they_differ(found: Sequence[tuple[str, Access, str]]) -> None:
    known: dict[str, tuple[Access, str]] = {}
    for token, access, where in found:
        before, place = known.setdefault(token, (access, where))
        if before != access:
            raise ConfigError(
                f"the same token is for everything and for reading alone, in {place} and in {where}",
                hint="use another token for one of them",
            )


def _of_file(file: Path) -> list[tuple[str, Access, str]]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ConfigError(f"cannot read the token file {file}: {reason}") from None
    found: list[tuple[str, Access, str]] = []
    for line in (line.strip() for line in lines):
        if line and not line.startswith("#"):
            is_read = line.startswith("read ")
            found.append((line.removeprefix("read ").strip(), "read" if is_read else "full", str(file)))
    if not found:
        raise ConfigError(f"the token file {file} has no token", hint="write one on a line of its own")
    return found
