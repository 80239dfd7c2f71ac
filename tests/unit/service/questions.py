"""Questions for planning processes, and queries that take very long to plan."""

from __future__ import annotations

import time
from dataclasses import dataclass
from itertools import pairwise

from weft.errors import QueryError


@dataclass(frozen=True)
class Wait:
    """Wait so many seconds, and say something then; None: there is an error."""

    seconds: float
    word: str | None

    def answer(self) -> str:
        """What is to be said."""
        time.sleep(self.seconds)
        if self.word is None:
            raise QueryError("it cannot be", hint="do something else")
        return self.word


def self_join(inputs: int) -> str:
    """A join of a stream with itself that takes very long to plan."""
    names = [f"a{number}" for number in range(inputs)]
    on = " AND ".join(f"{one}.k = {two}.k" for one, two in pairwise(names))
    return f"SELECT a0.k FROM {', '.join(f'a [RANGE 1 HOUR] {name}' for name in names)} WHERE {on}"
