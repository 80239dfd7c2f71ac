"""Values that begin with the number of their schema, and values of Avro, become rows.

Guarantees: what becomes of a value does not depend on its neighbours, whichever schemas they were written by. A value
that names no schema, one that the registry does not know, or one that cannot give the columns, is set aside with the
reason; a registry that does not answer is an error, for then nothing is wrong with the value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from weft.connectors.formats.columns import Column, assemble
from weft.connectors.formats.records import Target
from weft.connectors.formats.texts import as_text, doubles_to, integers_to
from weft.connectors.kafka.avro import AvroError, AvroSchema, Decoder, RawColumn, decode_values, parse_schema
from weft.connectors.kafka.avro.decode import Values, join_values
from weft.connectors.kafka.registry import RegisteredSchema, SchemaRegistry
from weft.connectors.kafka.values import DecodedValues, json_values, no_rows
from weft.kernels.expr.arrow import TIMESTAMP, arrow_type
from weft.logical.schema import DataType, Field, Schema

__all__ = ["framed_avro", "framed_json", "plain_avro"]

_HEAD = 5  # a zero, and the number of the schema in four bytes, the highest first


def framed_avro(
    values: Sequence[bytes], fields: tuple[Field, ...], registry: SchemaRegistry, reader: AvroSchema | None
) -> DecodedValues:
    """Values of Avro by the schemas that they name."""
    joined, found, wrong = join_values(values), list[DecodedValues](), dict[int, str]()
    for number, rows in _by_number(joined, wrong):
        schema = registry.schema(number)
        reason = _other_kind(schema, number, "AVRO")
        if schema is None or reason is not None:
            wrong |= dict.fromkeys(rows.tolist(), reason or "")
            continue
        try:
            decoder = Decoder.make(parse_schema(schema.text, schema.references), fields, reader)
        except AvroError as error:
            wrong |= dict.fromkeys(rows.tolist(), f"schema {number}: {error}")
            continue
        of_schema = Values(joined.data, joined.starts[rows] + _HEAD, joined.ends[rows])
        found.append(_placed(_decoded(decoder, of_schema), rows))
    return _together(found, wrong, fields)


def framed_json(
    values: Sequence[bytes], fields: tuple[Field, ...], registry: SchemaRegistry
) -> DecodedValues:
    """JSON behind the number of its schema, which must be one of JSON Schema; it is not validated by it."""
    joined, wrong, good = join_values(values), dict[int, str](), np.zeros(len(values), np.bool_)
    for number, rows in _by_number(joined, wrong):
        reason = _other_kind(registry.schema(number), number, "JSON")
        if reason is None:
            good[rows] = True
        else:
            wrong |= dict.fromkeys(rows.tolist(), reason)
    places = np.flatnonzero(good)
    found = json_values([values[at][_HEAD:] for at in places.tolist()], fields)
    return _together([_placed(found, places)], wrong, fields)


def plain_avro(values: Sequence[bytes], fields: tuple[Field, ...], schema: AvroSchema) -> DecodedValues:
    """Values of Avro that were all written by one schema."""
    try:
        return _decoded(Decoder.make(schema, fields, schema), join_values(values))
    except AvroError as error:
        wrong = dict.fromkeys(range(len(values)), str(error))
        return _together([], wrong, fields)


def _by_number(values: Values, wrong: dict[int, str]) -> Iterator[tuple[int, Any]]:
    """The rows of each schema's number; why others name none is added to ``wrong``."""
    data, sizes = np.frombuffer(values.data, np.uint8), values.ends - values.starts
    long = np.flatnonzero(sizes >= _HEAD)
    wrong |= dict.fromkeys(np.flatnonzero(sizes < _HEAD).tolist(), "it is too short to name a schema")
    if not len(long):
        return
    heads = data[values.starts[long][:, None] + np.arange(_HEAD)]
    framed = heads[:, 0] == 0
    told = "it does not begin with the number of a schema (a zero and four bytes)"
    wrong |= dict.fromkeys(long[~framed].tolist(), told)
    numbers = np.ascontiguousarray(heads[:, 1:]).view(">i4").ravel()
    for number in np.unique(numbers[framed]).tolist():
        yield number, long[framed & (numbers == number)]


