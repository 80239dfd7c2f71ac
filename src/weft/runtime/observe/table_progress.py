"""What users see of a table: its version in force, and how looking at it goes.

Guarantees: plain values; what a table is while a session runs is the same as what its log says of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import Any

__all__ = ["TableProgress", "table_states", "tables_text"]

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class TableProgress:
    """A table: the version that is in force, its rows, and when it was read, in microseconds since 1970.

    ``waiting`` is the version that the next batch takes up, if there is one. ``failures`` is how many times the table
    could not be read since the start, and ``problem`` says why the last time, empty if it went well.
    """

    name: str
    version: str | None = None
    rows: int = 0
    read_at: int | None = None
    waiting: str | None = None
    failures: int = 0
    problem: str = ""

    def __str__(self) -> str:
        if self.version is None:
            return f"{self.name}: not read yet"
        moment = None if self.read_at is None else _EPOCH + timedelta(microseconds=self.read_at)
        read = "" if moment is None else f", read {moment.strftime('%Y-%m-%d %H:%M:%S')} UTC"
        waiting = f", version {self.waiting} is taken up next" if self.waiting is not None else ""
        failed = f"; {self.failures} failed looks" if self.failures else ""
        problem = f", the last: {self.problem}" if self.problem else ""
        return f"{self.name}: version {self.version}, {self.rows:,} rows{read}{waiting}{failed}{problem}"


def table_states(cursors: Mapping[str, Mapping[str, Any]]) -> dict[str, TableProgress]:
    """The tables among what a log says of streams and tables."""
    return {
        name: TableProgress(name, state["version"], state["rows"], state["read_at"])
        for name, state in sorted(cursors.items())
        if "digest" in state
    }


def tables_text(tables: Iterable[TableProgress]) -> str:
    """The tables of a session, a line for each; empty if there are none."""
    lines = [f"  {table}" for table in tables]
    return "\n".join(["Tables", *lines, ""]) if lines else ""
