"""The command line.

Guarantees: what a user did wrong is shown as a message with a remedy and exit code 2, never as a stack trace; then
nothing else is shown. Plans go to the standard output, notes to the standard error. A command loads what it needs when
it runs, so that `weft --help` answers at once.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import Annotated, TypeVar

import typer

import weft
from weft.errors import ConfigError, WeftError
from weft.logical.times import parse_duration
from weft.optimizer.single.strategies import STRATEGIES
from weft.optimizer.space import PROBE_ORDERS
from weft.service.commands.checkpoint import checkpoint_app, named_checkpoint, watermark
from weft.service.commands.queries import LOCAL, Url, query_app

__all__ = ["app", "main"]

app = typer.Typer(help=(weft.__doc__ or "").split("\n")[0], no_args_is_help=True)
app.add_typer(query_app, name="query")
app.add_typer(checkpoint_app, name="checkpoint")
app.command()(watermark)


class StateFormat(str, Enum):
    """How a checkpoint is shown."""

    TEXT = "text"
    JSON = "json"


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


AsJson = Annotated[bool, typer.Option("--json", help="For machines: the same as --format json.")]
Shown = TypeVar("Shown", bound=Enum)


def _format(asked: Shown, machine: Shown, as_json: bool) -> Shown:
    """The format that options ask for, of which --json may not contradict --format."""
    if as_json and asked.value not in ("text", machine.value):
        raise ConfigError(f"--json is not --format {asked.value}", hint="leave out one of them")
    return machine if as_json else asked


@app.command()
def explain(
    file: Annotated[Path, typer.Argument(help="A pipeline file: streams, statistics and queries in YAML.")],
    query: Annotated[str | None, typer.Option(help="Only the query of this name.")] = None,
    strategy: Annotated[Strategy | None, typer.Option(help="Plan by this strategy.")] = None,
    probe_orders: Annotated[ProbeOrders | None, typer.Option(help="How to choose probe orders.")] = None,
    compare: Annotated[bool, typer.Option("--compare", help="Show all strategies side by side.")] = False,
    analyze: Annotated[
        bool, typer.Option("--analyze", help="Show where time and memory went in the last batches.")
    ] = False,
    format: Annotated[Format, typer.Option(help="How to show the plan.")] = Format.TEXT,  # noqa: A002
    as_json: AsJson = False,
    no_functions: NoFunctions = False,
) -> None:
    """Show the plan of every query of a pipeline, with expected rates and costs.

    The Python modules that the file names under "functions" are imported, which runs their code. With --analyze, the
    checkpoint of the pipeline is read, whether or not it runs: what each step of the last batches cost, and a bill for
    each query.
    """
    from weft.service.commands.explain import analysis_of, notes_on, plan_queries, plans_json, plans_text
    from weft.service.pipeline import load_pipeline

    format = _format(format, Format.JSON, as_json)  # noqa: A001
    if compare and format is not Format.TEXT:
        raise ConfigError(f"--compare is a text, not {format.value}", hint="leave out --compare or --format")
    pipeline = load_pipeline(file, functions=not no_functions)
    if analyze:
        if compare or format is Format.MERMAID:
            raise ConfigError("--analyze is of what ran", hint="leave out --compare and --format mermaid")
        analysis = analysis_of(pipeline, query)
        typer.echo(json.dumps(analysis.to_dict()) if format is Format.JSON else str(analysis))
        return
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
    from weft.service.commands.run import RunOptions, run_pipeline
    from weft.service.pipeline import load_pipeline

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
    from weft.service.commands.serve import ServeOptions, serve_pipeline
    from weft.service.pipeline import load_pipeline

    state = named_checkpoint(checkpoint)
    pipeline = load_pipeline(file, functions=not no_functions, idle=True, checkpoint=state, master=master)
    serve_pipeline(pipeline, ServeOptions(host, port, tuple(token_file or ()), certificate, key))


@app.command()
def apply(
    file: Annotated[Path, typer.Argument(help="A pipeline file: what the service is to be.")],
    url: Url = LOCAL,
    yes: Annotated[bool, typer.Option("--yes", help="Make the changes without asking.")] = False,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only show them; the exit code is 3 if there are any."),
    ] = False,
    keep: Annotated[
        bool, typer.Option("--keep", help="Leave queries and streams alone that the file does not name.")
    ] = False,
    json_output: Annotated[
        bool, typer.Option("--json", help="Print the changes as JSON; needs --yes or --dry-run.")
    ] = False,
    no_functions: NoFunctions = False,
) -> None:
    """Make a running service what a pipeline file says: add, replace and stop queries, after showing which.

    The Python modules that the file names under "functions" are imported, which runs their code.
    """
    from weft.service.commands.apply import ApplyOptions, apply_file  # other commands need not load it

    options = ApplyOptions(yes, dry_run, keep, json_output, functions=not no_functions)
    raise typer.Exit(apply_file(file, url, options))


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
    from weft.service.demo import run_demo, run_kafka_demo

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
    as_json: Annotated[bool, typer.Option("--json", help="List the benchmarks for machines.")] = False,
) -> None:
    """Run a benchmark; what follows its name goes to it. A checkout has them, an installed Weft does not."""
    from weft.service.bench import benchmark_titles, load_benchmark

    if as_json:
        typer.echo(json.dumps(benchmark_titles(), ensure_ascii=False))
        return
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
    as_json: AsJson = False,
) -> None:
    """Show what a checkpoint holds, also while a session runs: queries, watermarks, stores, files."""
    from weft.service.terminal.state_view import show_state

    show_state(directory, _format(format, StateFormat.JSON, as_json) is StateFormat.JSON)


@app.command()
def init(
    directory: Annotated[Path, typer.Argument(help="Where to: a directory that is new or empty.")],
    example: Annotated[
        str, typer.Option(help="What to write instead of a first project; `weft examples` lists them.")
    ] = "first",
) -> None:
    """Write a first project: data of two streams, a pipeline file, the same in Python, and a test of it."""
    from weft.service.commands.init import init_project

    for file in init_project(directory, example):
        typer.echo(f"wrote {file}")
    if (readme := directory / "README.md").exists():
        typer.echo(f"\ncd {directory}, and then, as {readme.name} says:\n")
        shown = readme.read_text(encoding="utf-8").split("```sh\n")[1].split("```")[0]
        typer.echo("".join(f"  {line}\n" for line in shown.splitlines()), nl=False)


@app.command()
def examples(
    as_json: Annotated[bool, typer.Option("--json", help="For machines.")] = False,
) -> None:
    """List the examples; `weft init DIR --example NAME` writes one into a directory."""
    from weft.service.commands.init import example_titles

    titles = example_titles()
    lines = (f"{name:12} {title}" for name, title in titles.items())
    typer.echo(json.dumps(titles, ensure_ascii=False) if as_json else "\n".join(lines))


@app.command()
def warm(
    file: Annotated[
        Path | None, typer.Argument(help="A pipeline file; only what its queries need is compiled.")
    ] = None,
    no_functions: NoFunctions = False,
) -> None:
    """Compile the kernels, once on a machine, so that no later run waits for it."""
    from rich.console import Console

    from weft.service.pipeline import load_pipeline
    from weft.service.startup import prepare_kernels

    began, queries = time.monotonic(), None
    if file is not None:
        pipeline = load_pipeline(file, functions=not no_functions)
        queries = [pipeline.parse(name) for name in pipeline.queries]
    prepare_kernels(Console(stderr=True), queries)
    typer.echo(f"the kernels are ready, after {time.monotonic() - began:.1f} s")


@app.command()
def java() -> None:
    """Find the Java that Spark will run on, or get one: by apt-get if root, else into the virtual environment."""
    from weft.service.get_java import get_java

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
