"""What the values of a topic are, and how they become rows.

Guarantees: a `ValueFormat` that exists is consistent: it has the schema or the registry that its values need, and
nothing that they do not. `check` tells before the start what can be told of the schemas that a registry has.

What becomes of a value does not depend on its neighbours, whichever schemas they were written by. Texts and bytes are
decoded as whole columns, by the decoders of files: a value is a line of a file. A value that names no schema, one that
the registry does not know, or one that cannot give the columns, is set aside with the reason; a registry that does not
answer is an error, for then nothing is wrong with the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa

from weft.connectors.formats.columns import (
    ConvertedColumn,
    arrow_schema,
    as_text,
    assemble,
    doubles_to,
    integers_to,
)
from weft.connectors.formats.csv import decode_csv
from weft.connectors.formats.json_lines import decode_json
from weft.connectors.formats.records import Decoded, SourceFile, Target
from weft.connectors.kafka.avro import AvroError, AvroSchema, Decoder, RawColumn, decode_values, parse_schema
from weft.connectors.kafka.avro.decode import Values, join_values
from weft.connectors.kafka.avro.program import find_field, missing_column
from weft.connectors.kafka.registry import RegisteredSchema, RegistryOptions, SchemaRegistry
from weft.errors import SourceError, nearest
from weft.kernels.expr.arrow import TIMESTAMP, arrow_type
from weft.logical.schema import DataType, Field, Schema

__all__ = [
    "FORMATS",
    "DecodedValues",
    "ValueFormat",
    "json_values",
    "plain_avro",
]


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
    converted = ConvertedColumn(column) if field.type.name == "binary" else as_text(column)
    bad = np.zeros(len(values), np.bool_) if converted.bad is None else converted.bad
    rows = pa.record_batch([converted.values], [field.name]).filter(pa.array(~bad))
    return DecodedValues(
        rows, np.flatnonzero(~bad), dict.fromkeys(np.flatnonzero(bad).tolist(), "it is no UTF-8")
    )


def _as_lines(values: list[bytes], decode: Callable[[bytes], Decoded], target: Target) -> DecodedValues:
    """Decode values as the lines of one file; values that are not one line each are decoded in smaller groups."""
    content = b"\n".join(values)
    decoded = decode(content + b"\n") if values else Decoded(no_rows(target))
    if _one_line_each(content, len(values)) and decoded.batch.num_rows + len(decoded.bad) == len(values):
        wrong = {(record.row or 1) - 1: record.reason for record in decoded.bad}
        return DecodedValues(decoded.batch, np.delete(np.arange(len(values)), list(wrong)), wrong)
    if len(values) == 1:
        reason = "it is empty" if not values[0].strip() else "it is more than one record"
        return DecodedValues(no_rows(target), np.zeros(0, np.int64), {0: reason})
    middle = len(values) // 2
    first, two = _as_lines(values[:middle], decode, target), _as_lines(values[middle:], decode, target)
    rows = pa.Table.from_batches([first.rows, two.rows]).combine_chunks().to_batches()
    wrong = {**first.wrong, **{at + middle: reason for at, reason in two.wrong.items()}}
    good = np.concatenate([first.good, two.good + middle])
    return replace(first, rows=rows[0] if rows else no_rows(target), good=good, wrong=wrong)


def _one_line_each(content: bytes, count: int) -> bool:
    """Whether values that were joined by line ends have none themselves; a single one may."""
    return count < 2 or (content.count(b"\n") == count - 1 and b"\r" not in content)


def no_rows(target: Target) -> pa.RecordBatch:
    """A batch of the target's columns without rows."""
    return pa.RecordBatch.from_pylist([], schema=arrow_schema(target))


_HEAD = 5  # a zero, and the number of the schema in four bytes, the highest first


def framed_avro(
    values: Sequence[bytes], fields: tuple[Field, ...], registry: SchemaRegistry, reader: AvroSchema | None
) -> DecodedValues:
    """Values of Avro by the schemas that they name."""
    joined, decoded, wrong = join_values(values), list[DecodedValues](), dict[int, str]()
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
        decoded.append(_placed(_decoded(decoder, of_schema), rows))
    return _together(decoded, wrong, fields)


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
    decoded = json_values([values[at][_HEAD:] for at in places.tolist()], fields)
    return _together([_placed(decoded, places)], wrong, fields)


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


