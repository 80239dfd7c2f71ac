"""Times written and read by a format (`weft.logical.expr.builtin.formats`), whole columns at once.

Guarantees: as in Spark with its default policy: a text that does not match the whole format, or names a day or an hour
that does not exist, is NULL; what a format leaves out is that of 1 January 1970, at midnight. Names are English.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import Longs
from weft.kernels.expr.arrow import TIMESTAMP
from weft.kernels.expr.builtin.times import DAY, civil_days, micros_of, month_number, year_days
from weft.kernels.expr.datum import ColumnFunction, constant_of, null_unless, numbers, valid_rows, with_nulls
from weft.logical.expr.builtin.formats import MONTHS, WEEKDAYS, FormatPiece, pieces_of, reading_pattern

__all__ = ["FUNCTIONS"]

_SECOND = 1_000_000  # microseconds
_ZONES = {"X": ("Z", "Z", "Z"), "x": ("+00", "+0000", "+00:00"), "Z": ("+0000", "+0000", "+0000")}


def _write(args: Sequence[Any], kind: pa.DataType) -> Any:
    format_ = constant_of(args[1])
    if format_ is None:
        return pa.nulls(len(args[0]), kind)
    micros = micros_of(args[0])
    texts = [_written(piece, micros) for piece in pieces_of(format_)]
    empty = pa.repeat(pa.scalar(""), micros.size)
    valid = valid_rows(args[:1])
    made = pc.binary_join_element_wise(empty, *texts, "")
    return made if valid is None else null_unless(pa.array(valid), made)


def _written(piece: FormatPiece, micros: Longs) -> Any:
    """What a piece of a format writes for each time; a constant is a scalar."""
    letter, days = piece.letter, micros // DAY
    if not letter:
        return pa.scalar(piece.text)
    if letter in _ZONES:
        return pa.scalar(_ZONES[letter][piece.count - 1])
    if letter == "a":
        return _named(("AM", "PM"), micros % DAY // (DAY // 2))
    if letter == "E":
        return _named(WEEKDAYS, (days + 3) % 7, 0 if piece.count == 4 else 3)
    if piece.is_name and letter in "ML":
        return _named(MONTHS, month_number(days) % 12, 0 if piece.count == 4 else 3)
    if piece.is_name:
        return _named(("Q1", "Q2", "Q3", "Q4"), month_number(days) % 12 // 3)
    if letter == "y":
        return _years(month_number(days) // 12 + 1970, piece.count)
    if letter == "S":
        return _digits(micros % _SECOND * 1000 // 10 ** (9 - piece.count), piece.count)
    return _digits(_value(letter, micros), piece.count)


def _value(letter: str, micros: Longs) -> Longs:
    """The number that a letter stands for, of each time."""
    days, seconds = micros // DAY, micros % DAY // _SECOND
    hour = seconds // 3600
    found: Longs
    match letter:
        case "M" | "L":
            found = month_number(days) % 12 + 1
        case "Q" | "q":
            found = month_number(days) % 12 // 3 + 1
        case "d":
            found = days - days.astype("M8[D]").astype("M8[M]").astype("M8[D]").astype(np.int64) + 1
        case "D":
            found = year_days(days)
        case "m":
            found = seconds % 3600 // 60
        case "s":
            found = seconds % 60
        case "h":
            found = (hour + 11) % 12 + 1
        case "K":
            found = hour % 12
        case "k":
            found = (hour + 23) % 24 + 1
        case _:
            found = hour
    return found


def _named(names: Sequence[str], places: Longs, size: int = 0) -> Any:
    return pa.array([name[: size or None] for name in names]).take(pa.array(places))


def _digits(values: Longs, width: int) -> Any:
    return pc.utf8_lpad(pa.array(values).cast(pa.string()), width, padding="0")


def _years(years: Longs, width: int) -> Any:
    """Years with a sign where they are negative, or, of four digits or more, longer than that."""
    if width == 2:
        return _digits(years % 100, 2)
    sign = np.where(years < 0, 1, np.where((years >= 10**width) & (width >= 4), 2, 0))
    return pc.binary_join_element_wise(_named(("", "-", "+"), sign), _digits(np.abs(years), width), "")


@lru_cache(maxsize=64)
def _reading(format_: str) -> tuple[str, dict[str, FormatPiece]]:
    pieces = {
        "M" if piece.letter == "L" else piece.letter: piece
        for piece in pieces_of(format_, True)
        if piece.letter
    }
    return reading_pattern(format_), pieces


def _read(args: Sequence[Any], kind: pa.DataType) -> Any:
    format_ = constant_of(args[1])
    if format_ is None:
        return pa.nulls(len(args[0]), kind)
    pattern, pieces = _reading(format_)
    if not pieces:
        found = {}
        matched = numbers(pc.fill_null(pc.match_substring_regex(args[0], pattern), False))
    else:
        groups = pc.extract_regex(args[0], pattern)
        matched = numbers(groups.is_valid())
        found = {letter: _read_number(groups, piece, letter) for letter, piece in pieces.items()}
    days, exists = _day(found, matched.size)
    clock, on_clock = _clock(found, matched.size)
    micros = np.where(exists, days, 0) * DAY + np.where(on_clock, clock, 0)
    return with_nulls(micros, matched & exists & on_clock, pa.int64()).view(TIMESTAMP)


def _read_number(groups: Any, piece: FormatPiece, letter: str) -> Longs:
    """The numbers that a group of a pattern has; those of texts that do not match are arbitrary."""
    text = pc.struct_field(groups, letter)
    if letter == "a" or piece.is_name:
        names = (
            ("am", "pm")
            if letter == "a"
            else tuple(name.lower()[: piece.count if piece.count == 3 else None] for name in MONTHS)
        )
        places = numbers(pc.index_in(pc.utf8_lower(text), value_set=pa.array(names))).astype(np.int64)
        return places + (letter != "a")
    if letter == "S":
        text = pc.utf8_rpad(pc.fill_null(text, "0"), 9, padding="0")
    found: Longs = numbers(pc.cast(pc.fill_null(text, "0"), pa.int64())).astype(np.int64)
    return found + 2000 if letter == "y" and piece.count == 2 else found


def _day(found: dict[str, Longs], rows: int) -> tuple[Longs, Any]:
    ones = np.ones(rows, np.int64)
    year = found.get("y", 1970 * ones)
    if "D" in found:
        days, exists = civil_days(year, ones, ones)
        days = days + found["D"] - 1
        return days, exists & (found["D"] >= 1) & (
            days.astype("M8[D]").astype("M8[Y]").astype(np.int64) + 1970 == year
        )
    return civil_days(year, found.get("M", ones), found.get("d", ones))


def _clock(found: dict[str, Longs], rows: int) -> tuple[Longs, Any]:
    """Microseconds since midnight, and which of them exist."""
    none, good = np.zeros(rows, np.int64), np.ones(rows, np.bool_)
    hour = none
    for letter, low, high in (("H", 0, 23), ("k", 1, 24), ("K", 0, 11), ("h", 1, 12)):
        if letter in found:
            good &= (found[letter] >= low) & (found[letter] <= high)
            hour = found[letter] % (high - low + 1)
    if "h" in found or "K" in found:
        hour = hour + 12 * found.get("a", none)
    minute, second = found.get("m", none), found.get("s", none)
    good &= (minute < 60) & (second < 60)
    return (hour * 3600 + minute * 60 + second) * _SECOND + found.get("S", none) // 1000, good


FUNCTIONS: dict[str, ColumnFunction] = {"date_format": _write, "to_timestamp": _read}
