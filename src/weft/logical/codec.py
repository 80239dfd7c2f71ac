"""Frozen values to JSON and back.

Guarantees: `decode(encode(value)) == value` for every dataclass the codec was given, and for what they contain: tuples,
times, durations and plain JSON values. The text is the same for equal values: fields that do not count
for equality are left out.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields, is_dataclass
from datetime import date, datetime, timedelta
from typing import Any

from weft.errors import PlanError
from weft.logical.expr.expression import Call, Column, Literal
from weft.logical.query.join_tree import Join
from weft.logical.query.ordering import Ordering
from weft.logical.query.query import Input, Key, Output, Query
from weft.logical.query.window import Range, Rows, Unbounded
from weft.logical.schema import DataType, Field, Schema, Stream

__all__ = ["LOGICAL", "Codec"]

LOGICAL: tuple[type, ...] = (
    *(DataType, Field, Schema, Stream, Range, Rows, Unbounded),
    *(Column, Literal, Call, Input, Join, Key, Output, Query, Ordering),
)


@dataclass(frozen=True, slots=True)
class Codec:
    """Reads and writes the given dataclasses, each marked by its name under ``"is"``.

    A class that was renamed since it was first written says so in ``WRITTEN_AS``.
    """

    classes: tuple[type, ...]

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
