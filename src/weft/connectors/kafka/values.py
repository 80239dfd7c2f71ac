"""Values of Kafka's records that are texts or bytes become rows.

Guarantees: what becomes of a value does not depend on its neighbours. Values are decoded as whole columns, by the
decoders of files: a value is a line of a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from weft.connectors.formats.columns import Column, arrow_schema
from weft.connectors.formats.csv import decode_csv
from weft.connectors.formats.json_lines import decode_json
from weft.connectors.formats.records import Decoded, SourceFile, Target
from weft.connectors.formats.texts import as_text
from weft.logical.schema import Field, Schema

__all__ = ["DecodedValues", "csv_values", "json_values", "no_rows", "raw_values"]


@dataclass(frozen=True, slots=True)
class DecodedValues:
    """The decoded values of some records: ``rows`` has the good ones, whose places among all are ``good``."""

    rows: pa.RecordBatch
    good: Any
    wrong: Mapping[int, str]


def csv_values(values: list[bytes], fields: tuple[Field, ...]) -> DecodedValues:
    """Lines without a header, whose columns are in the order of the schema."""
    target, header = Target(Schema(fields)), ",".join(f'"{field.name}"' for field in fields).encode()
    return _as_lines(values, lambda content: decode_csv(_file(header + b"\n" + content), target), target)


def json_values(values: list[bytes], fields: tuple[Field, ...]) -> DecodedValues:
    """Objects, each in one value."""
    target = Target(Schema(fields))
    if not _one_line_each(b"\n".join(values), len(values)):
        blanks = bytes.maketrans(b"\r\n", b"  ")  # which stand between JSON's words alone
        values = [value.translate(blanks) for value in values]
    return _as_lines(values, lambda content: decode_json(_file(content), target), target)


def _file(content: bytes) -> SourceFile:
    return SourceFile("", "", content)


def raw_values(values: list[bytes], fields: tuple[Field, ...]) -> DecodedValues:
    """The values themselves as the one column; a text must be UTF-8."""
    field = fields[0]
    column = pa.array(values, pa.binary())
    found = Column(column) if field.type.name == "binary" else as_text(column)
    bad = np.zeros(len(values), np.bool_) if found.bad is None else found.bad
    rows = pa.record_batch([found.values], [field.name]).filter(pa.array(~bad))
    return DecodedValues(
        rows, np.flatnonzero(~bad), dict.fromkeys(np.flatnonzero(bad).tolist(), "it is no UTF-8")
    )


def _as_lines(values: list[bytes], decode: Callable[[bytes], Decoded], target: Target) -> DecodedValues:
    """Decode values as the lines of one file; values that are not one line each are decoded in smaller groups."""
    content = b"\n".join(values)
    found = decode(content + b"\n") if values else Decoded(no_rows(target))
    if _one_line_each(content, len(values)) and found.batch.num_rows + len(found.bad) == len(values):
        wrong = {(record.row or 1) - 1: record.reason for record in found.bad}
        return DecodedValues(found.batch, np.delete(np.arange(len(values)), list(wrong)), wrong)
    if len(values) == 1:
        reason = "it is empty" if not values[0].strip() else "it is more than one record"
        return DecodedValues(no_rows(target), np.zeros(0, np.int64), {0: reason})
    middle = len(values) // 2
    one, two = _as_lines(values[:middle], decode, target), _as_lines(values[middle:], decode, target)
    rows = pa.Table.from_batches([one.rows, two.rows]).combine_chunks().to_batches()
    wrong = {**one.wrong, **{at + middle: reason for at, reason in two.wrong.items()}}
    good = np.concatenate([one.good, two.good + middle])
    return replace(one, rows=rows[0] if rows else no_rows(target), good=good, wrong=wrong)


def _one_line_each(content: bytes, count: int) -> bool:
    """Whether values that were joined by line ends have none themselves; a single one may."""
    return count < 2 or (content.count(b"\n") == count - 1 and b"\r" not in content)


def no_rows(target: Target) -> pa.RecordBatch:
    """A batch of the target's columns without rows."""
    return pa.RecordBatch.from_pylist([], schema=arrow_schema(target))
