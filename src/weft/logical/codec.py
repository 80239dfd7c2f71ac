"""Frozen values to JSON's own types and back: the one codec of plans, of the log, of the wire and of the service.

Guarantees: `decode(kind, json.loads(json.dumps(encode(value)))) == value` for every dataclass and named tuple whose
fields are of the kinds below. What a type becomes is worked out from its annotations once, so that a value costs about
what its fields cost.

| kind | as JSON |
|---|---|
| numbers, texts, truth values, None, `Any`, and unions of these | themselves |
| tuples, sequences, sets | a list; a set is sorted |
| mappings | an object; one whose keys are numbers has them as texts, one with other keys is a list of pairs |
| dataclasses | an object with the fields; one that is None by default is left out while it is None |
| dataclasses that are `compact`, and named tuples | the list of their fields |
| classes that have `from_text` | the text that `str` makes |
| `bytes`, `datetime`, `timedelta` | base64, a text as ISO 8601 has it, microseconds |
| `Annotated[kind, form]` | what the form makes of it: anything with `encode` and `decode` |

A form that is read may be older than the class: fields that it lacks get their defaults, fields that the class does not
have are passed over, and a list stands for a dataclass as well. So fields may be added, at the end and with a default.

`Codec` writes down with every value of which class it is. It is for values whose class does not follow from their
place: expressions, rules, plans.
"""

from __future__ import annotations

import contextlib
import json
from array import array
from base64 import b64decode, b64encode
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    Protocol,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

from weft.errors import PlanError
from weft.logical.expr import expression
from weft.logical.query.grouping import Aggregate, Grouping, GroupWindow
from weft.logical.query.join_tree import Join
from weft.logical.query.ordering import Ordering
from weft.logical.query.query import Input, Key, Output, Query
from weft.logical.query.sorting import Sorting, SortKey
from weft.logical.query.window import Range, Rows, Unbounded
from weft.logical.schema import DataType, Field, Schema, Stream

__all__ = ["LOGICAL", "Codec", "Form", "PackedNumbers", "compact", "decode", "encode"]

LOGICAL: tuple[type, ...] = (
    *(DataType, Field, Schema, Stream, Range, Rows, Unbounded),
    *(expression.Column, expression.Literal, expression.Call, Input, Join, Key, Output, Query, Ordering),
    *(Aggregate, GroupWindow, Grouping),
    *(Sorting, SortKey),
)

Value = TypeVar("Value")
Step = Callable[[Any], Any]


class Form(Protocol):
    """How values of a type become JSON's own types and back; it is put into `Annotated`."""

    def encode(self, value: Any) -> Any:
        """The value as JSON's own types."""
        ...

    def decode(self, data: Any) -> Any:
        """The value from which `encode` made this."""
        ...


@dataclass(frozen=True, slots=True)
class PackedNumbers:
    """Many numbers as one text: their bytes in base64, after the type code of `array` that they have.

    That is the first of ``typecodes`` that can hold all of them.
    """

    typecodes: str = "BHIQ"

    def encode(self, value: Sequence[float]) -> str:
        """The numbers as a text."""
        for typecode in self.typecodes[:-1]:
            with contextlib.suppress(OverflowError):
                return _packed(typecode, value)
        return _packed(self.typecodes[-1], value)

    def decode(self, data: str) -> tuple[float, ...]:
        """The numbers of a text."""
        return tuple(array(data[0], b64decode(data[1:])))


def _packed(typecode: str, value: Sequence[float]) -> str:
    return typecode + b64encode(array(typecode, value).tobytes()).decode()


class _Shape(NamedTuple):
    """How values of a type become JSON's own types and back; None where they are these themselves."""

    encode: Step | None
    decode: Step | None


_ITSELF = _Shape(None, None)
_PLAIN = (int, float, str, bool, NoneType, object, Any)
_compact: set[type] = set()


def compact(kind: type[Value]) -> type[Value]:
    """Have the codec write a dataclass as the list of its fields, since there are many such values."""
    _compact.add(kind)
    return kind


def encode(value: object, kind: Any = None) -> Any:
    """A value as JSON's own types, by its class or, where that does not tell, by the ``kind`` it is of.

    >>> from weft.logical.query.window import Range
    >>> encode(Range(timedelta(seconds=2)))
    {'duration': 2000000}
    """
    wanted: Any = type(value) if kind is None else kind
    step = _shape(wanted).encode
    return value if step is None else step(value)


