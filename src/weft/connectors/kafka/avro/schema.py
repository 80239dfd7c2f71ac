"""Schemas of Avro, as values.

Guarantees: an `AvroSchema` is complete and valid as far as decoding depends on it: every name is known, sizes are
numbers, unions have no unions, logical types that do not fit the type they annotate are ignored, as Avro demands.
A record may contain itself; such types stand as names (`AvroType.kind` is ``named``) until `AvroSchema.resolve`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = [
    "AvroError",
    "AvroField",
    "AvroSchema",
    "AvroType",
    "parse_schema",
]

PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_LOGICAL = {
    "int": ("date", "time-millis"),
    "long": (
        *("timestamp-millis", "timestamp-micros", "timestamp-nanos", "time-micros"),
        *("local-timestamp-millis", "local-timestamp-micros", "local-timestamp-nanos"),
    ),
    "bytes": ("decimal",),
    "fixed": ("decimal", "uuid", "duration"),
    "string": ("uuid",),
}
_DEEPEST = 200  # schemas inside each other


class AvroError(ValueError):
    """A schema that is none, or values that cannot be what is asked of them."""


@dataclass(frozen=True, slots=True)
class AvroField:
    """A field of a record. ``default`` is its JSON if there is one, in a tuple of one."""

    name: str
    type: AvroType
    default: tuple[Any, ...] = ()
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AvroType:
    """A type: a primitive, ``fixed``, ``enum``, ``union``, ``record``, ``array``, ``map``, or ``named``.

    ``parts`` are the branches of a union, or the one type of an array's items or a map's values.
    """

    kind: str
    name: str = ""
    logical: str = ""
    size: int = 0
    precision: int = 0
    scale: int = 0
    symbols: tuple[str, ...] = ()
    parts: tuple[AvroType, ...] = ()
    fields: tuple[AvroField, ...] = ()

    def __str__(self) -> str:
        if self.kind == "union":
            return "[" + ", ".join(map(str, self.parts)) + "]"
        shown = f"{self.kind} {self.name}" if self.name and self.kind != "named" else self.name or self.kind
        return f"{shown} ({self.logical})" if self.logical else shown


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A type with the named types that it may mention; ``text`` is what it was read from."""

    root: AvroType
    names: Mapping[str, AvroType] = field(default_factory=dict)
    text: str = ""

    def resolve(self, type_: AvroType) -> AvroType:
        """The type itself where only its name stands."""
        return self.names[type_.name] if type_.kind == "named" else type_

    def branches(self, type_: AvroType) -> tuple[AvroType, ...]:
        """The types that a value may have: of a union its branches, else the type alone; names are resolved."""
        resolved = self.resolve(type_)
        return (
            tuple(self.resolve(part) for part in resolved.parts) if resolved.kind == "union" else (resolved,)
        )


def parse_schema(text: str, references: Iterable[str] = ()) -> AvroSchema:
    """The schema that a text of JSON describes; ``references`` are texts of schemas whose names it may use.

    >>> str(parse_schema('["null", {"type": "long", "logicalType": "timestamp-millis"}]').root)
    '[null, long (timestamp-millis)]'
    """
    names = dict[str, AvroType]()
    for other in references:
        _Parser(names).parse(_json(other), "", 0)
    return AvroSchema(_Parser(names).parse(_json(text), "", 0), names, text)


def _json(text: str) -> Any:
    stripped = text.strip()
    if stripped in PRIMITIVES:
        return stripped
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise AvroError(f"the schema is no JSON: {error}") from None


