"""How large a query may be.

Guarantees: whatever the text, reading and planning it takes a time that is bounded by these figures, or it is refused
by an error that names the limit and how to set it. How much functions may make while a query runs is limited elsewhere
(`weft.kernels.expr.texts`).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, fields

from weft.errors import ConfigError, QueryError

__all__ = ["DEFAULT_LIMITS", "UNLIMITED", "Limits"]

_DEEPEST = 150  # deeper ones exceed Python's recursion limit


@dataclass(frozen=True, slots=True)
class Limits:
    """The largest query that a session accepts; as in ``weft.Session(limits=weft.Limits(words=100_000))``.

    ``characters`` and ``words`` (names, constants and signs) are those of its text; ``terms`` are the columns,
    constants and calls of all of its expressions, as they are understood, where BETWEEN, IN and CASE may repeat what
    is written once; ``depth`` is how deeply they may be nested.
    """

    characters: int = 500_000
    words: int = 40_000
    terms: int = 60_000
    depth: int = 100

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise ConfigError(
                    f"a limit of {value!r} {field.name} makes no sense", hint="use a whole number above 0"
                )
        if self.depth > _DEEPEST:
            raise ConfigError(
                f"expressions cannot be nested {self.depth} deep", hint=f"use a depth of {_DEEPEST} or less"
            )

    def check(self, name: str, count: int, what: str) -> None:
        """Refuse a query that exceeds the limit of that name; ``what`` begins the message."""
        limit: int = getattr(self, name)
        if count > limit:
            raise QueryError(
                f"{what}, and the limit is {limit:,}",
                hint=f"split the query, or make the session with limits=weft.Limits({name}=…)",
            )


DEFAULT_LIMITS = Limits()
UNLIMITED = Limits(sys.maxsize, sys.maxsize, sys.maxsize, _DEEPEST)
