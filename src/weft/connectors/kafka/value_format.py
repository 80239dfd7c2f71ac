"""What the values of a topic are, and who decodes them.

Guarantees: a `ValueFormat` that exists is consistent: it has the schema or the registry that its values need, and
nothing that they do not. `check` tells before the start what can be told of the schemas that a registry has.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.connectors.kafka.avro import AvroError, AvroSchema, Decoder, parse_schema
from weft.connectors.kafka.avro.program import find_field, missing_column
from weft.connectors.kafka.registry import RegisteredSchema, RegistryOptions, SchemaRegistry
from weft.connectors.kafka.registry_values import framed_avro, framed_json, plain_avro
from weft.connectors.kafka.values import DecodedValues, csv_values, json_values, raw_values
from weft.errors import SourceError, nearest
from weft.logical.schema import Field

__all__ = ["FORMATS", "ValueFormat"]

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
            for one in registry.versions(subject) if lacking else ():
                older = Decoder.make(parse_schema(one.text, one.references), tuple(lacking))
                found = zip(lacking, older.program.sources, strict=True)
                lacking = [field for field, source in found if source is None]
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