def _other_kind(schema: RegisteredSchema | None, number: int, kind: str) -> str | None:
    if schema is None:
        return f"the schema registry does not know schema {number}"
    return None if schema.kind == kind else f"schema {number} is of the kind {schema.kind}, and not {kind}"


def _decoded(decoder: Decoder, values: Values) -> DecodedValues:
    raw, wrong = decode_values(decoder, values)
    target = Target(Schema(decoder.columns))
    good = np.delete(np.arange(len(values)), list(wrong))
    columns = [_column(one, field.type) for one, field in zip(raw, decoder.columns, strict=True)]
    if wrong:
        columns = [_taken(column, good) for column in columns]
    made = assemble(columns, target)
    wrong |= {int(good[row]): reason for row, reason in made.reasons.items()}
    return DecodedValues(made.batch, np.delete(good, list(made.reasons)), wrong)


def _column(raw: RawColumn, type_: DataType) -> Column:
    """A column of the declared type, of the wide one that was decoded."""
    values, kind = raw.values, arrow_type(type_)
    if pa.types.is_null(values.type):
        return Column(pa.nulls(len(values), kind))
    if type_.is_integer:
        return integers_to(values, type_)
    match type_.name:
        case "float" | "double":
            return doubles_to(values, type_)
        case "boolean":
            return Column(values.cast(kind))
        case "date":
            found = integers_to(values, DataType("int"))
            return Column(found.values.view(kind), found.bad, found.raw)
        case "timestamp":
            return Column(values.view(TIMESTAMP))
        case "string":
            return Column(values, raw.bad) if pa.types.is_string(values.type) else as_text(values)
        case "decimal":
            return _decimals(raw, kind)
    return Column(values)


def _decimals(raw: RawColumn, kind: pa.DataType) -> Column:
    """Decimals of the declared digits; those that have more are bad."""
    try:
        return Column(raw.values.cast(kind), raw.bad)
    except pa.ArrowInvalid:
        limit = 10 ** (kind.precision - kind.scale)
        kept = [one if one is not None and abs(one) < limit else None for one in raw.values.to_pylist()]
        fits = pa.array(kept, pa.decimal128(38, raw.values.type.scale))
        lost = fits.is_null().to_numpy(False) & raw.values.is_valid().to_numpy(False)
        return Column(fits.cast(kind), lost if raw.bad is None else lost | raw.bad, raw.values)


def _taken(column: Column, rows: Any) -> Column:
    some = pa.array(rows)
    bad = None if column.bad is None else column.bad[rows]
    return Column(column.values.take(some), bad, None if column.raw is None else column.raw.take(some))


def _placed(found: DecodedValues, rows: Any) -> DecodedValues:
    """The same values where they stand among all."""
    wrong = {int(rows[at]): reason for at, reason in found.wrong.items()}
    return DecodedValues(found.rows, rows[found.good], wrong)


def _together(
    found: Sequence[DecodedValues], wrong: dict[int, str], fields: tuple[Field, ...]
) -> DecodedValues:
    """All values in their order."""
    for one in found:
        wrong |= one.wrong
    if len(found) == 1:
        return DecodedValues(found[0].rows, found[0].good, wrong)
    if not found:
        return DecodedValues(no_rows(Target(Schema(fields))), np.zeros(0, np.int64), wrong)
    good = np.concatenate([one.good for one in found])
    order = np.argsort(good, kind="stable")
    rows = pa.Table.from_batches([one.rows for one in found]).take(pa.array(order)).combine_chunks()
    batches = rows.to_batches()
    return DecodedValues(batches[0] if batches else found[0].rows, good[order], wrong)
