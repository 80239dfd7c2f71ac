"""Where the records of a CSV file are.

Guarantees: in a file whose quotes are sound, a record ends at the line's end outside quotes, found by whole-file
operations. In any other file a record is the shortest run of lines that has the right number of columns with sound
quotes; a line with which no such run begins is malformed alone, and reading goes on with the next one: a quote that
is never closed does not swallow the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.connectors.formats.lines import (
    NEWLINE,
    RETURN,
    Positions,
    Spans,
    as_bytes,
    find,
    line_ends,
    spans_between,
)

__all__ = ["CsvOptions", "column_counts", "has_sound_quotes", "line_end", "resynchronise", "sound_records"]


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
        found = record.match(content, at)
        end = found.end() if found else line_end(content, at)
        if end > at:
            starts.append(at)
            ends.append(end)
            good.append(found is not None)
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
