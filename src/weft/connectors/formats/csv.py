"""CSV files with a header.

Guarantees: columns are found by the header's names. Quoted fields may hold delimiters, line ends and doubled
quotes. A field that is empty and not quoted is NULL, a quoted one is an empty text. A record with too few or too
many columns, quotes that do not close, text that is not of the declared encoding or a value that is not of its type
is set aside alone, with its line. Empty lines are no records. Binary values are the bytes of the field, as in
Spark.

In a file whose quotes are sound, a record ends at the line's end outside quotes, found by whole-file operations. In any
other file a record is the shortest run of lines that has the right number of columns with sound quotes; a line with
which no such run begins is malformed alone, and reading goes on with the next one: a quote that is never closed does
not swallow the rest.
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.csv as pacsv
from numpy.typing import NDArray

from weft.connectors.formats.columns import (
    ConvertedColumn,
    as_text,
    assemble,
    locate_bad_rows,
    match_columns,
    read_texts,
    whole_file,
)
from weft.connectors.formats.records import (
    NEWLINE,
    RETURN,
    Decoded,
    Positions,
    SourceFile,
    Spans,
    Target,
    as_bytes,
    find,
    line_ends,
    spans_between,
)
from weft.logical.schema import DataType

__all__ = [
    "CsvOptions",
    "decode_csv",
]


@dataclass(frozen=True, slots=True)
class CsvOptions:
    """How a CSV file is written: what separates columns, encloses them (if anything), stands for NULL."""

    delimiter: str = ","
    quote: str = '"'
    encoding: str = "utf-8"
    null: str = ""


def has_sound_quotes(content: bytes, options: CsvOptions) -> bool:
    """Whether each quoted field starts after a delimiter or a line's end, and ends before one."""
    if not options.quote or options.quote.encode() not in content:
        return True
    data, quotes = as_bytes(content), _quotes(content, options)
    if len(quotes) % 2:
        return False
    opening, closing = quotes[0::2], quotes[1::2]
    border = np.zeros(256, np.bool_)
    border[[ord(options.delimiter), NEWLINE, RETURN]] = True
    before = border[data[np.maximum(opening - 1, 0)]] | (opening == 0)
    after = border[data[np.minimum(closing + 1, len(data) - 1)]] | (closing == len(data) - 1)
    doubled = opening[1:] == closing[:-1] + 1  # a quote inside a quoted field
    before[1:] |= doubled
    after[:-1] |= doubled
    return bool(before.all() and after.all())


def _quotes(content: bytes, options: CsvOptions) -> Positions:
    if not options.quote:
        return np.zeros(0, np.int64)
    return find(content, ord(options.quote))


def sound_records(content: bytes, options: CsvOptions, base: int | None, lines_before: int) -> Spans:
    """The records of a file with sound quotes; empty lines are none."""
    ends = line_ends(content)
    inside = np.searchsorted(_quotes(content, options), ends) % 2
    return spans_between(content, ends[inside == 0], base, lines_before)


def column_counts(spans: Spans, options: CsvOptions) -> Positions:
    """How many columns each record has, in a file with sound quotes."""
    delimiters = find(spans.content, ord(options.delimiter))
    inside = np.searchsorted(_quotes(spans.content, options), delimiters) % 2
    outside = delimiters[inside == 0]
    return np.searchsorted(outside, spans.ends) - np.searchsorted(outside, spans.starts) + 1


def resynchronise(
    content: bytes, options: CsvOptions, columns: int, base: int | None, lines_before: int
) -> tuple[Spans, NDArray[np.bool_]]:
    """The records of any file, and which of them have the right number of columns with sound quotes."""
    record = _record(options, columns)
    starts, ends, good = [], [], []
    at = 0
    while at < len(content):
        match = record.match(content, at)
        end = match.end() if match else line_end(content, at)
        if end > at:
            starts.append(at)
            ends.append(end)
            good.append(match is not None)
        at = end + (2 if content[end : end + 2] == b"\r\n" else 1)
    spans = Spans(content, np.array(starts, np.int64), np.array(ends, np.int64), base, lines_before)
    return spans, np.array(good, np.bool_)


def line_end(content: bytes, at: int) -> int:
    """Where the line ends that a place is on."""
    ends = (content.find(b"\n", at), content.find(b"\r", at))
    return min((end for end in ends if end >= 0), default=len(content))


def _record(options: CsvOptions, columns: int) -> re.Pattern[bytes]:
    """A record of so many columns, up to its line's end."""
    quote, delimiter = (re.escape(part.encode()) for part in (options.quote or "\0", options.delimiter))
    quoted = rb"%b[^%b]*(?:%b%b[^%b]*)*%b" % ((quote,) * 6)
    field = rb"(?:%b|(?!%b)[^%b\r\n]*)" % (quoted, quote, delimiter)
    return re.compile(rb"%b(?:%b%b){%d}(?=[\r\n]|\Z)" % (field, delimiter, field, columns - 1))


_BLOCK = 1 << 21  # bytes that stay in the cache between parsing and conversion


