"""What a decoder does with each field of a writer's schema, given the columns that are wanted.

Guarantees: fields are found by name, else by another name that the reader's schema gives the column (an alias), else by
the name without case, as in files. A column that the writer has not is NULL, or has the reader's default. Types that
hold every value, and integers that are checked one by one, are converted; a branch of a union that cannot be the
column's type makes only those values bad that have it, and a field none of whose branches can is an `AvroError`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weft.bucket.compiled import Array, Longs
from weft.connectors.kafka.avro import machine as m
from weft.connectors.kafka.avro.schema import AvroError, AvroField, AvroSchema, AvroType
from weft.errors import nearest
from weft.logical.schema import DataType, Field

__all__ = [
    "Program",
    "compile_program",
    "decimal_scale",
    "find_field",
    "missing_column",
    "reads_whole",
]

_KINDS = {
    "null": m.NULL,
    "boolean": m.BOOLEAN,
    "int": m.INT,
    "long": m.LONG,
    "float": m.FLOAT,
    "double": m.DOUBLE,
    "bytes": m.BYTES,
    "string": m.BYTES,
    "fixed": m.FIXED,
    "enum": m.ENUM,
    "union": m.UNION,
    "record": m.RECORD,
    "array": m.ARRAY,
    "map": m.MAP,
}
_NESTED = ("record", "array", "map")
_TIMES = {"millis": 1000, "micros": 1, "nanos": -1000}  # to microseconds


@dataclass(frozen=True, slots=True)
class Program:
    """A writer's schema and wanted columns, as tables for `machine.decode_records`.

    ``sources`` are the writer's fields of the columns; None: it has no such field.
    """

    schema: AvroSchema
    fields: Array
    nodes: Array
    children: Longs
    symbols: tuple[bytes, ...]
    sources: tuple[AvroField | None, ...]
    names: tuple[str, ...]


def compile_program(
    schema: AvroSchema, columns: tuple[Field, ...], reader: AvroSchema | None = None
) -> Program:
    """The program of a schema; an `AvroError` if a column cannot be of the type that it is declared with."""
    written = record_fields(schema, columns)
    builder, sources, places = _Builder(schema), list[AvroField | None](), dict[int, int]()
    for number, column in enumerate(columns):
        place = find_field(written, column.name, _aliases(reader, column.name))
        sources.append(None if place is None else written[place])
        if place is not None:
            if place in places:
                raise AvroError(f"columns {columns[places[place]].name} and {column.name} are the same field")
            places[place] = number
    table = np.full((len(written), 2), -1, np.int64)
    for place, avro_field in enumerate(written):
        column_of = places.get(place)
        type_ = None if column_of is None else columns[column_of].type
        table[place] = builder.top(avro_field, type_), -1 if column_of is None else column_of
    names = tuple(avro_field.name for avro_field in written)
    nodes = np.array(builder.nodes or [(0,) * 5], np.int64)
    children = np.array(builder.children or [0], np.int64)
    return Program(schema, table, nodes, children, tuple(builder.symbols), tuple(sources), names)


def record_fields(schema: AvroSchema, columns: tuple[Field, ...]) -> tuple[AvroField, ...]:
    """The fields of values; a value that is no record is that of the one column."""
    root = schema.resolve(schema.root)
    if root.kind == "record":
        return root.fields
    if len(columns) != 1:
        raise AvroError(f"the values are no records but of type {root}, which is one column")
    return (AvroField(columns[0].name, root),)


def find_field(fields: tuple[AvroField, ...], name: str, aliases: tuple[str, ...] = ()) -> int | None:
    """Where the field of a column is; an `AvroError` if it could be one of several."""
    names = [field.name for field in fields]
    for wanted in (name, *aliases):
        if wanted in names:
            return names.index(wanted)
    places = [at for at, other in enumerate(names) if other.lower() == name.lower()]
    if len(places) > 1:
        raise AvroError(f"column {name}: several fields could be it: {', '.join(names[at] for at in places)}")
    return places[0] if places else None


def _aliases(reader: AvroSchema | None, name: str) -> tuple[str, ...]:
    if reader is None:
        return ()
    fields = reader.resolve(reader.root).fields
    place = find_field(fields, name)
    return () if place is None else (fields[place].name, *fields[place].aliases)


def reads_whole(schema: AvroSchema, type_: AvroType, wanted: DataType) -> bool:
    """Whether a column has the JSON of what is nested in a field."""
    return wanted.name == "string" and any(branch.kind in _NESTED for branch in schema.branches(type_))


def decimal_scale(schema: AvroSchema, type_: AvroType) -> int:
    """The scale of the decimals of a field: that of the first branch that has one."""
    return next(branch.scale for branch in schema.branches(type_) if branch.logical == "decimal")


@dataclass
class _Builder:
    """Nodes of a schema. Types that are only passed over have one node however often they occur."""

    schema: AvroSchema
    nodes: list[tuple[int, ...]] = field(default_factory=list)
    children: list[int] = field(default_factory=list)
    symbols: list[bytes] = field(default_factory=list)
    _passed: dict[str, int] = field(default_factory=dict)

    def top(self, field: AvroField, wanted: DataType | None) -> int:
        """The node of a field of the record."""
        type_ = self.schema.resolve(field.type)
        if wanted is None:
            return self._pass_over(field.type)
        if reads_whole(self.schema, type_, wanted):
            node = self._pass_over(field.type)
            kind, _, *rest = self.nodes[node]
            return self._add(kind, m.WHOLE, *rest)
        branches = self.schema.branches(type_)
        scale = next((found.scale for found in branches if found.logical == "decimal"), 0)
        made = [self._leaf(branch, wanted, scale) for branch in branches]
        if not any(action > m.NOTHING for _, action, *_ in made) and any(b.kind != "null" for b in branches):
            told = f"field {field.name} is {_article(type_)}, which cannot be {_article(wanted)}"
            raise AvroError(told + _hint(type_, wanted))
        if type_.kind != "union":
            return self._add(*made[0])
        return self._add(m.UNION, m.REFUSE, *self._range([self._add(*leaf) for leaf in made]))

    def _leaf(self, type_: AvroType, wanted: DataType, scale: int) -> tuple[int, ...]:
        """The node of a type whose values become those of a column."""
        action, factor = _action(type_, wanted, scale)
        kind, number, count = _KINDS[type_.kind], type_.size, 0
        if type_.kind == "enum" and action == m.SYMBOL:
            number, count = len(self.symbols), len(type_.symbols)
            self.symbols += [symbol.encode() for symbol in type_.symbols]
        return (kind, action, number, count, factor)

    def _pass_over(self, type_: AvroType) -> int:
        """The node of a type whose values are not looked at."""
        if type_.kind == "named":
            if type_.name not in self._passed:
                self._passed[type_.name] = self._add(m.NULL)
                node = self._passed[type_.name]
                self.nodes[node] = self.nodes[self._pass_over(self.schema.names[type_.name])]
            return self._passed[type_.name]
        parts = [field.type for field in type_.fields] if type_.kind == "record" else type_.parts
        made = [self._pass_over(part) for part in parts]
        if type_.kind in ("union", "record"):
            return self._add(_KINDS[type_.kind], m.REFUSE, *self._range(made))
        return self._add(_KINDS[type_.kind], m.REFUSE, made[0] if made else type_.size)

    def _range(self, nodes: list[int]) -> tuple[int, int]:
        self.children += nodes
        return len(self.children) - len(nodes), len(nodes)

    def _add(
        self, kind: int, action: int = m.REFUSE, number: int = 0, count: int = 0, factor: int = 1
    ) -> int:
        self.nodes.append((kind, action, number, count, factor))
        return len(self.nodes) - 1


_INTEGERS = {"int": m.NUMBER, "long": m.NUMBER}
_FLOATS = {"int": m.AS_DOUBLE, "long": m.AS_DOUBLE, "float": m.BITS, "double": m.BITS}
_ACTIONS: dict[str, dict[str, int]] = {  # by the type of a column and the kind of a type of Avro's
    "boolean": {"boolean": m.NUMBER},
    "date": {"int": m.NUMBER},
    "string": {"string": m.SPAN, "bytes": m.SPAN, "enum": m.SYMBOL},
    "binary": {"bytes": m.SPAN, "string": m.SPAN, "fixed": m.SPAN},
    **dict.fromkeys(("byte", "short", "int", "long"), _INTEGERS),
    **dict.fromkeys(("float", "double"), _FLOATS),
}


def _action(type_: AvroType, wanted: DataType, scale: int) -> tuple[int, int]:
    """What becomes of a value of a type in a column, and by which factor numbers are taken."""
    kind, logical, name = type_.kind, type_.logical, wanted.name
    if kind == "null":
        return m.NOTHING, 1
    if name == "timestamp":
        unit = _TIMES.get(logical.rpartition("timestamp-")[2]) if "timestamp-" in logical else None
        return (m.REFUSE, 1) if unit is None else (m.NUMBER, unit)
    if name == "decimal":
        fits = logical == "decimal" and type_.scale == scale <= wanted.scale
        return (m.SPAN if fits else m.REFUSE), 1
    action = _ACTIONS.get(name, {}).get(kind, m.REFUSE)
    unfit = (name == "date" and logical != "date") or (name == "string" and logical == "decimal")
    return (m.REFUSE if unfit else action), 1


def _article(thing: object) -> str:
    text = str(thing)
    return f"{'an' if text[:1] in 'aeiou' else 'a'} {text}"


def _hint(type_: AvroType, wanted: DataType) -> str:
    if wanted.name == "timestamp" and type_.kind == "long":
        return ": without a logical type nobody knows its unit; declare it as long"
    if type_.kind in _NESTED:
        return ": declare it as string, which gets its JSON"
    return ""


def missing_column(name: str, fields: tuple[AvroField, ...]) -> AvroError:
    """The error for a column that no schema has."""
    names: list[Any] = [field.name for field in fields]
    return AvroError(f"column {name} is not in the schema: {nearest(name, names)}")