@dataclass
class _Parser:
    """Reads schemas; named types are added to ``names``."""

    names: dict[str, AvroType]

    def parse(self, text: Any, space: str, depth: int) -> AvroType:
        """The type of a piece of JSON, in a namespace."""
        if depth > _DEEPEST:
            raise AvroError("the schema is nested too deeply")
        if isinstance(text, str):
            return self._named(text, space)
        if isinstance(text, list):
            return self._union(text, space, depth)
        if not isinstance(text, dict) or "type" not in text:
            raise AvroError(f"{json.dumps(text)[:80]} is no type")
        kind = text["type"]
        if not isinstance(kind, str):
            return self.parse(kind, space, depth + 1)
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(kind, text, space, depth)
        if kind in ("array", "map"):
            inner = "items" if kind == "array" else "values"
            if inner not in text:
                raise AvroError(f"a type {kind} has no {inner!r}")
            return AvroType(kind, parts=(self.parse(text[inner], space, depth + 1),))
        return _with_logical(self._named(kind, space), text)

    def _named(self, name: str, space: str) -> AvroType:
        if name in PRIMITIVES:
            return AvroType(name)
        full = name if "." in name or not space else f"{space}.{name}"
        known_name = full if full in self.names else name
        if known_name not in self.names:
            raise AvroError(f"there is no type {name!r}")
        return AvroType("named", known_name)

    def _union(self, types: list[Any], space: str, depth: int) -> AvroType:
        parts = tuple(self.parse(type_, space, depth + 1) for type_ in types)
        if any(part.kind == "union" for part in parts):
            raise AvroError("a union stands directly in a union")
        keys = [part.name if part.name else part.kind for part in parts]
        if not parts or len(set(keys)) < len(keys):
            raise AvroError("a union is empty, or has a type twice")
        return AvroType("union", parts=parts)

    def _define(self, kind: str, definition: dict[str, Any], space: str, depth: int) -> AvroType:
        name, inside = _full_name(definition, space)
        if name in self.names:
            raise AvroError(f"the type {name} is defined twice")
        self.names[name] = AvroType("named", name)  # for fields of its own type
        if kind == "enum":
            symbols = definition.get("symbols")
            if not isinstance(symbols, list) or not all(isinstance(symbol, str) for symbol in symbols):
                raise AvroError(f"enum {name} has no list of symbols")
            made = AvroType("enum", name, symbols=tuple(symbols))
        elif kind == "fixed":
            size = definition.get("size")
            if not isinstance(size, int) or not 0 <= size < 1 << 31:
                raise AvroError(f"fixed {name} has no size")
            made = _with_logical(AvroType("fixed", name, size=size), definition)
        else:
            made = AvroType(
                "record", name, fields=self._fields(name, definition.get("fields"), inside, depth)
            )
        self.names[name] = made
        return AvroType("named", name)

    def _fields(self, record: str, definitions: Any, space: str, depth: int) -> tuple[AvroField, ...]:
        if not isinstance(definitions, list):
            raise AvroError(f"record {record} has no list of fields")
        fields = list[AvroField]()
        for definition in definitions:
            if (
                not isinstance(definition, dict)
                or not isinstance(definition.get("name"), str)
                or "type" not in definition
            ):
                raise AvroError(f"record {record} has a field without a name or a type")
            default = (definition["default"],) if "default" in definition else ()
            aliases = tuple(alias for alias in definition.get("aliases") or () if isinstance(alias, str))
            fields.append(
                AvroField(
                    definition["name"], self.parse(definition["type"], space, depth + 1), default, aliases
                )
            )
        names = [definition.name for definition in fields]
        if len(set(names)) < len(names):
            raise AvroError(f"record {record} has a field twice")
        return tuple(fields)


def _full_name(definition: Mapping[str, Any], space: str) -> tuple[str, str]:
    """The name of a named type with its namespace, and the namespace of what it contains."""
    name, own = definition.get("name"), definition.get("namespace", space)
    if not isinstance(name, str) or not _NAME.fullmatch(name) or not isinstance(own, str):
        raise AvroError(f"{name!r} is no name of a type")
    full = name if "." in name or not own else f"{own}.{name}"
    return full, full.rpartition(".")[0]


def _with_logical(type_: AvroType, definition: Mapping[str, Any]) -> AvroType:
    """The type with the logical one that its annotation names, if that one fits."""
    logical = definition.get("logicalType")
    if logical not in _LOGICAL.get(type_.kind, ()):
        return type_
    if logical != "decimal":
        return AvroType(type_.kind, type_.name, str(logical), type_.size)
    precision, scale = definition.get("precision"), definition.get("scale", 0)
    if not isinstance(precision, int) or not isinstance(scale, int) or not 0 <= scale <= precision:
        return type_
    return AvroType(type_.kind, type_.name, "decimal", type_.size, precision, scale)