@dataclass(frozen=True, slots=True)
class _Body:
    """A file after its header."""

    content: bytes
    header: tuple[str, ...]
    base: int | None
    lines: int


def decode_csv(file: SourceFile, target: Target, options: CsvOptions | None = None) -> Decoded:
    """The rows of a CSV file."""
    options = options or CsvOptions()
    try:
        body = _body(file.content, options)
    except (UnicodeError, csv.Error, StopIteration) as error:
        return whole_file(file, target, f"not a readable CSV file: {str(error) or 'it has no header'}")
    places = match_columns(body.header, target, file)
    content, count = body.content, len(body.header)
    if not has_sound_quotes(content, options):
        spans, good = resynchronise(content, options, count, body.base, body.lines)
        wrong = dict.fromkeys(
            np.flatnonzero(~good).tolist(), f"malformed columns or quotes: expected {count} columns"
        )
        table = _read(spans.keep(good).joined(), body, places, options)
        return _finish(file, target, table, wrong, lambda: spans)

    def records() -> Spans:
        return sound_records(content, options, body.base, body.lines)

    try:
        table, wrong = _read(content, body, places, options, _BLOCK), {}
    except pa.ArrowInvalid:  # a record is very long, or has another number of columns
        table, wrong = _read_ragged(records(), body, places, options)
    return _finish(file, target, table, wrong, records)


def _read_ragged(
    spans: Spans, body: _Body, places: list[int], options: CsvOptions
) -> tuple[pa.Table, dict[int, str]]:
    """The records that have the right number of columns, and why the others are wrong."""
    counts, expected = column_counts(spans, options), len(body.header)
    wrong = np.flatnonzero(counts != expected).tolist()
    table = _read(spans.keep(counts == expected).joined(), body, places, options)
    return table, {at: f"expected {expected} columns, found {counts[at]}" for at in wrong}


def _finish(
    file: SourceFile, target: Target, table: pa.Table, wrong: dict[int, str], records: Callable[[], Spans]
) -> Decoded:
    fields = zip(target.schema, table.columns, strict=True)
    made = assemble([_column(values, field.type) for field, values in fields], target)
    if made.reasons:
        rows = np.delete(np.arange(table.num_rows + len(wrong)), list(wrong))
        wrong = wrong | {int(rows[row]): reason for row, reason in made.reasons.items()}
    return locate_bad_rows(file, made, dict(sorted(wrong.items())), lambda at: records().places(at))


def _column(values: pa.ChunkedArray, type_: DataType) -> ConvertedColumn:
    array = pa.concat_arrays(values.chunks) if values.num_chunks != 1 else values.chunk(0)
    if type_.name == "binary":
        return ConvertedColumn(array)
    texts = as_text(array)
    column = read_texts(texts.values, type_)
    if texts.bad is None:
        return column
    return ConvertedColumn(column.values, texts.bad if column.bad is None else texts.bad | column.bad, array)


def _body(content: bytes, options: CsvOptions) -> _Body:
    """The header, and what follows it as UTF-8."""
    plain = codecs.lookup(options.encoding).name in ("utf-8", "ascii")
    mark = 3 if content.startswith(codecs.BOM_UTF8) and plain else 0
    if not plain:
        text = content.decode(options.encoding, errors="surrogateescape").removeprefix("\ufeff")
        content = text.encode(errors="surrogateescape")
    read = _Lines(content, mark)
    reader = csv.reader(
        read,
        delimiter=options.delimiter,
        quotechar=options.quote or None,
        quoting=csv.QUOTE_MINIMAL if options.quote else csv.QUOTE_NONE,
        strict=True,
    )
    header = next(row for row in reader if row)
    return _Body(content[read.at :], tuple(header), read.at if plain else None, read.count)


class _Lines(Iterator[str]):
    """Lines of a file, one at a time; knows how far it has read."""

    def __init__(self, content: bytes, at: int) -> None:
        self.content, self.at, self.count = content, at, 0

    def __next__(self) -> str:
        if self.at >= len(self.content):
            raise StopIteration
        end = line_end(self.content, self.at)
        end += 2 if self.content[end : end + 2] == b"\r\n" else 1
        line, self.at = self.content[self.at : end], min(end, len(self.content))
        self.count += 1
        return line.decode()


def _read(
    content: bytes, body: _Body, places: list[int], options: CsvOptions, block: int | None = None
) -> pa.Table:
    """The declared columns as bytes; with blocks, no record may be longer than one."""
    names = [str(place) for place in range(len(body.header))]
    wanted = [names[place] for place in places]
    if not re.search(rb"[^\r\n]", content):
        return pa.table([pa.array([], pa.binary()) for _ in wanted], names=wanted)
    return pacsv.read_csv(
        pa.BufferReader(content),
        pacsv.ReadOptions(use_threads=False, column_names=names, block_size=block or len(content) + 1),
        pacsv.ParseOptions(
            delimiter=options.delimiter,
            quote_char=options.quote or False,
            newlines_in_values=bool(options.quote),
        ),
        pacsv.ConvertOptions(
            check_utf8=False,
            column_types=dict.fromkeys(wanted, pa.binary()),
            include_columns=wanted,
            null_values=[options.null],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
