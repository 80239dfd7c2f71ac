"""Weft in IPython and notebooks: results as tables, and SQL in a cell of its own (`%%weft`).

Guarantees: nothing here loads IPython: who runs in it has loaded it. An error about the SQL of a cell is shown as Weft
words it, without a traceback. A query is registered only if its cell has no mistake.
"""

from __future__ import annotations

import shlex
import sys
from argparse import ArgumentParser
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa

from weft.connectors.memory.sink import to_memory
from weft.errors import ConfigError, WeftError
from weft.logical.html_table import html_table

if TYPE_CHECKING:
    from weft.session.session import Session

__all__ = ["load_ipython_extension", "show_tables_in_notebooks", "weft_cell"]

SHOWN_ROWS = 10  # of a table


def load_ipython_extension(shell: Any) -> None:
    """What ``%load_ext weft`` does: it adds the magic ``%%weft``, and tables of results are shown as such."""
    shell.register_magic_function(lambda line, cell=None: weft_cell(shell, line, cell), "line_cell", "weft")
    show_tables_in_notebooks(shell)


def show_tables_in_notebooks(shell: Any = None) -> None:
    """Have IPython, if this process runs in it, show a `pyarrow.Table` by its first rows; else it shows types."""
    ipython = sys.modules.get("IPython")
    shell = shell or (ipython.get_ipython() if ipython is not None else None)
    formatter = getattr(shell, "display_formatter", None)
    if formatter is not None and pa.Table not in (html := formatter.formatters["text/html"]).type_printers:
        html.for_type(pa.Table, table_html)


def table_html(table: pa.Table) -> str:
    """The first rows of a table."""
    first = table.slice(0, SHOWN_ROWS).to_pylist()
    cells = [[str(value) for value in row.values()] for row in first]
    more = f", of which {SHOWN_ROWS} are shown" if table.num_rows > SHOWN_ROWS else ""
    return html_table(table.column_names, cells, f"{table.num_rows:,} rows{more}")


class _Options(ArgumentParser):
    """Reads what stands after ``%%weft``; a mistake is an error of Weft's, where argparse would end the process."""

    def error(self, message: str) -> NoReturn:
        raise ConfigError(f"%%weft: {message}", hint=self.format_usage().strip())


def _options() -> _Options:
    options = _Options("%%weft", add_help=False)
    options.add_argument("name", nargs="?", help="the query's name, under which it is a variable, too")
    options.add_argument("--session", help="the variable that has the session; else the only one there is")
    options.add_argument("--strategy", help="by which strategy it is planned")
    options.add_argument("--preview", action="store_true", help="show the plan only")
    options.add_argument(
        "--run", action="store_true", help="run over the input that is there; give the results"
    )
    return options


def weft_cell(shell: Any, line: str, cell: str | None) -> Any:
    """Plan the SQL of a cell with the notebook's session, into memory; shown are the query, its preview or results."""
    try:
        chosen = _options().parse_args(shlex.split(line))
        if not cell:
            raise ConfigError("%weft needs SQL", hint="write it into a cell that begins with %%weft")
        session = _session(shell.user_ns, chosen.session)
        if chosen.preview:
            return session.preview(cell, strategy=chosen.strategy)
        query = session.query(cell, name=chosen.name, sink=to_memory(), strategy=chosen.strategy)
        if query.name.isidentifier():
            shell.user_ns[query.name] = query
        if not chosen.run:
            return query
        if session.is_active:
            session.process_all_available()
        else:
            session.run_available()
        return query.results()
    except WeftError as error:
        print(error, file=sys.stderr)
        return None


def _session(variables: dict[str, Any], name: str | None) -> Session:
    """The session of a notebook, by the name of its variable, or the only one."""
    from weft.session.session import Session  # which shows tables by what is here

    sessions = {key: one for key, one in variables.items() if isinstance(one, Session) and key[:1] != "_"}
    if name is not None and name not in sessions:
        raise ConfigError(f"%%weft: {name} is no session", hint=f"there are: {', '.join(sessions) or 'none'}")
    if len({id(one) for one in sessions.values()}) != 1 and name is None:
        raise ConfigError(
            f"%%weft needs one session, and there are {len(sessions)}",
            hint="session = weft.Session(), or name its variable: %%weft --session NAME",
        )
    return sessions[name] if name is not None else next(iter(sessions.values()))
