"""Results on the terminal.

Guarantees: each batch with rows prints one table of its first rows and says how many there are. A replayed batch is
printed again: at least once, not exactly once.
"""

from __future__ import annotations

import pyarrow as pa
from rich.console import Console, Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from weft.connectors.common import as_table
from weft.errors import SinkError
from weft.logical.arguments import checked
from weft.ports.sink import ResultRows

__all__ = [
    "ConsoleSink",
    "to_console",
]


class ConsoleSink:
    """The first rows of each batch, printed."""

    exactly_once = False

    def __init__(self, rows: int, console: Console | None = None, title: str | None = None) -> None:
        if rows < 1:
            raise SinkError(f"to_console: cannot show {rows} rows", hint="use 1 or more")
        self._rows = rows
        self._title = f"{title}, " if title else ""
        self._console = console or Console()
        self._schema: pa.Schema | None = None

    def describe(self) -> dict[str, object]:
        """What is needed to make it again."""
        return {"kind": "console", "rows": self._rows}

    def open(self, schema: pa.Schema, owner: str | None = None) -> None:  # noqa: ARG002
        """Learn the columns."""
        self._schema = schema

    def recover(self, last_committed: int) -> None:
        """Do nothing: what was printed cannot be taken back."""

    def begin(self, batch_id: int) -> None:
        """Nothing to prepare."""

    def commit(self, batch_id: int, rows: ResultRows) -> None:
        """Print the batch."""
        table = as_table(rows, self._schema)
        if not table.num_rows:
            return
        shown = Table()
        for name in table.column_names:
            shown.add_column(escape(name))
        head = table.slice(0, self._rows)
        for row in zip(*(column.to_pylist() for column in head.columns), strict=True):
            shown.add_row(*("NULL" if value is None else escape(str(value)) for value in row))
        if table.num_rows > head.num_rows:
            shown.caption = f"… {table.num_rows - head.num_rows:,} more"
        # Not the table's own title, which would be broken to the width of a narrow one.
        title = Text(f"{self._title}batch {batch_id}: {_counted(table.num_rows)}", style="italic")
        self._console.print(Group(title, shown))


def _counted(rows: int) -> str:
    return f"{rows:,} row" + "s" * (rows != 1)


@checked(SinkError)
def to_console(rows: int = 20, *, console: Console | None = None, title: str | None = None) -> ConsoleSink:
    """The first ``rows`` of each batch on the terminal, or on Rich's ``console``, under a ``title``, at least once."""
    return ConsoleSink(rows, console, title)
