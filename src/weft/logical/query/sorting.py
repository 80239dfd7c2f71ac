"""ORDER BY, LIMIT and OFFSET: which rows of a whole result are wanted, and in which order.

Guarantees: a `Sorting` is over columns of the result, by name. Those that are sorted by and not selected are `hidden`
columns of the result, whose names no author can write; they are dropped before rows reach a sink. NULLs stand where
each key says, which the author of SQL may leave to Spark's rule: first where a key ascends, last where it descends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from weft.errors import QueryError

__all__ = ["SortKey", "Sorting", "hidden_name", "is_hidden"]

_HIDDEN = "$sort"


def hidden_name(number: int) -> str:
    """The name of a column that is sorted by and not selected."""
    return f"{_HIDDEN}{number}"


def is_hidden(name: str) -> bool:
    """Whether a column of a result is there only to sort by it."""
    return name.startswith(_HIDDEN)


@dataclass(frozen=True, slots=True)
class SortKey:
    """A column of the result to sort by."""

    column: str
    descending: bool = False
    nulls_first: bool = True

    def to_sql(self, shown: Sequence[str], texts: Mapping[str, str]) -> str:
        """The key as ORDER BY has it: by its place among the columns ``shown``, or else as its text."""
        what = texts[self.column] if self.column not in shown else str(1 + shown.index(self.column))
        usual = self.nulls_first != self.descending
        nulls = "" if usual else " NULLS FIRST" if self.nulls_first else " NULLS LAST"
        return what + (" DESC" if self.descending else "") + nulls


@dataclass(frozen=True, slots=True)
class Sorting:
    """Rows sorted by ``keys``, of which at most ``limit`` are wanted (None: all), after the first ``offset`` ones."""

    keys: tuple[SortKey, ...] = ()
    limit: int | None = None
    offset: int = 0

    @property
    def most(self) -> int | None:
        """How many of the first rows in order decide the result; None if all do."""
        return None if self.limit is None else self.limit + self.offset

    def to_sql(self, shown: Sequence[str], texts: Mapping[str, str]) -> str:
        """The clauses, each after a space; ``texts`` are the expressions of all columns, by name."""
        by = ", ".join(key.to_sql(shown, texts) for key in self.keys)
        limit = "" if self.limit is None else f" LIMIT {self.limit}"
        offset = f" OFFSET {self.offset}" if self.offset else ""
        return (f" ORDER BY {by}" if by else "") + limit + offset

    def check_ends(self, name: str) -> None:
        """Refuse to run a query without an end of its input."""
        words = "sorted (ORDER BY)" if self.keys else "counted off (LIMIT)"
        raise QueryError(
            f"the results of query {name} are {words} when the input has ended, and it does not end",
            hint='if it does, use session.run_available(); else leave it out, or use order="event"',
        )
