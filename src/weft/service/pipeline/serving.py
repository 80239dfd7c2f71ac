"""What a pipeline file says to the service that runs it: what requests may name, and how much is too much.

Guarantees: a request names a path, a server or a table only if an entry under ``allow`` names it by a pattern, and
options that could do harm only if the same entry names them too. Paths are compared when they are resolved: neither
``..`` nor a symbolic link leads out of what is allowed, be it in the path that is named or, later, among the files of
an added stream, each of which is resolved when it is read (`files/opening.py`). URIs of object stores are compared
in their one spelling, and only with patterns that name the bucket. Without ``allow``, requests have memory alone.

    allow:
      sources:
        - {files: parquet, path: in/**}           # ** is any depth, * one name
        - {files: csv, path: drop/*, clean: delete}
        - {files: parquet, path: "s3://bucket/in/**"}   # s3a:// is the same; the bucket has no wildcards
        - {rate: "*"}
        - {kafka: views-*, servers: "host:9092"}
      sinks:
        - {parquet: out/*}
        - {postgres: "public.*", dsn: "env:WAREHOUSE"}
        - console
    serve:
      host: 127.0.0.1                             # elsewhere, tokens are demanded
      port: 8080
      hosts: [weft.example.org]                   # further names that requests may address it by
      rate: 50                                    # requests per second and client, after a burst
      burst: 200
      body_bytes: 262144                          # of a request
      live_readers: 1000                          # who follow results live, all together
      live_readers_each: 200                      # and of one token
      plan_seconds: 10                            # that the plan of a query may take which is only to be seen
      result_rows: 10000                          # that are kept of a query
      result_bytes: 67108864
      lineage: lineage.jsonl                      # or http://catalogue/api/v1/lineage: OpenLineage's events go there
      otel: true                                  # metrics and traces go where OpenTelemetry's variables say
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from weft.errors import ConfigError
from weft.service.pipeline.document import Node
from weft.storage.uris import is_object_uri, normal_place

__all__ = ["Allowed", "ServeSettings", "read_allowed", "read_serving"]

# Entries whose values are paths.
_PATHS = ("path", "archive", "parquet", "delta", "avro_schema")
# Entries whose values may also be URIs of object stores.
_PLACES = ("path", "parquet", "delta")
# Options that do no harm, so that an entry need not name them.
_HARMLESS = (
    *("max_files_per_batch", "recursive", "unfinished_after", "missing"),
    *("delimiter", "quote", "encoding", "null", "seed", "columns"),
    *("compression", "batch_column", "partition_by", "key"),
    *("format", "starting", "max_records_per_batch", "subject", "expired", "timeout"),
)


@dataclass(frozen=True, slots=True)
class ServeSettings:
    """Where a service listens, and its limits."""

    host: str = "127.0.0.1"
    port: int = 8080
    hosts: tuple[str, ...] = ()
    rate: float = 50.0
    burst: int = 200
    body_bytes: int = 256 << 10
    live_readers: int = 1000
    live_readers_each: int = 200
    plan_seconds: float = 10.0
    result_rows: int = 10_000
    result_bytes: int = 64 << 20
    lineage: str | None = None
    otel: bool = False


@dataclass(frozen=True, slots=True)
class Allowed:
    """The sources and sinks that requests may name; paths in patterns begin at ``root``."""

    root: Path = Path()
    sources: tuple[Mapping[str, Any], ...] = ()
    sinks: tuple[Mapping[str, Any], ...] = ()
    closed: tuple[Path | str, ...] = ()  # places that nothing may name, such as the checkpoint

    def source(self, asked: Mapping[str, Any]) -> dict[str, Any] | None:
        """The source that a request describes, with resolved paths, if it is allowed; else None."""
        found = self._first(asked, self.sources)
        return None if found is not None and self._covers_closed(found) else found

    def _covers_closed(self, source: Mapping[str, Any]) -> bool:
        """Whether folders inside a source are read, and one of them is a place that nothing may name."""
        path = source.get("path")
        if not source.get("recursive") or not isinstance(path, str) or is_object_uri(path):
            return False
        closed = (os.path.realpath(one) for one in self.closed if isinstance(one, Path))
        return any(Path(one).is_relative_to(path) for one in closed)

    def sink(self, asked: str | Mapping[str, Any]) -> str | dict[str, Any] | None:
        """The sink that a request describes, with resolved paths, if it is allowed; else None."""
        if isinstance(asked, str):
            return asked if asked == "memory" or self._first({asked: ""}, self.sinks) is not None else None
        return self._first(asked, self.sinks)

    def _first(
        self, asked: Mapping[str, Any], entries: tuple[Mapping[str, Any], ...]
    ) -> dict[str, Any] | None:
        return next((found for entry in entries if (found := self._match(asked, entry)) is not None), None)

    def _match(self, asked: Mapping[str, Any], entry: Mapping[str, Any]) -> dict[str, Any] | None:
        if not set(entry) <= set(asked):
            return None
        found = dict(asked)
        for name, value in asked.items():
            if name in _PATHS and name in entry:
                path = self._resolve(str(entry[name]), value)
                if path is None:
                    return None
                found[name] = path
            elif name in entry:
                if not _fits(entry[name], value):
                    return None
            elif not (name in _HARMLESS or (name == "glob" and _is_name(value))):
                return None
        return found

    def _resolve(self, pattern: str, value: object) -> str | None:
        """The path or URI that a request names, in its one spelling, if it fits a pattern."""
        if not isinstance(value, str):
            return None
        return self._object(pattern, value) if is_object_uri(pattern) else self._path(pattern, value)

    def _object(self, pattern: str, value: str) -> str | None:
        """The URI that a request names; stores may take names of buckets for the same in upper and lower case."""
        if not is_object_uri(value):
            return None
        try:
            allowed, place = normal_place(pattern), normal_place(value)
        except ConfigError:
            return None
        closed = [str(one).lower() for one in self.closed if is_object_uri(one)]
        if any(f"{place.lower()}/".startswith(f"{one}/") for one in closed):
            return None
        return place if _fits_parts(tuple(allowed.split("/")), tuple(place.split("/"))) else None

    def _path(self, pattern: str, value: str) -> str | None:
        """The path that a request names, resolved."""
        if not value.strip() or "\0" in value or _has_scheme(value):
            return None
        if ".." in Path(value).parts:
            return None
        try:
            path = Path(os.path.realpath(self.root / value))
            fixed, wild = _split(pattern)
            top = Path(os.path.realpath(self.root / fixed))
            if any(
                path.is_relative_to(os.path.realpath(one)) for one in self.closed if isinstance(one, Path)
            ):
                return None
            inside = path.is_relative_to(top) and _fits_parts(wild, path.relative_to(top).parts)
        except (OSError, ValueError):
            return None
        return str(path) if inside else None


def _has_scheme(text: str) -> bool:
    return re.match(r"[A-Za-z][\w+.-]+:", text) is not None


def _is_name(value: object) -> bool:
    """Whether a pattern of files stays in its directory."""
    return isinstance(value, str) and "/" not in value and "\\" not in value and ".." not in value


def _split(pattern: str) -> tuple[Path, tuple[str, ...]]:
    """The part of a path's pattern without wildcards, and the names that follow it."""
    parts = Path(pattern).parts
    wild = next((place for place, part in enumerate(parts) if "*" in part or "?" in part), len(parts))
    return Path(*parts[:wild]), parts[wild:]


