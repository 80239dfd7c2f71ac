"""The bytes of one file become rows.

Guarantees: pure, and without Spark: the same bytes give the same rows and the same bad records, wherever they are
decoded. A record that is malformed is set aside and the rest goes on; a file whose columns or types are not the
declared ones is a `SourceError` and gives nothing at all.
"""

from __future__ import annotations

from weft.connectors.formats.csv import CsvOptions, decode_csv
from weft.connectors.formats.json_lines import decode_json
from weft.connectors.formats.parquet import decode_arrow, decode_parquet
from weft.connectors.formats.records import Decoded, SourceFile, Target
from weft.errors import SourceError, nearest

__all__ = ["FORMATS", "decode"]

_DECODERS = {"parquet": decode_parquet, "arrow": decode_arrow, "json": decode_json}
FORMATS = ("parquet", "arrow", "json", "csv")


def decode(file: SourceFile, format_: str, target: Target, csv: CsvOptions | None = None) -> Decoded:
    """The rows of a file in one of the formats parquet, arrow, json (lines) and csv."""
    if format_ == "csv":
        return decode_csv(file, target, csv)
    if format_ not in _DECODERS:
        raise SourceError(f"unknown format {format_!r}", hint=nearest(format_, FORMATS))
    return _DECODERS[format_](file, target)
