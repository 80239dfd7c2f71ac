"""`weft apply`: makes a running service what a pipeline file says.

Guarantees: the difference is worked out and shown before anything changes, and what the service would refuse is
refused then, as far as it can be known. Queries are compared by what they mean (their text in normal form, order,
sink), not by how they are written. A query is replaced by stopping it first; a stream is added before the queries that
need it, and removed after those that read it. What cannot be changed while a service runs is an error, and nothing is
changed.
"""

from __future__ import annotations

import json
import posixpath
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import typer

from weft.connectors.sink_descriptions import place_of
from weft.errors import ConfigError, WeftError
from weft.service.client import Client, ServiceError
from weft.service.hub.values import QueryInfo, StreamInfo
from weft.service.pipeline import Pipeline, load_pipeline
from weft.service.pipeline.document import Node, read_document
from weft.session.planned_query import PlannedQuery

__all__ = ["DIFFERENT", "ApplyOptions", "Change", "apply_file", "differences", "make_changes"]

Action = Literal["add", "replace", "stop", "remove"]

SIGNS = {"add": "+", "replace": "~", "stop": "-", "remove": "-"}
DIFFERENT = 3  # the exit code of --dry-run where the service is not what the file says
FAILED = 1  # the exit code where some changes were made and another failed, or where nobody agreed
PATIENCE = 60.0  # seconds that a query may take to stop


@dataclass(frozen=True, slots=True)
class Change:
    """Something that has to happen to a stream or a query; ``before`` and ``after`` are as people write it.

    ``request`` is what the service is asked for, and ``why`` says in what a query that is replaced differs.
    """

    action: Action
    kind: Literal["stream", "query"]
    name: str
    before: str = ""
    after: str = ""
    why: tuple[str, ...] = ()
    request: Mapping[str, Any] | None = None

    def lines(self) -> Iterator[str]:
        """The change for people to read."""
        why = f"  ({', '.join(self.why)})" if self.why else ""
        yield f"{SIGNS[self.action]} {self.kind} {self.name}{why}"
        yield from (f"    - {self.before}",) if self.before and self.before != self.after else ()
        yield from (f"    + {self.after}",) if self.after and self.before != self.after else ()


@dataclass(frozen=True, slots=True)
class ApplyOptions:
    """What the command line says: whether to ask, to change nothing, to stop nothing, and to speak JSON."""

    yes: bool = False
    dry_run: bool = False
    keep: bool = False
    json_output: bool = False
    functions: bool = True


def apply_file(file: Path, url: str, options: ApplyOptions) -> int:
    """Show what has to happen for a service to be what a file says, and do it; gives the exit code."""
    if options.json_output and not (options.yes or options.dry_run):
        raise ConfigError("--json asks nobody", hint="add --yes or --dry-run")
    client = Client(url)
    pipeline = load_pipeline(file, functions=options.functions, idle=True)
    document = read_document(file.read_text(encoding="utf-8"), str(file))
    changes = differences(pipeline, document, client, keep=options.keep)
    if not options.json_output:
        _show(changes)
    if options.dry_run:
        _show_json(changes, (), options.json_output)
        return DIFFERENT if changes else 0
    if changes and not options.yes:
        if not sys.stdin.isatty():
            raise ConfigError("there is nobody to ask whether to make these changes", hint="add --yes")
        if not typer.confirm("Make these changes?"):
            return FAILED
    made = list[Change]()
    try:
        for change in make_changes(client, changes):
            made.append(change)
            if not options.json_output:
                typer.echo(f"{change.kind} {change.name}: {DONE[change.action]}")
    except WeftError as error:
        _show_json(changes, made, options.json_output, error)
        left = ", ".join(f"{one.kind} {one.name}" for one in changes[len(made) :])
        typer.echo(f"{error}\nnot done: {left}", err=True)
        return FAILED
    _show_json(changes, made, options.json_output)
    return 0


DONE = {"add": "added", "replace": "replaced", "stop": "stopped", "remove": "removed"}


def _show(changes: Sequence[Change]) -> None:
    for change in changes:
        typer.echo("\n".join(change.lines()))
    count = {action: sum(one.action == action for one in changes) for action in SIGNS}
    words = {"add": "to add", "replace": "to replace", "stop": "to stop", "remove": "to remove"}
    told = ", ".join(f"{number} {words[action]}" for action, number in count.items() if number)
    typer.echo(told or "the service is what the file says")


def _show_json(
    changes: Sequence[Change], made: Sequence[Change], wanted: bool, error: WeftError | None = None
) -> None:
    if wanted:
        content = {
            "changes": [
                {name: value for name, value in asdict(change).items() if name != "request"}
                for change in changes
            ],
            "made": [change.name for change in made],
            "error": None if error is None else error.message,
        }
        typer.echo(json.dumps(content, ensure_ascii=False))


def differences(
    pipeline: Pipeline, document: Node, client: Client, *, keep: bool = False
) -> tuple[Change, ...]:
    """What has to happen for a service to be what a file says, in the order in which it can; with ``keep``, no less."""
    streams, queries = {one.name: one for one in client.streams()}, client.queries()
    running = {one.name: one for one in queries if one.status != "stopped"}
    new_streams = _new_streams(pipeline, document, streams)
    planned = {name: pipeline.plan(name, pipeline.sinks.get(name)) for name in pipeline.queries}
    asked = list(_asked(pipeline, document, planned, running))
    for change in asked:
        if change.request is not None and not new_streams:
            _check(client, pipeline, change)
    if keep:
        return (*new_streams, *asked)
    stops = [
        Change("stop", "query", name, before=query.sql)
        for name, query in running.items()
        if name not in pipeline.queries
    ]
    named = {*document.entry("streams").mapping(), *document.entry("tables").mapping()}
    removed = [
        Change("remove", "stream", name, before=stream.source or "")
        for name, stream in streams.items()
        if stream.declared == "api" and name not in named
    ]
    return (*new_streams, *stops, *asked, *removed)