def decode(kind: type[Value], data: Any) -> Value:
    """The value of a kind from which `encode` made this, also after a way through JSON.

    >>> decode(Mapping[int, tuple[str, ...]], {"7": ["a", "b"]})
    {7: ('a', 'b')}
    """
    wanted: Any = kind
    step = _shape(wanted).decode
    value: Value = data if step is None else step(data)
    return value


@lru_cache(maxsize=512)
def _shape(kind: Any) -> _Shape:
    """The steps for a type."""
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        form = next((one for one in args[1:] if hasattr(one, "decode")), None)
        return _shape(args[0]) if form is None else _Shape(form.encode, form.decode)
    if kind in _PLAIN or origin is Literal:
        return _ITSELF
    if origin in (Union, UnionType):
        return _optional(kind, args)
    if kind in _OTHERS:
        return _OTHERS[kind]
    if isinstance(kind, type) and hasattr(kind, "from_text"):
        return _Shape(str, kind.from_text)
    if isinstance(kind, type) and is_dataclass(kind):
        return _of_dataclass(kind)
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_fields"):
        hints = get_type_hints(kind, include_extras=True)
        return _of_fields(kind, [hints[name] for name in kind._fields], tuple)
    return _of_many(kind, origin or kind, args)


def _optional(kind: Any, args: tuple[Any, ...]) -> _Shape:
    """A union: of plain types, or of one other type and None."""
    others = [one for one in args if _shape(one) != _ITSELF]
    if not others:
        return _ITSELF
    if len(others) > 1 or set(args) - {others[0], NoneType}:
        raise TypeError(f"a value of {kind} does not say of which of these types it is")
    inner = _shape(others[0])
    return _Shape(*(step and _unless_none(step) for step in inner))


def _unless_none(step: Step) -> Step:
    return lambda value: None if value is None else step(value)


def _of_many(kind: Any, origin: Any, args: tuple[Any, ...]) -> _Shape:
    """Tuples, sequences, sets and mappings."""
    if not isinstance(origin, type):
        raise TypeError(f"the codec knows no values of {kind}")
    if issubclass(origin, tuple):
        if len(args) == 2 and args[1] is Ellipsis:
            return _of_items(_shape(args[0]), tuple)
        return _of_fields(kind, args, tuple) if args else _Shape(None, tuple)
    if issubclass(origin, Mapping):
        return _of_mapping(*args) if args else _ITSELF
    item = _shape(args[0]) if args else _ITSELF
    if issubclass(origin, Set):
        return _Shape(sorted, frozenset) if item == _ITSELF else _of_items(item, frozenset)
    if issubclass(origin, Sequence) or origin is Collection:
        return _of_items(item, list) if item != _ITSELF else _ITSELF
    raise TypeError(f"the codec knows no values of {kind}")


def _of_items(item: _Shape, made: Callable[[Any], Any]) -> _Shape:
    """Many values of one type."""
    write, read = item
    return _Shape(
        None if write is None else lambda value: [write(one) for one in value],
        made if read is None else lambda data: made([read(one) for one in data]),
    )


def _of_fields(kind: Any, hints: Sequence[Any], plain: type[tuple[Any, ...]]) -> _Shape:
    """A tuple whose fields have types of their own; ``kind`` may be a named one."""
    shapes = [_shape(hint) for hint in hints]
    made = kind._make if hasattr(kind, "_make") else plain
    writes, reads = ([one[at] or _same for one in shapes] for at in (0, 1))
    is_plain = all(one.encode is None for one in shapes)
    return _Shape(
        None if is_plain else lambda value: [step(one) for step, one in zip(writes, value, strict=True)],
        made
        if all(one.decode is None for one in shapes)
        else lambda data: made([step(one) for step, one in zip(reads, data, strict=False)]),
    )


def _same(value: Any) -> Any:
    return value


def _of_mapping(key: Any, item: Any) -> _Shape:
    write, read = _shape(item)
    if key in (str, Any):
        return _Shape(
            None if write is None else lambda value: {name: write(one) for name, one in value.items()},
            None if read is None else lambda data: {name: read(one) for name, one in data.items()},
        )
    put, take = write or _same, read or _same
    if key is int:
        return _Shape(
            lambda value: {str(name): put(one) for name, one in value.items()},
            lambda data: {int(name): take(one) for name, one in data.items()},
        )
    named, known = (step or _same for step in _shape(key))
    return _Shape(
        lambda value: [[named(name), put(one)] for name, one in value.items()],
        lambda data: {known(name): take(one) for name, one in data},
    )