def _column(raw: RawColumn, type_: DataType) -> ConvertedColumn:
    """A column of the declared type, of the wide one that was decoded."""
    values, kind = raw.values, arrow_type(type_)
    if pa.types.is_null(values.type):
        return ConvertedColumn(pa.nulls(len(values), kind))
    if type_.is_integer:
        return integers_to(values, type_)
    match type_.name:
        case "float" | "double":
            return doubles_to(values, type_)
        case "boolean":
            return ConvertedColumn(values.cast(kind))
        case "date":
            converted = integers_to(values, DataType("int"))
            return ConvertedColumn(converted.values.view(kind), converted.bad, converted.raw)
        case "timestamp":
            return ConvertedColumn(values.view(TIMESTAMP))
        case "string":
            return ConvertedColumn(values, raw.bad) if pa.types.is_string(values.type) else as_text(values)
        case "decimal":
            return _decimals(raw, kind)
    return ConvertedColumn(values)


def _decimals(raw: RawColumn, kind: pa.DataType) -> ConvertedColumn:
    """Decimals of the declared digits; those that have more are bad."""
    try:
        return ConvertedColumn(raw.values.cast(kind), raw.bad)
    except pa.ArrowInvalid:
        limit = 10 ** (kind.precision - kind.scale)
        kept = [
            value if value is not None and abs(value) < limit else None for value in raw.values.to_pylist()
        ]
        fits = pa.array(kept, pa.decimal128(38, raw.values.type.scale))
        lost = fits.is_null().to_numpy(False) & raw.values.is_valid().to_numpy(False)
        return ConvertedColumn(fits.cast(kind), lost if raw.bad is None else lost | raw.bad, raw.values)


def _taken(column: ConvertedColumn, rows: Any) -> ConvertedColumn:
    some = pa.array(rows)
    bad = None if column.bad is None else column.bad[rows]
    return ConvertedColumn(
        column.values.take(some), bad, None if column.raw is None else column.raw.take(some)
    )


def _placed(decoded: DecodedValues, rows: Any) -> DecodedValues:
    """The same values where they stand among all."""
    wrong = {int(rows[at]): reason for at, reason in decoded.wrong.items()}
    return DecodedValues(decoded.rows, rows[decoded.good], wrong)


def _together(
    decoded: Sequence[DecodedValues], wrong: dict[int, str], fields: tuple[Field, ...]
) -> DecodedValues:
    """All values in their order."""
    for part in decoded:
        wrong |= part.wrong
    if len(decoded) == 1:
        return DecodedValues(decoded[0].rows, decoded[0].good, wrong)
    if not decoded:
        return DecodedValues(no_rows(Target(Schema(fields))), np.zeros(0, np.int64), wrong)
    good = np.concatenate([part.good for part in decoded])
    order = np.argsort(good, kind="stable")
    rows = pa.Table.from_batches([part.rows for part in decoded]).take(pa.array(order)).combine_chunks()
    batches = rows.to_batches()
    return DecodedValues(batches[0] if batches else decoded[0].rows, good[order], wrong)


FORMATS = ("json", "avro", "csv", "raw")
_AT_START = 10.0  # seconds that a registry may be away when a session starts


