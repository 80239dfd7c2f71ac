"""Connections whose secrets stay outside: in a variable of the environment, or in a file.

Guarantees: a reference (`env:NAME`, `file:PATH`) is read when a connection is made, and not before; what is shown,
described in the log or named in an error is the reference. A text that is written out must not have a password.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from weft.errors import SinkError

__all__ = ["SecretText"]

_PASSWORD = re.compile(r"(?:^|[\s?&;])\s*(?:ssl)?password\s*=|://[^/@]*:[^@]*@", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SecretText:
    """A text, or where it is found; ``function`` is what the user called, for errors."""

    reference: str
    function: str

    def __post_init__(self) -> None:
        if not self.reference.strip():
            raise SinkError(f"{self.function}: the connection is empty")
        if not self._is_elsewhere and _PASSWORD.search(self.reference):
            raise SinkError(
                f"{self.function}: a password is written in the connection, and would be in the checkpoint",
                hint='put the connection into the environment or a file, and give "env:NAME" or "file:PATH"',
            )

    @property
    def _is_elsewhere(self) -> bool:
        return self.reference.startswith(("env:", "file:"))

    def read(self) -> str:
        """The text itself; it must not reach a log, an error or a file."""
        kind, _, place = self.reference.partition(":")
        if not self._is_elsewhere:
            return self.reference
        if kind == "env":
            found = os.environ.get(place)
        else:
            try:
                found = Path(place).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise SinkError(
                    f"{self.function}: {self.reference} cannot be read: {error.strerror}",
                    hint="the file is to hold the connection, readable by the driver",
                ) from None
        if not found:
            raise SinkError(
                f"{self.function}: {self.reference} has no text", hint="set it before the session starts"
            )
        return found

    def hidden_in(self, text: str) -> str:
        """A text, such as an error of a server's, without what must not be seen."""
        secrets = {self.read(), *_values(self.read())} if self._is_elsewhere else set()
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, "…")
        return text


def _values(connection: str) -> list[str]:
    """The passwords in a connection's text, as `password=…` or in a URI."""
    keyed = re.findall(r"password\s*=\s*('(?:\\.|[^'])*'|[^\s&;]+)", connection, re.IGNORECASE)
    in_uri = re.findall(r"://[^/@:]*:([^@]+)@", connection)
    return [value for one in (*keyed, *in_uri) if (value := one.strip("'"))]
