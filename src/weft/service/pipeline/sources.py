"""What the streams of a pipeline file are read from.

Guarantees: a description in the file becomes a source that is valid, or an error at its place; no file is opened and
nothing started. Relative paths begin where the pipeline file is.

    source: {files: parquet, path: in/videos, max_files_per_batch: 4}      # parquet, arrow, json or csv
    source: {files: csv, path: in, glob: "*.csv", recursive: true}         # and delimiter, quote, encoding, null
    source: {files: json, path: in, unfinished_after: 30 seconds, missing: skip, clean: archive, archive: done}
    source:
      rate: 2000                                         # generated rows per second
      seed: 1
      columns:
        id: sequence                                     # or {sequence: {start: 0, step: 1}}
        vid: {uniform: 100000}
        usr: {zipf: {count: 5000, exponent: 1.1}}
        geo: {choice: [US, GER]}                         # or {choice: {US: 0.3, GER: 0.7}}
        len: {drift: {from: {uniform: 100}, to: {uniform: 10}}}   # from one kind to another, as the dial is turned
        ts: timestamps                                   # or {timestamps: {start: 2024-01-01, jitter: 2 seconds}}
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from weft.connectors.files.parts import FORMATS
from weft.connectors.files.source import FilesSource, files
from weft.connectors.generate.drift import Dial, Drifting, drifting
from weft.connectors.generate.rate import Kind, RateSource, choice, sequence, timestamps, uniform, zipf
from weft.connectors.kafka.source import KafkaSource
from weft.errors import nearest
from weft.logical.schema import Schema
from weft.service.pipeline.document import Node, resolve_path
from weft.service.pipeline.kafka import kafka_source

__all__ = ["PipelineSource", "read_source"]

PipelineSource: TypeAlias = FilesSource | RateSource | KafkaSource

_EXAMPLE = "as in source: {files: parquet, path: in/videos} or source: {rate: 1000, columns: …}"


@dataclass(frozen=True, slots=True)
class SourceEntry:
    """What a file says of a stream's source, and of the stream's columns; paths in it begin at ``root``."""

    node: Node
    root: Path
    columns: Node | None
    schema: Schema | None


def read_source(node: Node, columns: Node | None, root: Path) -> PipelineSource:
    """The source that a section describes; ``columns`` is what the file says of the stream's columns."""
    kinds = [name for name in node.mapping() if name in _SOURCES]
    if len(kinds) != 1:
        raise node.error(f"a source is one of {', '.join(_SOURCES)}", _EXAMPLE)
    schema = None
    if columns is not None:
        text = columns.text()
        with columns.at():
            schema = Schema.parse(text)
    return _SOURCES[kinds[0]](SourceEntry(node, root, columns, schema))


_FILES: dict[str, Callable[[Node], Any]] = {
    "max_files_per_batch": Node.integer,
    "glob": Node.text,
    "recursive": Node.flag,
    "unfinished_after": Node.duration,
    "missing": Node.text,
    "clean": Node.text,
    "delimiter": Node.text,
    "quote": Node.text,
    "encoding": Node.text,
    "null": Node.text,
}


def _files(entry: SourceEntry) -> FilesSource:
    node, root = entry.node, entry.root
    found = node.section(("files", "path", "archive", *_FILES))
    if "path" not in found:
        raise node.error("files need a path", _EXAMPLE)
    format_ = node.entry("files").choice("format", FORMATS)
    path = resolve_path(found["path"], root)
    options = {name: read(found[name]) for name, read in _FILES.items() if name in found}
    if "archive" in found:
        options["archive"] = resolve_path(found["archive"], root)
    with node.at():
        return files(format_, path, schema=entry.schema, **options)