def _of_dataclass(kind: type) -> _Shape:
    """A dataclass: an object with its fields, or, of one that is compact, the list of them."""
    hints = get_type_hints(kind, include_extras=True)
    every = [one for one in fields(kind) if one.init]
    names = [one.name for one in every]
    shapes = {name: _shape(hints[name]) for name in names}
    absent = [one.name for one in every if one.default is None]
    writes = [(name, shape.encode) for name, shape in shapes.items() if shape.encode is not None]
    reads = [(name, shape.decode) for name, shape in shapes.items() if shape.decode is not None]
    in_order = [shape.decode or _same for shape in shapes.values()]
    known = frozenset(names)
    get: Step = (
        attrgetter(*names) if len(names) > 1 else lambda value: tuple(getattr(value, n) for n in names)
    )

    def as_object(value: Any) -> dict[str, Any]:
        made = dict(zip(names, get(value), strict=True))
        for name in absent:
            if made[name] is None:
                del made[name]
        for name, step in writes:
            if name in made:
                made[name] = step(made[name])
        return made

    def as_list(value: Any) -> list[Any]:
        made = dict(zip(names, get(value), strict=True))
        for name, step in writes:
            made[name] = step(made[name])
        return list(made.values())

    def read(data: Any) -> Any:
        if isinstance(data, list | tuple):
            if not reads:
                return kind(*data[: len(names)])
            return kind(*(step(one) for step, one in zip(in_order, data, strict=False)))
        given = dict(data) if known.issuperset(data) else {name: data[name] for name in data if name in known}
        for name, step in reads:
            if name in given:
                given[name] = step(given[name])
        return kind(**given)

    return _Shape(as_list if kind in _compact else as_object, read)


_OTHERS: dict[Any, _Shape] = {
    bytes: _Shape(lambda value: b64encode(value).decode(), b64decode),
    datetime: _Shape(
        lambda value: value.isoformat(), lambda data: datetime.fromisoformat(data.replace("Z", "+00:00"))
    ),
    timedelta: _Shape(
        lambda value: value // timedelta(microseconds=1), lambda data: timedelta(microseconds=data)
    ),
}


@dataclass(frozen=True, slots=True)
class Codec:
    """Reads and writes the given dataclasses, each marked by its name under ``"is"``.

    A class that was renamed since it was first written says so in ``WRITTEN_AS``.

    The text is the same for equal values: fields that do not count for equality are left out.
    """

    classes: tuple[type, ...]

    @property
    def text(self) -> Form:
        """A form in which a value is the text that `dumps` makes of it."""
        return _Text(self)

    def dumps(self, value: object) -> str:
        """The value as JSON text."""
        return json.dumps(self.encode(value), ensure_ascii=False, separators=(",", ":"))

    def loads(self, text: str) -> Any:
        """The value a text of `dumps` stands for."""
        try:
            return self.decode(json.loads(text))
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError) as error:
            raise PlanError(f"this is not a plan in JSON: {error}") from None

    def encode(self, value: object) -> Any:
        """The value as JSON's own types."""
        if isinstance(value, tuple):
            return [self.encode(item) for item in value]
        if isinstance(value, datetime):
            return {"is": "datetime", "at": value.isoformat()}
        if isinstance(value, date):
            return {"is": "date", "at": value.isoformat()}
        if isinstance(value, timedelta):
            return {"is": "timedelta", "us": value // timedelta(microseconds=1)}
        if is_dataclass(value):
            content = {f.name: self.encode(getattr(value, f.name)) for f in fields(value) if f.compare}
            return {"is": _written_name(type(value)), **content}
        return value

    def decode(self, data: Any) -> Any:
        """The value from which `encode` made this."""
        if isinstance(data, list):
            return tuple(self.decode(item) for item in data)
        if not isinstance(data, dict):
            return data
        kind = data["is"]
        if kind == "datetime":
            return datetime.fromisoformat(data["at"])
        if kind == "date":
            return date.fromisoformat(data["at"])
        if kind == "timedelta":
            return timedelta(microseconds=data["us"])
        content = {name: self.decode(item) for name, item in data.items() if name != "is"}
        return self._class(kind)(**content)

    def _class(self, name: str) -> type:
        for known in self.classes:
            if _written_name(known) == name:
                return known
        raise PlanError(f"unknown kind of value {name!r}", hint="was it written by another version?")


def _written_name(kind: type) -> str:
    """The name under which values of a class are written."""
    name: str = getattr(kind, "WRITTEN_AS", kind.__name__)
    return name


@dataclass(frozen=True, slots=True)
class _Text:
    codec: Codec

    def encode(self, value: object) -> str:
        return self.codec.dumps(value)

    def decode(self, data: str) -> Any:
        return self.codec.loads(data)
