"""Types, columns and streams.

Guarantees: a `Schema` has at least one column and no two of one name (case aside, as in Spark SQL); the event
time of a `Stream` is one of its timestamp columns.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from textwrap import shorten
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

from weft.errors import CatalogError, nearest
from weft.logical.arguments import check_fields, checked, shown

if TYPE_CHECKING:
    from weft.logical.query.query import Query

__all__ = [
    "AHEAD",
    "ROW_TIME",
    "DataType",
    "Field",
    "Schema",
    "SchemaLike",
    "Stream",
    "parse_type",
    "schema_of",
]

# The column of a derived stream or a union that has the time of its rows, where none of the columns selected has it.
ROW_TIME = "_time"


@dataclass(frozen=True, slots=True)
class DataType:
    """A type as Spark SQL names it; only decimals have a precision and a scale.

    The name of a nested type has the types inside, as in ``array<long>``, ``map<string,long>`` or ``struct<a:long>``.
    """

    name: str
    precision: int = 0
    scale: int = 0

    def __post_init__(self) -> None:
        if self.is_nested:
            _ = self.inside  # which refuses what cannot be read
        elif self.name not in _NAMES:
            raise CatalogError(f"unknown type {self.name!r}", hint=nearest(self.name, _NAMES))
        if self.name == "decimal" and not (1 <= self.precision <= 38 and 0 <= self.scale <= self.precision):
            raise CatalogError(
                f"decimal({self.precision},{self.scale}) is not a type",
                hint="precision is 1 to 38, and scale at most the precision",
            )

    def __str__(self) -> str:
        return f"decimal({self.precision},{self.scale})" if self.name == "decimal" else self.name

    @property
    def is_nested(self) -> bool:
        """Whether values have values inside: arrays, maps and structs."""
        return self.name.endswith(">")

    @property
    def kind(self) -> str:
        """The name without the types inside."""
        return self.name.partition("<")[0]

    @property
    def inside(self) -> tuple[tuple[str, DataType], ...]:
        """The names and types of what is inside: element; key and value; or the fields of a struct."""
        return _inside(self.name) if self.is_nested else ()

    @property
    def is_integer(self) -> bool:
        """Whether values are whole numbers of fixed width."""
        return self.name in _INTEGERS

    @property
    def is_numeric(self) -> bool:
        """Whether arithmetic is defined."""
        return self.is_integer or self.name in ("float", "double", "decimal")

    @property
    def is_time(self) -> bool:
        """Whether values are points in time."""
        return self.name in ("date", "timestamp")


_INTEGERS = ("byte", "short", "int", "long")
_NAMES = (
    *_INTEGERS,
    *("boolean", "float", "double", "decimal", "string", "binary"),
    *("date", "timestamp", "interval", "null"),
)
_SYNONYMS = {
    "bigint": "long",
    "integer": "int",
    "smallint": "short",
    "tinyint": "byte",
    "real": "float",
    "bool": "boolean",
    "numeric": "decimal",
    "dec": "decimal",
    "varchar": "string",
    "text": "string",
    "timestamp_ltz": "timestamp",
}
_TYPE = re.compile(r"\s*([a-z_]+)\s*(?:\(\s*(\d{1,9})\s*(?:,\s*(\d{1,9})\s*)?\))?\s*", re.IGNORECASE)


def parse_type(text: str) -> DataType:
    """The type a text names.

    >>> str(parse_type("BIGINT")), str(parse_type("decimal(10, 2)"))
    ('long', 'decimal(10,2)')
    """
    match = _TYPE.fullmatch(text)
    if not match:
        if _NESTED.fullmatch(text):
            return _nested(text)
        raise CatalogError(f"cannot read the type {text.strip()!r}", hint=nearest(text, (*_NAMES, *_PARTS)))
    name = match[1].lower()
    name = _SYNONYMS.get(name, name)
    if name != "decimal":
        return DataType(name)
    return DataType(name, int(match[2] or 10), int(match[3] or 0))


_NESTED = re.compile(r"\s*(array|map|struct)\s*<(.*)>\s*", re.IGNORECASE | re.DOTALL)
_PARTS = {"array": ("element",), "map": ("key", "value")}
_NAMED = re.compile(r"\s*([^\W\d]\w*)\s*(?::|\s)\s*(.+)", re.DOTALL)


def _split(text: str) -> list[str]:
    """The parts between commas that are in no brackets."""
    parts, depth = [""], 0
    for char in text:
        depth += {"<": 1, "(": 1, ">": -1, ")": -1}.get(char, 0)
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return parts


@lru_cache(maxsize=256)
def _inside(text: str) -> tuple[tuple[str, DataType], ...]:
    """What is inside a nested type: the names of its parts, with their types."""
    match = _NESTED.fullmatch(text)
    assert match is not None  # its name ends as that of one
    kind, parts = match[1].lower(), _split(match[2])
    if kind == "struct":
        named = [_NAMED.fullmatch(part) for part in parts]
        if all(named):
            fields = tuple((one[1], parse_type(one[2])) for one in named if one)
            if len({name.lower() for name, _ in fields}) == len(fields):
                return fields
    elif len(parts) == len(_PARTS[kind]):
        return tuple((name, parse_type(part)) for name, part in zip(_PARTS[kind], parts, strict=True))
    raise CatalogError(
        f"cannot read the type {text.strip()!r}",
        hint="write array<long>, map<string,long> or struct<a:long,b:string>",
    )


def _nested(text: str) -> DataType:
    """The nested type that a text names, in the one way in which it is spelled."""
    kind, parts = text.partition("<")[0].strip().lower(), _inside(text)
    names = [f"{name}:{type_}" if kind == "struct" else str(type_) for name, type_ in parts]
    return DataType(f"{kind}<{','.join(names)}>")


@dataclass(frozen=True, slots=True)
class Field:
    """A named, typed column of a stream."""

    name: str
    type: DataType

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[^\W\d]\w*", self.name):
            raise CatalogError(
                f"{self.name!r} is not a column name",
                hint="use letters, digits and underscores, and no digit first",
            )

    def __str__(self) -> str:
        return f"{self.name} {self.type}"


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns of a stream, in order."""

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        check_fields(self, CatalogError)
        if not self.fields:
            raise CatalogError("a schema needs at least one column")
        seen: set[str] = set()
        for field in self.fields:
            if field.name.lower() in seen:
                raise CatalogError(f"column {field.name!r} is there twice")
            seen.add(field.name.lower())

    @classmethod
    @checked(CatalogError)
    def parse(cls, text: str) -> Schema:
        """Read a schema as Spark writes it.

        >>> print(Schema.parse("vid BIGINT, ts timestamp"))
        vid long, ts timestamp
        """
        fields = []
        for part in _split(text):
            name, type_ = (*re.split(r"\s*:\s*|\s+", part.strip(), maxsplit=1), "", "")[:2]
            if not type_:
                raise CatalogError(
                    f"cannot read the column {part.strip()!r} of schema {text!r}",
                    hint='write "name type, name type", as in "vid long, ts timestamp"',
                )
            fields.append(Field(name, parse_type(type_)))
        return cls(tuple(fields))

    @checked(CatalogError)
    def find(self, name: str) -> Field | None:
        """The column of that name, upper or lower case."""
        folded = name.lower()
        return next((field for field in self.fields if field.name.lower() == folded), None)

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(field.name for field in self.fields)

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __str__(self) -> str:
        return ", ".join(map(str, self.fields))