def _rate(entry: SourceEntry) -> RateSource:
    node = entry.node
    found = node.section(("rate", "seed", "columns"))
    if "columns" not in found:
        raise node.error(
            "generated rows need columns", "as in columns: {vid: {uniform: 1000}, ts: timestamps}"
        )
    columns = {name: _kind(column) for name, column in found["columns"].mapping().items()}
    seed = found["seed"].integer() if "seed" in found else 0
    per_second = node.entry("rate").integer()
    with node.at():
        drifts = any(isinstance(kind, Drifting) for kind in columns.values())
        source = RateSource(per_second, tuple(columns.items()), seed, Dial() if drifts else None)
        generated = source.schema
    if entry.columns is not None and entry.schema != generated:
        raise entry.columns.error(
            f"the columns that are generated are {generated}", "leave the schema out, or write it so"
        )
    return source


# Every kind of source by the entry that names it.
_SOURCES: dict[str, Callable[[SourceEntry], PipelineSource]] = {
    "files": _files,
    "rate": _rate,
    "kafka": lambda entry: kafka_source(entry.node, entry.schema, entry.root),
}


def _kind(node: Node) -> Kind:
    """How a column is generated: the name of a kind, alone or with its arguments."""
    if isinstance(node.value, str):
        name = node.choice("kind of column", _ALONE)
        return _ALONE[name]()
    found = node.mapping()
    if len(found) != 1:
        raise node.error("a column is of one kind", "as in {uniform: 1000}; " + nearest("", _KINDS))
    name, inner = next(iter(found.items()))
    if name not in _KINDS:
        raise node.error(f"there is no kind of column {name!r}", nearest(name, _KINDS))
    read = _KINDS[name](inner)
    with inner.at():
        return read()


_ALONE: dict[str, Callable[[], Kind]] = {"sequence": sequence, "timestamps": timestamps}


def _sequence(node: Node) -> Callable[[], Kind]:
    given = {name: found.integer() for name, found in node.section(("start", "step")).items()}
    return lambda: sequence(**given)


def _uniform(node: Node) -> Callable[[], Kind]:
    count = node.integer()
    return lambda: uniform(count)


# Zipf's weights are computed one by one when the source is made.
_MOST, _STEEPEST = 10_000_000, 10


def _zipf(node: Node) -> Callable[[], Kind]:
    found = node.section(("count", "exponent"))
    if "count" not in found:
        raise node.error("zipf needs a count", "as in {zipf: {count: 5000, exponent: 1.1}}")
    count = found["count"].integer()
    if count > _MOST:
        raise found["count"].error(f"{count} is too large", f"use at most {_MOST}")
    exponent = found["exponent"].figure() if "exponent" in found else 1.0
    if not 0 <= exponent <= _STEEPEST:
        raise found["exponent"].error(f"{exponent:g} is not between 0 and {_STEEPEST}")
    return lambda: zipf(count, exponent)


def _choice(node: Node) -> Callable[[], Kind]:
    if isinstance(node.value, dict):
        weights = {name: weight.figure() for name, weight in node.mapping().items()}
        return lambda: choice(weights)
    texts = node.texts("as in {choice: [US, GER]}; a text that YAML reads as something else needs quotes")
    return lambda: choice(texts)


def _timestamps(node: Node) -> Callable[[], Kind]:
    found = node.section(("start", "jitter"))
    given: dict[str, Any] = {}
    if "start" in found:
        given["start"] = found["start"].moment()
    if "jitter" in found:
        given["jitter"] = found["jitter"].duration()
    return lambda: timestamps(**given)


def _drift(node: Node) -> Callable[[], Kind]:
    found = node.section(("from", "to"))
    if len(found) != 2:
        raise node.error("a drift goes from one kind of column to another", _DRIFT)
    first, second = _kind(found["from"]), _kind(found["to"])
    if isinstance(first, Drifting) or isinstance(second, Drifting):
        raise node.error("a drift cannot be part of a drift", _DRIFT)
    return lambda: drifting(first, second)


_DRIFT = "as in {drift: {from: {uniform: 100}, to: {uniform: 10}}}"

_KINDS: dict[str, Callable[[Node], Callable[[], Kind]]] = {
    "drift": _drift,
    "sequence": _sequence,
    "uniform": _uniform,
    "zipf": _zipf,
    "choice": _choice,
    "timestamps": _timestamps,
}
