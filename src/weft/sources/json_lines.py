"""JSON lines: one object on each line.

Guarantees: a line is one record; blank lines are none. A key that a record does not have, or has as `null`, is
NULL; keys that are not declared are ignored. A line that is no object, or has a value of another kind or out of its
type's range, is set aside alone. Dates and times are ISO 8601 texts, decimals numbers or texts, binary values
base64, as Spark writes them. A column is found under its name as declared or, if the file's first record spells it
in another case, under that.

A sound file takes one pass. In others the lines at fault are found by bisection, and the rest is read again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj

from weft.kernels.arrow import arrow_type
from weft.logical.schema import DataType, Field
from weft.sources.columns import Column, assemble, located
from weft.sources.lines import RETURN, Positions, Spans, as_bytes, line_ends, spans_between
from weft.sources.records import Decoded, SourceFile, Target
from weft.sources.texts import doubles_to, integers_to, read_texts

__all__ = ["decode_json"]

_FEW = 128  # lines that are looked at one by one
_BLOCK = 1 << 20  # bytes that stay in the cache between parsing and conversion
_BLANK = b" \t\r"
_OPENS, _CLOSES = (
    np.isin(np.arange(256), np.frombuffer(letter + _BLANK, np.uint8)) for letter in (b"{", b"}")
)


def decode_json(file: SourceFile, target: Target) -> Decoded:
    """The rows of a file of JSON lines."""
    mark = 3 if file.content.startswith(b"\xef\xbb\xbf") else 0
    spans = _lines(file.content[mark:] if mark else file.content, mark)
    schema = _read_schema(spans, target)
    kept, wrong = np.arange(len(spans)), dict[int, str]()
    try:
        table = _read_all(spans, schema)
    except ValueError:
        wrong = _find_wrong(spans, schema, target)
        kept = _without(kept, wrong)
        table = _read(spans.keep(kept).joined(), schema, len(kept))
    fields = zip(target.schema, table.columns, strict=True)
    batch, reasons = assemble([_column(values, field.type) for field, values in fields], target)
    wrong |= {int(kept[row]): reason for row, reason in reasons.items()}
    return located(file, batch, dict(sorted(wrong.items())), spans.places)


def _lines(content: bytes, base: int) -> Spans:
    ends = line_ends(content)
    if b"\r" in content:
        ends = ends[as_bytes(content)[ends] != RETURN]  # a lone return is a blank to JSON
    spans = spans_between(content, ends, base)
    firsts = as_bytes(content)[spans.starts]
    if (_OPENS & _CLOSES)[firsts].any():
        spans = spans.keep(
            np.array([bool(spans.text(at).strip(_BLANK)) for at in range(len(spans))], np.bool_)
        )
    return spans


def _read_schema(spans: Spans, target: Target) -> pa.Schema:
    spelled = _spellings(spans, target)
    names = [spelled.get(name.lower(), name) for name in target.schema.names]
    types = [_read_type(field.type) for field in target.schema]
    return pa.schema(list(zip(names, types, strict=True)))


def _spellings(spans: Spans, target: Target) -> Mapping[str, str]:
    """How the first record spells those columns that it spells in only one way, and not as declared."""
    keys = _first_keys(spans)
    folded = [key.lower() for key in keys]
    declared = set(target.schema.names)
    return {key.lower(): key for key in keys if key not in declared and folded.count(key.lower()) == 1}


def _first_keys(spans: Spans) -> Sequence[str]:
    """The keys of the first of the first lines that is an object."""
    for line in range(min(len(spans), _FEW)):
        try:
            record = json.loads(spans.text(line).decode())
        except (ValueError, RecursionError):
            continue
        if isinstance(record, dict):
            return list(record)
    return ()


def _read_type(type_: DataType) -> pa.DataType:
    """How a column is read first: numbers as widely as possible, so that those out of range can be told."""
    if type_.is_integer:
        return pa.int64()
    if type_.name in ("float", "double"):
        return pa.float64()
    return arrow_type(type_) if type_.name in ("boolean", "decimal") else pa.string()


def _column(values: pa.ChunkedArray, type_: DataType) -> Column:
    array = pa.concat_arrays(values.chunks) if values.num_chunks != 1 else values.chunk(0)
    if type_.is_integer:
        return integers_to(array, type_)
    if type_.name in ("float", "double"):
        return doubles_to(array, type_)
    return Column(array) if type_.name in ("boolean", "decimal") else read_texts(array, type_, base64=True)


def _read_all(spans: Spans, schema: pa.Schema) -> pa.Table:
    """One row for each line of the content; a ValueError if one of them is not an object of the schema."""
    data = as_bytes(spans.content)
    if not (_OPENS[data[spans.starts]].all() and _CLOSES[data[spans.ends - 1]].all()):
        raise ValueError("not one object on each line")
    return _read(spans.content, schema, len(spans), _BLOCK)


def _read(content: bytes, schema: pa.Schema, rows: int, block: int | None = None) -> pa.Table:
    """So many rows, one from each line; with blocks, no line may be longer than one."""
    if not rows:
        return pa.table([pa.array([], kind) for kind in schema.types], schema=schema)
    if not content.isascii():
        content.decode()
    table = pj.read_json(
        pa.BufferReader(content),
        read_options=pj.ReadOptions(use_threads=False, block_size=block or len(content) + 1),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    )
    if table.num_rows != rows:
        raise ValueError("not one object on each line")
    return table


def _find_wrong(spans: Spans, schema: pa.Schema, target: Target) -> dict[int, str]:
    """The lines that cannot be read, with the reason."""
    wrong: dict[int, str] = {}
    work = [np.arange(len(spans))]
    while work:
        lines = work.pop()
        try:
            _read(spans.keep(lines).joined(), schema, len(lines))
        except ValueError as error:
            found = {} if len(lines) > _FEW else _at_first_sight(spans, lines, schema, target)
            if len(lines) == 1 and not found:
                found = {int(lines[0]): _told(error)}
            wrong |= found
            middle = len(lines) // 2
            work += [_without(lines, found)] if found else [lines[middle:], lines[:middle]]
    return wrong


def _without(lines: Positions, found: Collection[int]) -> Positions:
    return lines[~np.isin(lines, list(found))]


def _told(error: ValueError) -> str:
    return str(error).replace(" in row 0", "").replace("Column(/", "column (")


def _at_first_sight(spans: Spans, lines: Positions, schema: pa.Schema, target: Target) -> dict[int, str]:
    """Of some lines those that are no JSON, no object, or have a value of another kind: not all that are wrong."""
    kinds = [
        (name, field, _KINDS.get(field.type.name, str))
        for name, field in zip(schema.names, target.schema, strict=True)
    ]
    reasons = {int(line): _reason(spans.text(line), kinds) for line in lines}
    return {line: reason for line, reason in reasons.items() if reason is not None}


_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("byte", "short", "int", "long"), int),
    **dict.fromkeys(("float", "double"), (int, float)),
    "boolean": bool,
    "decimal": (int, float, str),
}


def _reason(line: bytes, kinds: Sequence[tuple[str, Field, Any]]) -> str | None:
    try:
        record = json.loads(line.decode(), strict=False)
    except (ValueError, RecursionError) as error:
        return f"not JSON: {error}"
    if not isinstance(record, dict):
        return "not a JSON object"
    for name, field, kind in kinds:
        value = record.get(name)
        if value is not None and (
            not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)
        ):
            return f"column {field.name}: {repr(value)[:80]} is not a value of type {field.type}"
    return None
