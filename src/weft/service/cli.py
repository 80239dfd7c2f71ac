"""The command line.

Guarantees: what a user did wrong is shown as a message with a remedy and exit code 2, never as a stack trace; then
nothing else is shown. Plans go to the standard output, notes to the standard error.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

import weft
from weft.errors import ConfigError, WeftError
from weft.logical.times import parse_duration
from weft.optimizer.single.strategies import STRATEGIES
from weft.service.bench import benchmark_titles, load_benchmark
from weft.service.commands.checkpoint import checkpoint_app, named_checkpoint, watermark
from weft.service.commands.explain import notes_on, plan_queries, plans_json, plans_text
from weft.service.commands.queries import query_app
from weft.service.commands.run import RunOptions, run_pipeline
from weft.service.commands.serve import ServeOptions, serve_pipeline
from weft.service.demo import run_demo, run_kafka_demo
from weft.service.get_java import get_java
from weft.service.pipeline import PROBE_ORDERS, load_pipeline
from weft.service.terminal.state_view import StateFormat, show_state

__all__ = ["app", "main"]

app = typer.Typer(help=(weft.__doc__ or "").split("\n")[0], no_args_is_help=True, add_completion=False)
app.add_typer(query_app, name="query")
app.add_typer(checkpoint_app, name="checkpoint")
app.command()(watermark)


class Format(str, Enum):
    """How a plan is shown."""

    TEXT = "text"
    JSON = "json"
    MERMAID = "mermaid"


Strategy = Enum("Strategy", {name: name for name in STRATEGIES}, type=str)  # type: ignore[misc]
ProbeOrders = Enum("ProbeOrders", {name: name for name in PROBE_ORDERS}, type=str)  # type: ignore[misc]


NoFunctions = Annotated[
    bool,
    typer.Option(
        "--no-functions",
        help="Refuse a file that names functions: it imports the Python modules it names, and so runs code.",
    ),
]


@app.command()
def explain(
    file: Annotated[Path, typer.Argument(help="A pipeline file: streams, statistics and queries in YAML.")],
    query: Annotated[str | None, typer.Option(help="Only the query of this name.")] = None,
    strategy: Annotated[Strategy | None, typer.Option(help="Plan by this strategy.")] = None,
    probe_orders: Annotated[ProbeOrders | None, typer.Option(help="How to choose probe orders.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Show all strategies side by side.")] = False,
    format: Annotated[Format, typer.Option(help="How to show the plan.")] = Format.TEXT,  # noqa: A002
    no_functions: NoFunctions = False,
) -> None:
    """Show the plan of every query of a pipeline, with expected rates and costs.

    The Python modules that the file names under "functions" are imported, which runs their code.
    """
    if compare and format is not Format.TEXT:
        raise ConfigError(f"--compare is a text, not {format.value}", hint="leave out --compare or --format")
    pipeline = load_pipeline(file, functions=not no_functions)
    options = {"strategy": strategy, "probe_orders": probe_orders}
    chosen = {name: value.value for name, value in options.items() if value is not None}
    pipeline.session.options = replace(pipeline.session.options, **chosen)
    # Everything is planned before anything is shown: an error leaves no half of an answer behind.
    planned = plan_queries(pipeline, query)
    if format is Format.JSON:
        shown = plans_json(planned if query is None else planned[0])
    elif format is Format.MERMAID:
        shown = "\n".join(each.diagram() for each in planned)
    else:
        shown = plans_text(pipeline, planned, compare)
    for note in notes_on(pipeline):
        typer.echo(f"note: {note}", err=True)
    typer.echo(shown)


Seconds = Annotated[
    str | None, typer.Option("--for", metavar="TIME", help="Stop after this time, as in 20s.")
]
Master = Annotated[str | None, typer.Option(help="The Spark to run on, as in local[4].")]


def _seconds(text: str | None) -> float | None:
    if text is None:
        return None
    try:
        seconds = parse_duration(text).total_seconds()
    except WeftError as error:
        raise ConfigError(f"--for: {error.message}", hint="write a number and a unit, as in 20s") from None
    if not seconds:
        raise ConfigError(f"--for: {text} is no time to run", hint="use --available-now, or a longer time")
    return seconds


@app.command()
def run(
    file: Annotated[Path, typer.Argument(help="A pipeline file whose streams have sources.")],
    available_now: Annotated[
        bool, typer.Option("--available-now", help="Stop when all that is there is processed.")
    ] = False,
    once: Annotated[
        bool,
        typer.Option(
            "--once", help="Take what is there for all there is: close rows without a partner, and stop."
        ),
    ] = False,
    seconds: Seconds = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Where to keep state: a directory or a URI; the file's if not given.")
    ] = None,
    master: Master = None,
    log: Annotated[Path | None, typer.Option(help="Add a line of JSON for each batch to this file.")] = None,
    json_lines: Annotated[bool, typer.Option("--json", help="Print a line of JSON for each batch.")] = False,
    no_functions: NoFunctions = False,
) -> None:
    """Run the queries of a pipeline until Ctrl-C, for some time, or until all is processed.

    The Python modules that the file names under "functions" are imported, which runs their code.
    """
    if once and available_now:
        raise ConfigError(
            "--once is the end of the input, and --available-now is not", hint="leave out one of them"
        )
    state = named_checkpoint(checkpoint)
    options = RunOptions(
        f"weft run {file.name}", available_now, _seconds(seconds), log, json_lines, once=once
    )
    pipeline = load_pipeline(file, functions=not no_functions, checkpoint=state, master=master)
    run_pipeline(pipeline, options)


@app.command()
def serve(
    file: Annotated[Path, typer.Argument(help="A pipeline file; queries may also come later, by requests.")],
    host: Annotated[
        str | None, typer.Option(help="Where to listen; 127.0.0.1 by default. Elsewhere needs tokens.")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="8080 by default; 0 takes any that is free.")
    ] = None,
    token_file: Annotated[
        list[Path] | None,
        typer.Option(help="Tokens, one a line, of as many files; WEFT_TOKEN and WEFT_READ_TOKEN count too."),
    ] = None,
    certificate: Annotated[Path | None, typer.Option(help="Serve HTTPS by this certificate.")] = None,
    key: Annotated[Path | None, typer.Option(help="The key of the certificate.")] = None,
    checkpoint: Annotated[
        str | None, typer.Option(help="Where to keep state: a directory or a URI; the file's if not given.")
    ] = None,
    master: Master = None,
    no_functions: NoFunctions = False,
) -> None:
    """Run a pipeline with an HTTP interface and a web page, until Ctrl-C.

    The Python modules that the file names under "functions" are imported, which runs their code.
    """
    state = named_checkpoint(checkpoint)
    pipeline = load_pipeline(file, functions=not no_functions, idle=True, checkpoint=state, master=master)
    serve_pipeline(pipeline, ServeOptions(host, port, tuple(token_file or ()), certificate, key))


@app.command()
def demo(
    seconds: Seconds = None,
    master: Master = None,
    keep: Annotated[
        Path | None, typer.Option(help="Keep pipeline, results and state in this directory.")
    ] = None,
    terminal: Annotated[bool, typer.Option("--terminal", help="In this terminal, without a page.")] = False,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Of the page: 8080 or another that is free.")
    ] = None,
    kafka: Annotated[
        bool,
        typer.Option("--kafka", help="Let rows and results go through topics of Kafka."),
    ] = False,
    servers: Annotated[
        str | None, typer.Option(help="With --kafka: the brokers to use, as in localhost:9092.")
    ] = None,
) -> None:
    """Join four generated streams by three queries, and watch on a web page: until Ctrl-C, or for some time.

    Without a terminal to stop it from, it runs without a page, for 20 seconds if no time is given.
    """
    if not kafka:
        if servers is not None:
            raise ConfigError("--servers is about Kafka", hint="add --kafka")
        run_demo(_seconds(seconds), master, keep, terminal=terminal, port=port)
        return
    if keep is not None:
        raise ConfigError("--keep is for the demo without Kafka", hint="leave out --keep or --kafka")
    run_kafka_demo(_seconds(seconds), master, servers)


# What follows a benchmark's name goes to the benchmark, also --help.
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "allow_interspersed_args": False}


@app.command(context_settings=_PASS_ON, add_help_option=False)
def bench(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help="Which benchmark; none lists them.")] = None,
    show_help: Annotated[
        bool, typer.Option("--help", help="Show this and the benchmarks; behind a name, its own help.")
    ] = False,
) -> None:
    """Run a benchmark; what follows its name goes to it."""
    if show_help:
        typer.echo(context.get_help())
    if show_help or name is None:
        typer.echo("\n".join(f"{known:12} {title}" for known, title in benchmark_titles().items()))
        return
    raise typer.Exit(load_benchmark(name)(context.args))


@app.command()
def state(
    directory: Annotated[
        str, typer.Argument(help="A checkpoint: a directory, or a URI such as s3://bucket/ck.")
    ],
    format: Annotated[StateFormat, typer.Option(help="How to show it.")] = StateFormat.TEXT,  # noqa: A002
) -> None:
    """Show what a checkpoint holds, also while a session runs: queries, watermarks, stores, files."""
    show_state(directory, format)


@app.command()
def java() -> None:
    """Find the Java that Spark will run on, or get one: by apt-get if root, else into the virtual environment."""
    home = get_java(typer.echo)
    typer.echo(f"Java {home.version or '(of a version that is not known)'}: {home.home}")


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
