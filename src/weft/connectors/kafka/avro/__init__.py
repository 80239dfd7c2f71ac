"""Values of Avro: their schemas, and whole columns that are decoded from values and encoded as values.

Guarantees: nothing here knows Kafka, a source or a sink. What cannot be is an `AvroError`, which says why.
"""

from weft.connectors.kafka.avro.decode import Decoder, RawColumn, decode_values
from weft.connectors.kafka.avro.encode import Encoder, encode_rows, schema_of
from weft.connectors.kafka.avro.schema import AvroError, AvroSchema, parse_schema

__all__ = [
    "AvroError",
    "AvroSchema",
    "Decoder",
    "Encoder",
    "RawColumn",
    "decode_values",
    "encode_rows",
    "parse_schema",
    "schema_of",
]
