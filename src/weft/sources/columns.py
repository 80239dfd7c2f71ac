"""From columns to a record batch.

Guarantees: a row is good iff each of its values is one of the declared type and its event time is not NULL; which
rows are bad is found for whole columns at once. What becomes of a row does not depend on its neighbours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weft.errors import SourceError, nearest
from weft.kernels.expr.arrow import arrow_type
from weft.sources.records import BadRecord, Decoded, SourceFile, Target

__all__ = ["Column", "Mask", "arrow_schema", "assemble", "locate_bad_rows", "match_columns", "whole_file"]

Mask = NDArray[np.bool_]
Locate = Callable[
    [Sequence[int]], Sequence[Mapping[str, Any]]
]  # row numbers → row, line, offset, raw of each


@dataclass(frozen=True, slots=True)
class Column:
    """Converted values, and which rows had a value that is not of the type (None: no row)."""

    values: Any
    bad: Mask | None = None
    raw: Any = None  # the column before it was converted, to quote from


def arrow_schema(target: Target) -> pa.Schema:
    """The schema of every batch that is decoded for a target."""
    return pa.schema([pa.field(field.name, arrow_type(field.type)) for field in target.schema])


def match_columns(found: Sequence[str], target: Target, file: SourceFile) -> list[int]:
    """Where each declared column is in the file: by exact name, else by the name without case, as in Spark."""
    return [_match(found, field.name, str(field.type), file) for field in target.schema]


def _match(found: Sequence[str], name: str, expected: str, file: SourceFile) -> int:
    exact = [place for place, other in enumerate(found) if other == name]
    places = exact or [place for place, other in enumerate(found) if other.lower() == name.lower()]
    if not places:
        raise SourceError(
            f"{file.source}: file {file.path} has no column {name} (expected type {expected}, found none)",
            hint=nearest(name, found),
        )
    if len(places) > 1:
        raise SourceError(
            f"{file.source}: file {file.path} has {len(places)} columns that could be {name}",
            hint="rename one of " + ", ".join(found[place] for place in places),
        )
    return places[0]


def assemble(columns: Sequence[Column], target: Target) -> tuple[pa.RecordBatch, dict[int, str]]:
    """The good rows, and for each bad one, in order, the reason."""
    batch = pa.record_batch([column.values for column in columns], schema=arrow_schema(target))
    reasons: dict[int, str] = {}
    for field, column in zip(target.schema, columns, strict=True):
        for row in () if column.bad is None else np.flatnonzero(column.bad).tolist():
            value = "it" if column.raw is None else _quote(column.raw[row])
            reasons.setdefault(row, f"column {field.name}: {value} is not a value of type {field.type}")
    for row in _without_time(batch, target):
        reasons.setdefault(row, f"column {target.event_time}: the event time is NULL")
    if not reasons:
        return batch, reasons
    good = np.ones(batch.num_rows, np.bool_)
    good[list(reasons)] = False
    return batch.filter(pa.array(good)), dict(sorted(reasons.items()))


def _without_time(batch: pa.RecordBatch, target: Target) -> list[int]:
    if target.event_time is None:
        return []
    field = target.schema.find(target.event_time)
    if field is None:
        raise SourceError(
            f"no column {target.event_time!r} to take the event time from",
            hint=nearest(target.event_time, target.schema.names),
        )
    times = batch.column(field.name)
    rows: list[int] = np.flatnonzero(times.is_null().to_numpy(False)).tolist() if times.null_count else []
    return rows


def _quote(scalar: Any) -> str:
    """A value in an error message, cut where it is long."""
    try:
        text = repr(scalar.as_py())
    except (ValueError, OverflowError):  # text that is no UTF-8, a time beyond Python's
        text = (
            repr(scalar.cast(pa.binary()).as_py()) if pa.types.is_string(scalar.type) else str(scalar.value)
        )
    return text if len(text) <= 80 else text[:79] + "…"


def locate_bad_rows(
    file: SourceFile, batch: pa.RecordBatch, reasons: Mapping[int, str], locate: Locate
) -> Decoded:
    """The good rows, and a record for each bad one, whose row, line, offset and text ``locate`` tells."""
    places = locate(list(reasons)) if reasons else ()
    return Decoded(
        batch,
        tuple(
            BadRecord(file.source, file.path, reason, **place)
            for reason, place in zip(reasons.values(), places, strict=True)
        ),
    )


def whole_file(file: SourceFile, target: Target, reason: object) -> Decoded:
    """A file that cannot be read at all: no rows, one bad record that quotes how it starts."""
    text = " ".join(str(reason).split())
    empty = arrow_schema(target).empty_table().to_batches()
    batch = empty[0] if empty else pa.RecordBatch.from_pylist([], schema=arrow_schema(target))
    return Decoded(batch, (BadRecord(file.source, file.path, text, bytes(file.content[:64])),))
