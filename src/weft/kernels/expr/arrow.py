"""How the types of the expression language are stored.

Guarantees: no other module decides by which Arrow type a type is stored. Importing this one does not load the compiler,
so planning and decoding can use it without that.
"""

from __future__ import annotations

import pyarrow as pa

from weft.logical.query.query import Query
from weft.logical.schema import DataType

__all__ = ["TIMESTAMP", "arrow_type", "result_schema"]

TIMESTAMP = pa.timestamp("us", tz="UTC")

_TYPES = {
    "byte": pa.int8(),
    "short": pa.int16(),
    "int": pa.int32(),
    "long": pa.int64(),
    "boolean": pa.bool_(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": TIMESTAMP,
    "interval": pa.duration("us"),
    "null": pa.null(),
}


def arrow_type(type_: DataType) -> pa.DataType:
    """How values of a type are stored.

    >>> str(arrow_type(DataType("timestamp")))
    'timestamp[us, tz=UTC]'
    """
    if type_.name == "decimal":
        return pa.decimal128(type_.precision, type_.scale)
    if type_.is_nested:
        inside = [(name, arrow_type(inner)) for name, inner in type_.inside]
        if type_.kind == "struct":
            return pa.struct(inside)
        return pa.list_(inside[0][1]) if type_.kind == "array" else pa.map_(inside[0][1], inside[1][1])
    return _TYPES[type_.name]


def result_schema(query: Query) -> pa.Schema:
    """The columns of a query's results."""
    return pa.schema([(output.name, arrow_type(output.expr.type)) for output in query.shown])