@runtime_checkable
class StructLike(Protocol):
    """A schema of Spark's (`StructType`), known by what it has; Spark itself is not loaded for that."""

    @property
    def fields(self) -> Any: ...

    def simpleString(self) -> str: ...  # noqa: N802


# How users may give a schema.
SchemaLike: TypeAlias = Schema | str | Mapping[str, Any] | StructLike


def schema_of(given: SchemaLike) -> Schema:
    """A schema that is given as a text, as a dictionary of types by column, or as Spark has it.

    >>> print(schema_of({"vid": "bigint", "ts": "timestamp"}))
    vid long, ts timestamp
    """
    if isinstance(given, Schema):
        return given
    if isinstance(given, str):
        return Schema.parse(given)
    pairs = (
        given.items() if isinstance(given, Mapping) else [(one.name, one.dataType) for one in given.fields]
    )
    return Schema(tuple(_field_of(name, kind) for name, kind in pairs))


def _field_of(name: object, kind: Any) -> Field:
    """A column whose type is a text, or a type of Spark's."""
    text = kind.simpleString() if callable(getattr(kind, "simpleString", None)) else kind
    if not isinstance(name, str) or not isinstance(text, str) or isinstance(kind, type):
        raise CatalogError(
            f"a schema cannot have a column {shown(name)} of type {shown(kind)}",
            hint='write types as texts, as in {"vid": "long", "ts": "timestamp"}',
        )
    return Field(name, parse_type(text))


