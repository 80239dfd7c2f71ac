"""`weft query`: queries of a running service, from the command line.

Guarantees: it does what `Client` does; rows go to the standard output, one JSON object a line, all else that is said
about them to the standard error.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from weft.errors import ConfigError
from weft.plan.show.figures import number

if TYPE_CHECKING:
    from weft.service.client import Client, Results
    from weft.service.hub.values import QueryInfo

__all__ = ["query_app"]

query_app = typer.Typer(help="List, add, stop and read queries of a running service.", no_args_is_help=True)

Url = Annotated[
    str,
    typer.Option(
        help="Where the service is; a token is taken from WEFT_TOKEN.", envvar="WEFT_URL", show_envvar=True
    ),
]
LOCAL = "http://127.0.0.1:8080"
Name = Annotated[str, typer.Argument(help="The name of a query.")]


def _client(url: str) -> Client:
    from weft.service.client import Client  # `weft --help` need not load it

    return Client(url)


@query_app.command("list")
def list_queries(
    url: Url = LOCAL,
    json_output: Annotated[bool, typer.Option("--json", help="Print the answer as it is.")] = False,
) -> None:
    """Show all queries and how they get on."""
    client = _client(url)
    if json_output:
        typer.echo(json.dumps([asdict(one) for one in client.queries()], default=str, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in ("query", "status", "results", "a second", "state", "sink"):
        table.add_column(head, justify="right" if head in ("results", "a second", "state") else "left")
    for one in client.queries():
        figures = (f"{one.results:,}", number(one.results_per_second), _state(one))
        status = f"{one.status}: {one.reason}" if one.reason and one.reason != one.status else one.status
        table.add_row(Text(one.name), Text(status), *map(Text, figures), Text(one.sink or "-"))
    Console(highlight=False).print(table)


def _state(one: QueryInfo) -> str:
    """What a query has of its own, and what it shares with others."""
    shared = f" + {number(one.shared_bytes)}B shared" if one.shared_bytes else ""
    return f"{number(one.own_bytes)}B{shared}"


@query_app.command()
def add(
    sql: Annotated[str, typer.Argument(help="The query; @FILE reads it from a file, - from the input.")],
    name: Annotated[str | None, typer.Option(help="Its name; it gets one otherwise.")] = None,
    url: Url = LOCAL,
    backfill: Annotated[bool, typer.Option("--backfill", help="Also give results of the past.")] = False,
    sink: Annotated[
        str | None, typer.Option(help='As in pipeline files, as JSON: {"parquet": "out/x"}.')
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Show the plan it would get, and run nothing.")
    ] = False,
) -> None:
    """Run a query from the next batch on."""
    client, text = _client(url), _text(sql)
    if plan:
        typer.echo(client.plan(text).explain)
        return
    given = {} if sink is None else {"sink": _sink(sink)}
    found = client.create(text, name=name, backfill=backfill, **given)
    typer.echo(f"query {found.name}: {found.status}")


def _text(given: str) -> str:
    if given == "-":
        return sys.stdin.read()
    if not given.startswith("@"):
        return given
    try:
        return Path(given[1:]).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {given[1:]}: {error}") from None


def _sink(given: str) -> object:
    if not given.lstrip().startswith("{"):
        return given
    try:
        return json.loads(given)
    except ValueError as error:
        raise ConfigError(f"--sink is not JSON: {error}", hint='as in {"parquet": "out/x"}') from None


@query_app.command()
def stop(name: Name, url: Url = LOCAL) -> None:
    """Run a query no longer; the others go on."""
    found = _client(url).stop(name)
    typer.echo(
        f"query {found.name}: {found.status if found.status == 'stopped' else 'stops with the next batch'}"
    )


@query_app.command()
def results(
    name: Name,
    url: Url = LOCAL,
    after: Annotated[int, typer.Option(min=-1, help="Only results after this number; -1: to come.")] = 0,
    limit: Annotated[int, typer.Option(min=1, help="At most so many.")] = 100,
    follow: Annotated[bool, typer.Option("--follow", help="Go on with results as they come.")] = False,
) -> None:
    """Print the results of a query that the service keeps, one JSON object a line."""
    client, origin, left = _client(url), None, limit
    while left > 0 and after >= 0:
        page = client.results(name, after, min(left, 1000), origin=origin)
        _show(page)
        after, origin, left = page.last, page.origin, left - len(page.rows)
        if page.last >= page.newest:
            break
    if follow:
        for page in client.follow(name, after, origin=origin):
            _show(page)


def _show(page: Results) -> None:
    if page.restarted:
        typer.echo("note: the numbers of results have begun anew", err=True)
    if page.missed:
        typer.echo(f"note: {page.missed:,} results are gone", err=True)
    for row in page.rows:
        typer.echo(json.dumps(row, ensure_ascii=False))


@query_app.command()
def explain(
    name: Annotated[str | None, typer.Argument(help="The name of a query; all, if none is given.")] = None,
    url: Url = LOCAL,
) -> None:
    """Show the plan of a query, or of all."""
    typer.echo(_client(url).explain(name))
