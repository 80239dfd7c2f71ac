"""Where the results of a pipeline file's queries go.

Guarantees: a description in the file becomes a sink, or an error at its place; nothing is written or connected to.
Relative paths begin where the pipeline file is. Secrets are not in the file: `env:NAME` and `file:PATH` say where they
are found when the run needs them.

    sink: console                                         # or {console: 5}: so many rows of each batch
    sink: memory                                          # to count results
    sink: {parquet: out/trolls, compression: zstd}        # and batch_column
    sink: {delta: lake/trolls, partition_by: country, compact: true}         # or partition_by: [country, day]
    sink: {iceberg: sales.trolls, catalog: lake}          # a catalog of PyIceberg's settings, or its properties:
    sink: {iceberg: sales.trolls, catalog: {type: rest, uri: "https://…", token: "env:TOKEN"}}
    sink: {postgres: sales.trolls, dsn: "env:WAREHOUSE", key: vid}           # or key: [vid, usr]
    sink: {kafka: trolls, servers: "host:9092", key: vid}                    # more in `pipeline.kafka`
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from weft.connectors.delta.sink import to_delta
from weft.connectors.files.parquet_sink import to_parquet
from weft.connectors.iceberg.sink import to_iceberg
from weft.connectors.memory.console import ConsoleSink, to_console
from weft.connectors.memory.sink import to_memory
from weft.connectors.postgres.sink import to_postgres
from weft.errors import nearest
from weft.ports.sink import Sink
from weft.service.pipeline.document import Node, resolve_path, resolve_reference
from weft.service.pipeline.kafka import SINK_OPTIONS, kafka_sink

__all__ = ["console_sink", "read_sink"]

Read: TypeAlias = Callable[[Node, Path], Any]  # an entry's value; paths in it begin at the given one


@dataclass(frozen=True, slots=True)
class SinkEntry:
    """What a file says of a sink: ``value`` stands at the name of the kind, the options beside it were read."""

    query: str
    value: Node
    options: Mapping[str, Any]
    root: Path


@dataclass(frozen=True, slots=True)
class SinkKind:
    """A kind of sink, named by an entry: how it is made, and which options stand beside that entry.

    ``alone`` makes the sink if only the kind is named; ``needed`` is what else the kind has to be told.
    """

    make: Callable[[SinkEntry], Sink]
    example: str
    options: Mapping[str, Read] = field(default_factory=dict)
    needed: tuple[str, ...] = ()
    alone: Callable[[str], Sink] | None = None


def read_sink(query: str, node: Node, root: Path) -> Sink:
    """The sink that a section describes, for the results of a query."""
    if isinstance(node.value, str):
        name = node.choice("sink", _SINKS)
        kind = _SINKS[name]
        if kind.alone is None:
            raise node.error(f"{name} needs more than its name", f"as in sink: {kind.example}")
        return kind.alone(query)
    found = {name: entry for name, entry in node.mapping().items() if entry.value is not None}
    kinds = [name for name in found if name in _SINKS]
    if len(kinds) != 1:
        wrong = next(iter(found), "") if not kinds else ""
        raise node.error("results go to one sink", f"{nearest(wrong, _SINKS)}; {_EXAMPLE}")
    name, kind = kinds[0], _SINKS[kinds[0]]
    options = {
        other: _option(name, kind, node, other)(entry, root)
        for other, entry in found.items()
        if other != name
    }
    for needed in kind.needed:
        if needed not in options:
            raise node.error(f"{name} needs {needed}", f"as in sink: {kind.example}")
    with node.at():
        return kind.make(SinkEntry(query, found[name], options, root))


def _option(name: str, kind: SinkKind, node: Node, option: str) -> Read:
    """How an option of a kind is read; an error if it has no such option."""
    if option in kind.options:
        return kind.options[option]
    if any(option in other.options for other in _SINKS.values()):
        raise node.entry(option).error(f"{name} has no {option}", "leave it out")
    raise node.error(f"unknown entry {option!r}", nearest(option, (name, *kind.options)))


def console_sink(query: str) -> ConsoleSink:
    """The first rows of each batch, under the query's name."""
    return to_console(5, title=query)


def _console(entry: SinkEntry) -> Sink:
    rows = entry.value.integer()
    with entry.value.at():
        return to_console(rows, title=entry.query)


def _memory(entry: SinkEntry) -> Sink:
    raise entry.value.error("memory has no options", "write sink: memory")


def _parquet(entry: SinkEntry) -> Sink:
    return to_parquet(resolve_path(entry.value, entry.root), **entry.options)


def _delta(entry: SinkEntry) -> Sink:
    return to_delta(resolve_path(entry.value, entry.root), **entry.options)


def _iceberg(entry: SinkEntry) -> Sink:
    return to_iceberg(entry.options["catalog"], entry.value.text("name a table, as in sales.trolls"))


def _postgres(entry: SinkEntry) -> Sink:
    options = dict(entry.options)
    return to_postgres(options.pop("dsn"), entry.value.text("name a table, as in sales.trolls"), **options)


def _kafka(entry: SinkEntry) -> Sink:
    return kafka_sink(entry.value, dict(entry.options))


def _text(node: Node, root: Path) -> str:  # noqa: ARG001
    return node.text()


def _flag(node: Node, root: Path) -> bool:  # noqa: ARG001
    return node.flag()


def _columns(node: Node, root: Path) -> str | list[str]:  # noqa: ARG001
    """One column, or several."""
    return (
        node.texts("as in [vid, usr]")
        if isinstance(node.value, list)
        else node.text("as in vid or [vid, usr]")
    )


def _catalog(node: Node, root: Path) -> str | dict[str, str]:
    """The name of a catalog, or its properties; those that are paths begin at ``root``."""
    if not isinstance(node.value, dict):
        return node.text("as in catalog: lake, or its properties: {type: rest, uri: …}")
    return {name: _property(name, entry, root) for name, entry in node.mapping().items()}


def _property(name: str, node: Node, root: Path) -> str:
    text = str(node.value).lower() if isinstance(node.value, bool) else resolve_reference(node, root)
    if name == "warehouse" and not text.startswith("env:"):
        return resolve_path(node, root)
    sqlite = "sqlite:///"
    return (
        f"{sqlite}{root / text.removeprefix(sqlite)}" if name == "uri" and text.startswith(sqlite) else text
    )


# Every kind of sink by the entry that names it.
_SINKS: dict[str, SinkKind] = {
    "console": SinkKind(_console, "{console: 5}", alone=console_sink),
    "memory": SinkKind(_memory, "memory", alone=lambda _: to_memory()),
    "parquet": SinkKind(_parquet, "{parquet: out/trolls}", {"compression": _text, "batch_column": _text}),
    "delta": SinkKind(_delta, "{delta: lake/trolls}", {"partition_by": _columns, "compact": _flag}),
    "iceberg": SinkKind(
        _iceberg, "{iceberg: sales.trolls, catalog: lake}", {"catalog": _catalog}, ("catalog",)
    ),
    "postgres": SinkKind(
        _postgres,
        '{postgres: sales.trolls, dsn: "env:WAREHOUSE"}',
        {"dsn": resolve_reference, "key": _columns},
        ("dsn",),
    ),
    "kafka": SinkKind(_kafka, '{kafka: matches, servers: "host:9092"}', SINK_OPTIONS, ("servers",)),
}
_EXAMPLE = "as in sink: {parquet: out/trolls} or sink: console"
