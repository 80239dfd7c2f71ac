"""The command line.

Guarantees: what a user did wrong is shown as a message with a remedy and exit code 2, never as a stack trace.
"""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

import weft
from weft.errors import ConfigError, WeftError, nearest
from weft.optimizer.optimizer import STRATEGIES
from weft.plan.graph import CODEC
from weft.service.bench import find_benchmarks, load_benchmark
from weft.service.pipeline import Pipeline, load_pipeline
from weft.session import PlannedQuery

__all__ = ["app", "main"]

app = typer.Typer(help=(weft.__doc__ or "").split("\n")[0], no_args_is_help=True, add_completion=False)


class Format(str, Enum):
    """How a plan is shown."""

    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"


Strategy = Enum("Strategy", {name: name for name in STRATEGIES}, type=str)  # type: ignore[misc]


@app.command()
def explain(
    file: Annotated[Path, typer.Argument(help="A pipeline file: streams, statistics and queries in YAML.")],
    query: Annotated[str | None, typer.Option(help="Only the query of this name.")] = None,
    strategy: Annotated[Strategy | None, typer.Option(help="Plan by this strategy.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Show all strategies side by side.")] = False,
    format: Annotated[Format, typer.Option(help="How to show the plan.")] = Format.TEXT,  # noqa: A002
) -> None:
    """Show the plan of every query of a pipeline, with expected rates and costs."""
    pipeline = load_pipeline(file)
    chosen = strategy.value if strategy else None
    for name, text in _chosen_queries(pipeline, query):
        planned = pipeline.session.query(text, name=name, strategy=chosen)
        typer.echo(_show(planned, format))
        if compare and format is Format.TEXT:
            typer.echo(pipeline.session.compare(planned.query))


def _chosen_queries(pipeline: Pipeline, name: str | None) -> list[tuple[str, str]]:
    if name is None:
        return list(pipeline.queries.items())
    if name not in pipeline.queries:
        raise ConfigError(f"the pipeline has no query {name!r}", hint=nearest(name, pipeline.queries))
    return [(name, pipeline.queries[name])]


def _show(planned: PlannedQuery, format_: Format) -> str:
    if format_ is Format.MERMAID:
        return planned.diagram()
    return planned.explain() if format_ is Format.TEXT else CODEC.dumps(planned.graph)


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Which benchmark; none lists them.")] = None,
) -> None:
    """Run a benchmark; what follows its name goes to it."""
    if name is None:
        for known, path in find_benchmarks().items():
            first = path.read_text(encoding="utf-8").split("\n")[0].strip('"')
            typer.echo(f"{known:12} {first}")
        return
    raise typer.Exit(load_benchmark(name)(context.args))


@app.command()
def version() -> None:
    """Show the version."""
    typer.echo(f"weft {weft.__version__}")


def main() -> None:
    """The entry point of the command."""
    try:
        app(standalone_mode=True)
    except WeftError as error:
        typer.echo(str(error), err=True)
        sys.exit(2)
