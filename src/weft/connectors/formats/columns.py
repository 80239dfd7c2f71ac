"""From columns to a record batch: texts and wide numbers become values of the declared types, and bad rows are found.

Guarantees: a row is good iff each of its values is one of the declared type and its event time is neither NULL nor too
far ahead of the clock; which rows are bad is found for whole columns at once. What becomes of a row does not depend on
its neighbours. Of many rows that are ahead of the clock, the first `QUOTED` are quoted, and the others counted. A text
is read as CAST reads it (`weft.kernels.expr.parse_texts`) or marked bad. A number is bad where its type cannot hold it:
too large, too small, or with more digits than a decimal's scale.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from weft.connectors.formats.records import BadRecord, Decoded, SourceFile, Target
from weft.errors import SourceError, nearest
from weft.kernels.expr.arrow import arrow_type
from weft.kernels.expr.casts import utf8_or_null
from weft.kernels.expr.datum import null_unless
from weft.kernels.expr.parse_texts import parse
from weft.logical.schema import DataType
from weft.logical.times import AHEAD_OF_THE_CLOCK, FARTHEST, shown_time

__all__ = [
    "ConvertedColumn",
    "Mask",
    "arrow_schema",
    "as_text",
    "assemble",
    "doubles_to",
    "integers_to",
    "locate_bad_rows",
    "match_columns",
    "read_texts",
    "whole_file",
]


QUOTED = 1000  # of the rows of a part that are ahead of the clock

Mask = NDArray[np.bool_]
Locate = Callable[
    [Sequence[int]], Sequence[Mapping[str, Any]]
]  # row numbers → row, line, offset, raw of each


@dataclass(frozen=True, slots=True)
class ConvertedColumn:
    """Converted values, and which rows had a value that is not of the type (None: no row)."""

    values: Any
    bad: Mask | None = None
    raw: Any = None  # the column before it was converted, to quote from


def arrow_schema(target: Target) -> pa.Schema:
    """The schema of every batch that is decoded for a target."""
    return pa.schema([pa.field(field.name, arrow_type(field.type)) for field in target.schema])


def match_columns(names: Sequence[str], target: Target, file: SourceFile) -> list[int]:
    """Where each declared column is in the file: by exact name, else by the name without case, as in Spark."""
    return [_match(names, field.name, str(field.type), file) for field in target.schema]


def _match(names: Sequence[str], name: str, expected: str, file: SourceFile) -> int:
    exact = [place for place, other in enumerate(names) if other == name]
    places = exact or [place for place, other in enumerate(names) if other.lower() == name.lower()]
    if not places:
        raise SourceError(
            f"{file.source}: file {file.path} has no column {name} (expected type {expected}, found none)",
            hint=nearest(name, names),
        )
    if len(places) > 1:
        raise SourceError(
            f"{file.source}: file {file.path} has {len(places)} columns that could be {name}",
            hint="rename one of " + ", ".join(names[place] for place in places),
        )
    return places[0]


@dataclass(frozen=True, slots=True)
class CheckedRows:
    """The good rows of some columns, and for each bad one that is quoted, in order, the reason.

    ``good`` says which rows are good (None: all of them), and ``unquoted`` how many bad rows have no reason of their
    own: like the last that has one, they are ahead of the clock.
    """

    batch: pa.RecordBatch
    reasons: Mapping[int, str]
    good: Mask | None = None
    unquoted: int = 0

    def more(self, source: str, place: str) -> tuple[BadRecord, ...]:
        """A record that stands for the rows that are not quoted; none if there are none."""
        if not self.unquoted:
            return ()
        reason = f"{self.unquoted:,} more records are ahead of the clock, which are not quoted"
        return (BadRecord(source, place, reason, more=self.unquoted - 1),)


def assemble(columns: Sequence[ConvertedColumn], target: Target) -> CheckedRows:
    """The good rows, and why the others are bad."""
    batch = pa.record_batch([column.values for column in columns], schema=arrow_schema(target))
    reasons: dict[int, str] = {}
    for field, column in zip(target.schema, columns, strict=True):
        for row in () if column.bad is None else np.flatnonzero(column.bad).tolist():
            value = "it" if column.raw is None else _quote(column.raw[row])
            reasons.setdefault(row, f"column {field.name}: {value} is not a value of type {field.type}")
    for row in _without_time(batch, target):
        reasons.setdefault(row, f"column {target.event_time}: the event time is NULL")
    beyond = _out_of_time(batch, target)
    for row in beyond[:QUOTED].tolist():
        if row not in reasons:
            reasons[row] = _why_out_of_time(batch, target, row)
    if not reasons:
        return CheckedRows(batch, reasons)
    good = np.ones(batch.num_rows, np.bool_)
    good[list(reasons)] = False
    good[beyond] = False
    unquoted = int(good.size - good.sum()) - len(reasons)
    return CheckedRows(batch.filter(pa.array(good)), dict(sorted(reasons.items())), good, unquoted)


def _out_of_time(batch: pa.RecordBatch, target: Target) -> NDArray[np.int64]:
    """The rows whose event time is too far ahead of the clock, or so far from 1970 that it cannot be computed with."""
    nowhere = np.zeros(0, np.int64)
    if target.event_time is None or not batch.num_rows:
        return nowhere
    column = batch.column(_event_time(target))
    if not pa.types.is_timestamp(column.type):  # no event time of a stream
        return nowhere
    times = column.view(pa.int64())
    ends = pc.min_max(times).as_py()
    latest = FARTHEST if target.latest is None else min(target.latest, FARTHEST)
    if ends["max"] is None or (ends["max"] <= latest and ends["min"] >= -FARTHEST):
        return nowhere
    wrong = pc.or_(pc.greater(times, latest), pc.less(times, -FARTHEST))
    return np.flatnonzero(pc.fill_null(wrong, False).to_numpy(False))


def _why_out_of_time(batch: pa.RecordBatch, target: Target, row: int) -> str:
    name = _event_time(target)
    time = batch.column(name)[row].value
    if target.latest is None or time <= target.latest:
        return f"column {name}: {shown_time(time)} is too far from 1970 for an event time"
    last = shown_time(target.latest)
    return f"column {name}: {shown_time(time)} {AHEAD_OF_THE_CLOCK}: {last} is the last time permitted"


def _event_time(target: Target) -> str:
    field = target.schema.find(target.event_time or "")
    if field is None:
        raise SourceError(
            f"no column {target.event_time!r} to take the event time from",
            hint=nearest(target.event_time or "", target.schema.names),
        )
    return field.name


def _without_time(batch: pa.RecordBatch, target: Target) -> list[int]:
    if target.event_time is None:
        return []
    times = batch.column(_event_time(target))
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
    file: SourceFile, rows: CheckedRows, reasons: Mapping[int, str], locate: Locate
) -> Decoded:
    """The good rows, and a record for each bad one, whose row, line, offset and text ``locate`` tells."""
    places = locate(list(reasons)) if reasons else ()
    quoted = (
        BadRecord(file.source, file.path, reason, **place)
        for reason, place in zip(reasons.values(), places, strict=True)
    )
    return Decoded(rows.batch, (*quoted, *rows.more(file.source, file.path)))


def whole_file(file: SourceFile, target: Target, reason: object) -> Decoded:
    """A file that cannot be read at all: no rows, one bad record that quotes how it starts."""
    text = " ".join(str(reason).split())
    empty = arrow_schema(target).empty_table().to_batches()
    batch = empty[0] if empty else pa.RecordBatch.from_pylist([], schema=arrow_schema(target))
    return Decoded(batch, (BadRecord(file.source, file.path, text, bytes(file.content[:64])),))


_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def as_text(values: Any) -> ConvertedColumn:
    """Bytes as texts; what is no UTF-8 is bad."""
    texts = utf8_or_null(values)
    return ConvertedColumn(texts, _lost(values, texts), values)


def read_texts(texts: Any, type_: DataType, *, base64: bool = False) -> ConvertedColumn:
    """A column of texts as values of the type; `base64` says that binary values are written so."""
    if type_.name == "string":
        return ConvertedColumn(texts)
    if type_.name == "binary":
        values = _from_base64(texts) if base64 else pc.cast(texts, pa.binary())
    else:
        values = parse(texts, arrow_type(type_), exact=True)
    return ConvertedColumn(values, _lost(texts, values), texts)


def _lost(before: Any, after: Any) -> Mask | None:
    """Which rows had a value before a conversion and have none after it; None: no row."""
    if before.null_count == after.null_count:
        return None
    lost: Mask = pc.and_(before.is_valid(), after.is_null()).to_numpy(zero_copy_only=False)
    return lost


def _from_base64(texts: Any) -> Any:
    """The bytes that texts stand for; NULL where a text is not of the standard alphabet, or not padded."""
    sound = null_unless(pc.match_substring_regex(texts, _BASE64), texts).to_pylist()
    return pa.array([None if text is None else a2b_base64(text) for text in sound], pa.binary())


def integers_to(values: Any, type_: DataType) -> ConvertedColumn:
    """Whole numbers of 64 bits as those of the type."""
    kind = arrow_type(type_)
    if values.type == kind:
        return ConvertedColumn(values)
    limits = np.iinfo(kind.to_pandas_dtype())
    inside = pc.and_(pc.greater_equal(values, int(limits.min)), pc.less_equal(values, int(limits.max)))
    if pc.all(inside, min_count=0).as_py():
        return ConvertedColumn(pc.cast(values, kind, safe=False))
    bad = pc.fill_null(pc.invert(inside), False).to_numpy(False)
    kept = pc.if_else(inside, values, pa.scalar(None, values.type))
    return ConvertedColumn(pc.cast(kept, kind, safe=False), bad, values)


def doubles_to(values: Any, type_: DataType) -> ConvertedColumn:
    """Doubles as numbers of the type, float or double; what only a double can hold is bad as a float."""
    if type_.name == "double":
        return ConvertedColumn(values)
    narrow = pc.cast(values, pa.float32(), safe=False)
    lost = pc.and_not(pc.fill_null(pc.is_inf(narrow), False), pc.fill_null(pc.is_inf(values), False))
    if not pc.any(lost, min_count=0).as_py():
        return ConvertedColumn(narrow)
    return ConvertedColumn(narrow, lost.to_numpy(False), values)