LATE = ("drop", "join")
SHED = (
    "none",
    "sample",
)  # what becomes of tuples that cannot be read in time: they wait, or only some are read
AHEAD = timedelta(days=1)  # by which event times may be ahead of the clock, unless something else is said


@dataclass(frozen=True, slots=True)
class Stream:
    """A registered input: what its tuples look like and how their time is told.

    Without an event time, a tuple's time is that of its arrival. A tuple more than ``lateness`` behind the newest of
    earlier batches is late: dropped, or joined with what is still there. A stream that is silent for longer than
    ``idle_after`` does not hold the others back. What is read from no source has a ``definition``: one query, whose
    results are the tuples (a derived stream), or several queries of one input each, whose results are the tuples
    together (a union); `logical/nested` makes such streams. A ``table`` has no time: its rows are looked up by
    tuples of streams, and never start a result. A record whose event time is ahead of the clock by more than
    ``ahead`` is set aside, and moves no watermark; None: there is no such limit. If tuples are to be ``shed``, only a
    sample of them is read where all cannot be in time. What a query is does not depend on these two, so streams that
    differ in them are equal, and no log keeps them.
    """

    name: str
    schema: Schema
    event_time: str | None = None
    lateness: timedelta = timedelta(0)
    late: str = "drop"
    idle_after: timedelta | None = None
    definition: tuple[Query, ...] = ()
    table: bool = False
    ahead: timedelta | None = dataclasses.field(default=AHEAD, compare=False)
    shed: str = dataclasses.field(default="none", compare=False)

    def __repr__(self) -> str:
        kind = "Table" if self.table else "Stream"
        return f"<{kind} {self.name} ({shorten(str(self.schema), 200, placeholder=' …')})>"

    def __hash__(self) -> int:
        # A query is hashed often while it is planned; of its streams, the columns took most of that time.
        return hash((self.name, self.event_time))

    def __post_init__(self) -> None:
        check_fields(self, CatalogError)
        if not re.fullmatch(r"[^\W\d]\w*", self.name):
            raise CatalogError(
                f"{self.name!r} is not a stream name",
                hint="use letters, digits and underscores, and no digit first",
            )
        if self.table and (self.event_time or self.lateness or self.idle_after or self.late != "drop"):
            raise CatalogError(f"table {self.name} has no time", hint="use session.stream for what has times")
        if self.lateness < timedelta(0):
            raise CatalogError(f"stream {self.name}: lateness is negative")
        if self.late not in LATE:
            raise CatalogError(
                f"stream {self.name}: late tuples cannot be {self.late!r}", hint=nearest(self.late, LATE)
            )
        if self.shed not in SHED:
            raise CatalogError(
                f"stream {self.name}: tuples cannot be shed by {self.shed!r}", hint=nearest(self.shed, SHED)
            )
        if self.idle_after is not None and self.idle_after <= timedelta(0):
            raise CatalogError(
                f"stream {self.name}: it cannot be idle after {self.idle_after}", hint="use a longer time"
            )
        if self.ahead is not None and self.ahead < timedelta(0):
            raise CatalogError(
                f"stream {self.name}: ahead is negative", hint="use 0 seconds or more, or None for no limit"
            )
        if self.event_time is not None:
            self._check_event_time(self.event_time)

    @property
    def is_derived(self) -> bool:
        """Whether the tuples are the results of a query."""
        return len(self.definition) == 1

    @property
    def is_union(self) -> bool:
        """Whether the tuples are those of several streams together."""
        return len(self.definition) > 1

    @property
    def hidden(self) -> str | None:
        """The column that ``SELECT *`` does not show: the time of a row that no query selected."""
        return ROW_TIME if self.definition and self.event_time == ROW_TIME else None

    @property
    def shown(self) -> tuple[str, ...]:
        """The names of the columns that ``SELECT *`` shows, in order."""
        return tuple(name for name in self.schema.names if name != self.hidden)

    def _check_event_time(self, name: str) -> None:
        field = self.schema.find(name)
        if field is None:
            raise CatalogError(
                f"stream {self.name} has no column {name!r} to take its event time from",
                hint=nearest(name, self.schema.names),
            )
        if field.type.name != "timestamp":
            raise CatalogError(
                f"stream {self.name}: event time {field.name} is a {field.type}, not a timestamp"
            )
        if field.name != name:
            object.__setattr__(self, "event_time", field.name)