@dataclass(frozen=True, slots=True)
class ValueFormat:
    """A format with what it needs: a schema registry, or a schema of Avro's. ``timeout`` is in seconds.

    With a registry, ``avro_schema`` is the reader's schema, which has aliases and defaults of columns; without one it
    is the schema that all values were written by. ``subject`` is under what the registry has the topic's schemas.
    """

    name: str = "json"
    registry: RegistryOptions | None = None
    avro_schema: str | None = None
    subject: str | None = None
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if self.name not in FORMATS:
            raise SourceError(f"kafka: unknown format {self.name!r}", hint=nearest(self.name, FORMATS))
        if self.registry is not None and self.name not in ("avro", "json"):
            raise SourceError(f"kafka: values of format {self.name} have no schema in a registry")
        if self.registry is None and self.subject is not None:
            raise SourceError(
                "kafka: subject is given, but no registry", hint='as in registry="http://localhost:8081"'
            )
        if self.avro_schema is not None and self.name != "avro":
            raise SourceError(f"kafka: avro_schema is given, but the format is {self.name}")
        if self.name == "avro" and self.registry is None and self.avro_schema is None:
            raise SourceError(
                "kafka: Avro values need a schema",
                hint='give registry="http://…", or avro_schema=… if all values were written by one',
            )

    def check_columns(self, fields: tuple[Field, ...]) -> None:
        """Refuse columns that the given schema has not, or has with types that do not fit."""
        schema = self._given()
        if schema is None:
            return
        try:
            root = schema.resolve(schema.root)
            for field in fields if root.kind == "record" else ():
                if find_field(root.fields, field.name) is None:
                    raise missing_column(field.name, root.fields)
            Decoder.make(schema, fields, schema)
        except AvroError as error:
            raise SourceError(f"kafka: avro_schema: {error}") from None

    def check(self, topic: str, fields: tuple[Field, ...]) -> None:
        """Refuse what the registry's schemas of the topic cannot give; do nothing without a registry."""
        if self.registry is None or not fields:
            return
        registry, subject = self._registry(_AT_START), self.subject or f"{topic}-value"
        newest = registry.latest(subject)
        if newest is None and self.subject is not None:
            raise SourceError(
                f"kafka: the schema registry at {self.registry.url} has no subject {subject}",
                hint="is it spelled as the registry has it?",
            )
        kind = "AVRO" if self.name == "avro" else "JSON"
        if newest is not None and newest.kind != kind:
            raise SourceError(
                f"kafka: subject {subject} has schemas of the kind {newest.kind}, and not {kind}",
                hint=f'is format="{self.name}" right?',
            )
        if newest is not None and self.name == "avro":
            self._check_schemas(registry, subject, newest, fields)

    def _check_schemas(
        self, registry: SchemaRegistry, subject: str, newest: RegisteredSchema, fields: tuple[Field, ...]
    ) -> None:
        """Every column must be in some schema of the subject, and those of the newest must fit."""
        reader = self._given()
        try:
            decoder = Decoder.make(parse_schema(newest.text, newest.references), fields, reader)
            pairs = zip(fields, decoder.program.sources, strict=True)
            lacking = [field for field, source in pairs if source is None] if reader is None else []
            for version in registry.versions(subject) if lacking else ():
                older = Decoder.make(parse_schema(version.text, version.references), tuple(lacking))
                sources = zip(lacking, older.program.sources, strict=True)
                lacking = [field for field, source in sources if source is None]
            if lacking:
                root = decoder.program.schema.resolve(decoder.program.schema.root)
                raise missing_column(lacking[0].name, root.fields)
        except AvroError as error:
            raise SourceError(
                f"kafka: subject {subject}: {error}", hint="declare the columns as the schema has them"
            ) from None

    def decode(self, values: list[bytes], fields: tuple[Field, ...]) -> DecodedValues:
        """The rows of values, and what cannot be decoded of them."""
        match self.name:
            case "raw":
                return raw_values(values, fields)
            case "csv":
                return csv_values(values, fields)
            case "json" if self.registry is None:
                return json_values(values, fields)
            case "json":
                return framed_json(values, fields, self._registry(self.timeout))
        schema = self._given()
        if self.registry is not None:
            return framed_avro(values, fields, self._registry(self.timeout), schema)
        if schema is None:
            raise SourceError("kafka: Avro values need a schema")
        return plain_avro(values, fields, schema)

    def _registry(self, patience: float) -> SchemaRegistry:
        if self.registry is None:
            raise SourceError("kafka: no registry is named")
        return SchemaRegistry(self.registry, "kafka", SourceError, patience)

    def _given(self) -> AvroSchema | None:
        if self.avro_schema is None:
            return None
        try:
            return parse_schema(self.avro_schema)
        except AvroError as error:
            raise SourceError(f"kafka: avro_schema: {error}") from None