def _new_streams(pipeline: Pipeline, document: Node, streams: Mapping[str, StreamInfo]) -> tuple[Change, ...]:
    """The streams that the service does not have; one that is another there is an error, as it cannot be changed."""
    added = []
    for name, node in document.entry("streams").mapping().items():
        if name in streams:
            _check_same(pipeline, name, streams[name])
            continue
        entries = {"columns" if key == "schema" else key: value for key, value in _entries(node).items()}
        entries.pop("statistics", None)  # which are measured once it runs
        source = json.dumps(entries.get("source"), ensure_ascii=False)
        added.append(Change("add", "stream", name, after=source, request={"name": name, **entries}))
    for name, node in document.entry("tables").mapping().items():
        if name not in streams:
            raise node.error(
                f"the service has no table {name}", "tables are added by starting the service with this file"
            )
    return tuple(added)


def _entries(node: Node) -> dict[str, Any]:
    """The entries of a place of the file as they stand there, which is also how requests have them."""
    return {name: entry.value for name, entry in node.mapping().items()}


def _check_same(pipeline: Pipeline, name: str, there: StreamInfo) -> None:
    stream = pipeline.session.catalog.stream(name)
    columns = [f"{field.name} {field.type}" for field in stream.schema.fields]
    said = {
        "columns": (", ".join(columns), ", ".join(f"{one.name} {one.type}" for one in there.columns)),
        "event_time": (stream.event_time, there.event_time),
        "lateness": (stream.lateness.total_seconds(), there.lateness),
        "late": (stream.late, there.late_tuples),
    }
    for entry, (here, running) in said.items():
        if here != running:
            raise pipeline.place(f"streams.{name}.{entry}").error(
                f"{here} here, but {running} in the service, where a stream that runs cannot be changed",
                "start the service again with this file",
            )


def _asked(
    pipeline: Pipeline,
    document: Node,
    planned: Mapping[str, PlannedQuery],
    running: Mapping[str, QueryInfo],
) -> Iterator[Change]:
    """The queries of the file that do not run, or run as something else."""
    for name, node in document.entry("queries").mapping().items():
        request = {"name": name, **({"sql": node.value} if isinstance(node.value, str) else _entries(node))}
        text, there = str(planned[name].query), running.get(name)
        if there is None:
            yield Change("add", "query", name, after=text, request=request)
        elif why := tuple(_why_other(pipeline, planned[name], request, there)):
            yield Change("replace", "query", name, there.sql, text, why, request)


def _why_other(
    pipeline: Pipeline, planned: PlannedQuery, request: Mapping[str, Any], there: QueryInfo
) -> Iterator[str]:
    """In what a query of the file differs from the one of its name that runs."""
    ordering = planned.ordering
    if str(planned.query) != there.sql:
        yield "text"
    if (ordering.kind if ordering is not None else "none") != there.order:
        yield "order"
    elif (ordering.precision if ordering is not None else None) != there.precision:
        yield "precision"
    sink = pipeline.sinks.get(planned.name)
    place = place_of(sink) if sink is not None else None
    if place != there.place and not _is_same_path(request.get("sink"), there.place):
        yield f"sink: {there.place or there.sink} becomes {place or 'memory'}"


def _is_same_path(sink: object, place: str | None) -> bool:
    """Whether a sink's relative path, which begins where the service's own file is, is the place it has there."""
    paths = [value for value in sink.values() if isinstance(value, str)] if isinstance(sink, Mapping) else []
    return place is not None and any(place.endswith(f"/{posixpath.normpath(path)}") for path in paths)


def _check(client: Client, pipeline: Pipeline, change: Change) -> None:
    """Have the service plan a query that it is about to be asked for, so that it refuses it while all still runs."""
    given = {key: value for key, value in (change.request or {}).items() if key in PLANNED}
    try:
        client.plan(**given)
    except ServiceError as error:
        raise pipeline.place(f"queries.{change.name}").error(
            f"the service refuses it: {error.message}", error.hint or ""
        ) from None


PLANNED = ("sql", "order", "precision", "emit_unmatched_after")


def make_changes(client: Client, changes: Sequence[Change]) -> Iterator[Change]:
    """Make changes one after the other; gives each when it is made."""
    for change in changes:
        request = dict(change.request or {})
        if change.action in ("stop", "replace"):
            _stop(client, change.name)
        if change.action in ("add", "replace") and change.kind == "query":
            client.create(**request)
        elif change.action == "add":
            client.add_stream(**request)
        elif change.action == "remove":
            _patiently(lambda name=change.name: client.remove_stream(name))  # type: ignore[misc]
        yield change


def _stop(client: Client, name: str) -> None:
    """Stop a query, and wait until it has stopped."""
    client.stop(name)
    until = time.monotonic() + PATIENCE
    while client.query(name).status != "stopped":
        if time.monotonic() > until:
            raise ServiceError(f"query {name} has not stopped within {PATIENCE:g} seconds")
        time.sleep(0.1)


def _patiently(act: Callable[[], object]) -> None:
    """Do what is in conflict with a query until the batch is committed by which that has stopped."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            act()
            return
        except ServiceError as error:
            if error.status != 409 or time.monotonic() > until:
                raise
        time.sleep(0.2)