def _fits_parts(patterns: tuple[str, ...], names: tuple[str, ...]) -> bool:
    if not patterns:
        return not names
    if patterns[0] == "**":
        return any(_fits_parts(patterns[1:], names[skip:]) for skip in range(len(names) + 1))
    return bool(names) and fnmatchcase(names[0], patterns[0]) and _fits_parts(patterns[1:], names[1:])


def _fits(pattern: Any, value: object) -> bool:
    """Whether a value fits a pattern, or every value of a mapping its own."""
    if isinstance(pattern, Mapping) or isinstance(value, Mapping):
        both = isinstance(pattern, Mapping) and isinstance(value, Mapping) and set(pattern) == set(value)
        return both and all(_fits(pattern[name], value[name]) for name in pattern)  # type: ignore[index]
    if isinstance(value, list):
        return all(_fits(pattern, one) for one in value)
    return isinstance(value, str | int | float) and fnmatchcase(_text(value), _text(pattern))


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_allowed(node: Node, root: Path, checkpoint: Path | str | None) -> Allowed:
    """What a file allows requests to name."""
    found = node.section(("sources", "sinks"))
    closed = () if checkpoint is None else (checkpoint,)
    entries = {name: _entries(found[name]) if name in found else () for name in ("sources", "sinks")}
    return Allowed(root, entries["sources"], entries["sinks"], closed)


def _entries(node: Node) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(node.value, list):
        raise node.error("what is allowed is a list", "as in [{files: parquet, path: in/**}]")
    found: list[Mapping[str, Any]] = []
    for place, value in enumerate(node.value):
        entry = Node(node.file, f"{node.where}[{place}]", value)
        if isinstance(value, str):
            found.append({value: "*"})
            continue
        names = {name: one.value for name, one in entry.section(list(entry.mapping())).items()}
        if not names:
            raise entry.error("nothing is named", "as in {files: parquet, path: in/**}")
        for name, one in names.items():
            _check_pattern(entry.entry(name), name, str(one))
        found.append(names)
    return tuple(found)


def _check_pattern(node: Node, name: str, pattern: str) -> None:
    """Refuse a pattern of URIs that no request could fit."""
    if name not in _PATHS or not is_object_uri(pattern):
        return
    if name not in _PLACES:
        raise node.error(f"{name} is no place in an object store", "name a path")
    if "?" in pattern:
        raise node.error("a pattern of URIs has no ?", "use * for one name, ** for any depth")
    with node.at():
        normal_place(pattern)


def read_serving(node: Node) -> ServeSettings:
    """How a file wants to be served."""
    found = node.section([field.name for field in fields(ServeSettings)])
    given: dict[str, Any] = {}
    for name, one in found.items():
        if name == "host":
            given[name] = one.text("as in 127.0.0.1")
        elif name == "lineage":
            given[name] = one.text("as in lineage.jsonl, or http://127.0.0.1:5000/api/v1/lineage")
        elif name == "otel":
            given[name] = one.flag()
        elif name == "hosts":
            given[name] = tuple(one.texts("as in [weft.example.org]"))
        else:
            given[name] = one.figure() if name in ("rate", "plan_seconds") else one.integer()
            least = 0 if name == "port" else 1
            if given[name] < least or (name == "port" and given[name] > 65_535):
                raise one.error(f"{given[name]:g} is out of range", f"use {least} or more")
    return ServeSettings(**given)
