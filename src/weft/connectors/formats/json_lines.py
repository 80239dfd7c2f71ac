"""JSON lines: one object on each line.

Guarantees: a line is one record; blank lines are none. A key that a record does not have, or has as `null`, is
NULL; keys that are not declared are ignored. A line that is no object, or has a value of another kind or out of its
type's range, is set aside alone. Dates and times are ISO 8601 texts, decimals numbers or texts, binary values
base64, as Spark writes them. Keys match columns without case, as names in Parquet files do: in each record the key that
is spelled as declared counts, else the one that is spelled otherwise; a record with several of those is set aside.

A sound file takes one pass. In others the lines at fault are found by bisection, and the rest is read again; so is a
file that spells a key in several ways, which is looked for only where values are missing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from weft.connectors.formats.columns import (
    ConvertedColumn,
    assemble,
    doubles_to,
    integers_to,
    locate_bad_rows,
    read_texts,
)
from weft.connectors.formats.records import (
    RETURN,
    Decoded,
    Positions,
    SourceFile,
    Spans,
    Target,
    as_bytes,
    line_ends,
    spans_between,
)
from weft.kernels.expr.arrow import arrow_type
from weft.logical.schema import DataType, Field

__all__ = [
    "decode_json",
]

_FEW = 128  # lines that are looked at one by one
_BLOCK = 1 << 20  # bytes that stay in the cache between parsing and conversion
_BLANK = b" \t\r"
_OPENS, _CLOSES = (
    np.isin(np.arange(256), np.frombuffer(letter + _BLANK, np.uint8)) for letter in (b"{", b"}")
)


Spellings = Sequence[tuple[str, Field]]  # the keys that are read, each with the column that it is


def decode_json(file: SourceFile, target: Target) -> Decoded:
    """The rows of a file of JSON lines."""
    mark = 3 if file.content.startswith(b"\xef\xbb\xbf") else 0
    spans = _lines(file.content[mark:] if mark else file.content, mark)
    keys = _first_spellings(spans, target)
    table, kept, wrong = _read_lines(spans, keys)
    others = _other_spellings(spans.content, keys, table, target)
    if others:
        keys = [*keys, *others]
        table, kept, wrong = _read_lines(spans, keys)
        table, kept, wrong = _without_ambiguous(table, kept, wrong, keys)
    columns = [_column(_merged(table, keys, field), field.type) for field in target.schema]
    made = assemble(columns, target)
    wrong |= {int(kept[row]): reason for row, reason in made.reasons.items()}
    return locate_bad_rows(file, made, dict(sorted(wrong.items())), spans.places)


def _read_lines(spans: Spans, keys: Spellings) -> tuple[pa.Table, Positions, dict[int, str]]:
    """The values of keys in the lines that can be read, which lines those are, and why the others cannot."""
    schema = pa.schema([(key, _read_type(field.type)) for key, field in keys])
    kept, wrong = np.arange(len(spans)), dict[int, str]()
    try:
        return _read_all(spans, schema), kept, wrong
    except ValueError:
        wrong = _find_wrong(spans, schema, keys)
        kept = _without(kept, wrong)
        return _read(spans.keep(kept).joined(), schema, len(kept)), kept, wrong


def _merged(table: pa.Table, keys: Spellings, field: Field) -> pa.ChunkedArray:
    """The values of a column: under its own name if there is one, else under another spelling."""
    spellings = [key for key, column in keys if column is field]
    spellings.sort(key=lambda key: (key != field.name, key))
    return (
        pc.coalesce(*(table.column(key) for key in spellings))
        if len(spellings) > 1
        else table.column(spellings[0])
    )


def _without_ambiguous(
    table: pa.Table, kept: Positions, wrong: dict[int, str], keys: Spellings
) -> tuple[pa.Table, Positions, dict[int, str]]:
    """Set records aside that have a column under several keys, none of which is spelled as declared."""
    bad = dict[int, str]()
    for field in {id(column): column for _, column in keys}.values():
        spellings = [key for key, column in keys if column is field]
        counts = sum(table.column(key).is_valid().to_numpy().astype(np.int64) for key in spellings)
        several = np.asarray(counts) > 1
        if field.name in spellings:
            several &= table.column(field.name).is_null().to_numpy()
        reason = f"column {field.name}: several keys could be it: {', '.join(sorted(set(spellings) - {field.name}))}"
        bad |= dict.fromkeys(np.flatnonzero(several).tolist(), reason)
    if not bad:
        return table, kept, wrong
    good = np.ones(len(kept), np.bool_)
    good[list(bad)] = False
    return table.filter(pa.array(good)), kept[good], wrong | {int(kept[row]): bad[row] for row in bad}


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


def _first_spellings(spans: Spans, target: Target) -> Spellings:
    """The key of each column: as the first record spells it, if it does in only one way, else as declared."""
    keys, declared = _first_keys(spans), set(target.schema.names)
    folded = [key.lower() for key in keys]
    other = {
        low: key
        for low, key in zip(folded, keys, strict=True)
        if key not in declared and folded.count(low) == 1
    }
    return [(other.get(field.name.lower(), field.name), field) for field in target.schema]


def _other_spellings(content: bytes, keys: Spellings, table: pa.Table, target: Target) -> Spellings:
    """Further keys in a file that columns with missing values could stand under."""
    lacking = [(key, field) for key, field in keys if table.column(key).null_count]
    if not lacking:
        return []
    lowered, declared = content.lower(), set(target.schema.names)
    return [
        (other, field)
        for key, field in lacking
        for other in sorted(_spellings(content, lowered, key) - {key})
        if other == field.name or other not in declared
    ]


def _spellings(content: bytes, lowered: bytes, key: str) -> set[str]:
    """How a key is spelled in a text; only what has quotes around it and a colon behind it is one."""
    quoted = f'"{key}"'.encode()
    if key.isascii() and lowered.count(quoted.lower()) == content.count(quoted):
        return {key}
    text = content.decode(errors="replace")
    spellings = re.findall(rf'"({re.escape(key)})"\s*:', text, re.IGNORECASE)
    return {other for other in spellings if other.lower() == key.lower()}


def _first_keys(spans: Spans) -> Sequence[str]:
    """The keys of the first object, if there is one among the first lines."""
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
    return arrow_type(type_) if type_.is_nested or type_.name in ("boolean", "decimal") else pa.string()


def _column(values: pa.ChunkedArray, type_: DataType) -> ConvertedColumn:
    array = pa.concat_arrays(values.chunks) if values.num_chunks != 1 else values.chunk(0)
    if type_.is_integer:
        return integers_to(array, type_)
    if type_.name in ("float", "double"):
        return doubles_to(array, type_)
    return (
        ConvertedColumn(array)
        if type_.is_nested or type_.name in ("boolean", "decimal")
        else read_texts(array, type_, base64=True)
    )


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


def _find_wrong(spans: Spans, schema: pa.Schema, keys: Spellings) -> dict[int, str]:
    """The lines that cannot be read, with the reason."""
    wrong: dict[int, str] = {}
    work = [np.arange(len(spans))]
    while work:
        lines = work.pop()
        try:
            _read(spans.keep(lines).joined(), schema, len(lines))
        except ValueError as error:
            found = {} if len(lines) > _FEW else _at_first_sight(spans, lines, keys)
            if len(lines) == 1 and not found:
                found = {int(lines[0]): _told(error)}
            wrong |= found
            middle = len(lines) // 2
            work += [_without(lines, found)] if found else [lines[middle:], lines[:middle]]
    return wrong


def _without(lines: Positions, wrong: Collection[int]) -> Positions:
    return lines[~np.isin(lines, list(wrong))]


def _told(error: ValueError) -> str:
    return str(error).replace(" in row 0", "").replace("Column(/", "column (")


def _at_first_sight(spans: Spans, lines: Positions, keys: Spellings) -> dict[int, str]:
    """The lines that are no JSON, no object, or have a value of another kind; others may be wrong, too."""
    kinds = [(key, field, _KINDS.get(field.type.kind, str)) for key, field in keys]
    reasons = {int(line): _reason(spans.text(line), kinds) for line in lines}
    return {line: reason for line, reason in reasons.items() if reason is not None}


_KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("byte", "short", "int", "long"), int),
    **dict.fromkeys(("float", "double"), (int, float)),
    "boolean": bool,
    "decimal": (int, float, str),
    **dict.fromkeys(("array", "map"), (list, dict)),
    "struct": dict,
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
