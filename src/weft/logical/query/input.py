"""An input of a query: a stream or table under the name that the query gives it, with its window.

Guarantees: a column that an input gives exists in its stream, or is one of those that no stream has (`PRESENT`,
`ARRIVAL`).
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import QueryError, nearest
from weft.logical.expr.expression import BOOLEAN, Column, identifier
from weft.logical.query.window import UNBOUNDED, Rows, Window
from weft.logical.schema import DataType, Stream

__all__ = ["ARRIVAL", "PRESENT", "Input"]

PRESENT, ARRIVAL = "$present", "$arrival"
_TIMESTAMP = DataType("timestamp")


@dataclass(frozen=True, slots=True)
class Input:
    """A stream under the name a query gives it, with the window it is seen through."""

    alias: str
    stream: Stream
    window: Window = UNBOUNDED

    @property
    def event_time(self) -> Column | None:
        """The column that tells a tuple's time, if one does."""
        name = self.stream.event_time
        return self.column(name) if name else None

    def column(self, name: str) -> Column:
        """A column of this input; it must exist."""
        field = self.stream.schema.find(name)
        if field is None:
            raise QueryError(f"{self.alias} has no column {name!r}")
        return Column(self.alias, field.name, field.type)

    @property
    def present(self) -> Column:
        """A column that no stream has. It is TRUE for every tuple, so it is NULL where an outer join finds no tuple."""
        return Column(self.alias, PRESENT, BOOLEAN)

    @property
    def time(self) -> Column:
        """The column that tells a tuple's time; of a stream without event time, one that only Weft knows."""
        return self.event_time or Column(self.alias, ARRIVAL, _TIMESTAMP)

    @property
    def unnamed(self) -> tuple[Column, ...]:
        """Columns that no stream has, and expressions may nevertheless read."""
        return (self.present, self.time) if self.event_time is None else (self.present,)

    @property
    def counted_per(self) -> tuple[Column, ...]:
        """The columns for each of whose values a `ROWS` window counts its own tuples; empty: it counts all together."""
        per = self.window.per if isinstance(self.window, Rows) else ()
        return tuple(map(self.column, per))

    def check_window(self) -> None:
        """Refuse a window of a table, and one that counts per a column that the stream does not have."""
        if self.stream.table and self.window != UNBOUNDED:
            raise QueryError(
                f"{self.stream.name} is a table, and has no window: all of its rows are looked up",
                hint="leave out the window, or register it as a stream",
            )
        for name in self.window.per if isinstance(self.window, Rows) else ():
            field = self.stream.schema.find(name)
            if field is None or field.name != name:
                raise QueryError(
                    f"{self.stream.name} has no column {name!r} to count per",
                    hint=nearest(name, self.stream.schema.names),
                )

    @property
    def columns(self) -> tuple[Column, ...]:
        """All columns of this input."""
        return tuple(Column(self.alias, field.name, field.type) for field in self.stream.schema)

    @property
    def shown(self) -> tuple[Column, ...]:
        """The columns that ``SELECT *`` gives."""
        return tuple(column for column in self.columns if column.name != self.stream.hidden)

    def __str__(self) -> str:
        window = "" if self.window == UNBOUNDED else f" [{self.window}]"
        if self.stream.definition:
            return f"({' UNION ALL '.join(map(str, self.stream.definition))}){window} AS {identifier(self.alias)}"
        name = "" if self.alias == self.stream.name else f" AS {identifier(self.alias)}"
        return f"{identifier(self.stream.name)}{window}{name}"
