"""Functions of dates and times.

Guarantees: times are instants in UTC with a resolution of a microsecond, and a date is its midnight; the calendar is
the Gregorian one in every year. Adding months keeps the day, or takes the last day of a shorter month. A date or a time
that its type cannot hold is NULL. Weeks begin on Mondays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.bucket.compiled import Array, Longs, Mask
from weft.kernels.expr.arrow import TIMESTAMP
from weft.kernels.expr.datum import (
    ColumnFunction,
    as_type,
    columns_of,
    constant_of,
    naive,
    numbers,
    valid_rows,
    with_nulls,
)

__all__ = [
    "DAY",
    "FUNCTIONS",
    "civil_days",
    "days_of",
    "micros_of",
    "month_number",
    "months_later",
    "year_days",
]

DAY = 86_400_000_000  # microseconds
_MOST_MONTHS = 2**28  # more than dates of 32 bits are apart


def days_of(value: Any) -> Longs:
    """The days since 1970 of a column of dates or times; those of NULLs are arbitrary."""
    if pa.types.is_timestamp(value.type):
        return micros_of(value) // DAY
    return numbers(as_type(value, pa.int32())).astype(np.int64)


def micros_of(value: Any) -> Longs:
    """The microseconds since 1970 of a column of dates or times; those of NULLs are arbitrary."""
    if not pa.types.is_timestamp(value.type):
        return days_of(value) * DAY
    return numbers(as_type(value, TIMESTAMP).view(pa.int64())).astype(np.int64)


def months_later(days: Longs, count: Longs) -> Longs:
    """The days so many months later, at the end of a shorter month."""
    day = days.astype("M8[D]")
    first = day.astype("M8[M]")
    target = first + np.clip(count, -_MOST_MONTHS, _MOST_MONTHS).astype("m8[M]")
    moved: Longs = np.minimum(target.astype("M8[D]") + (day - first.astype("M8[D]")), _last_day(target))
    return moved.astype(np.int64)


def _last_day(months: Any) -> Any:
    return (months + np.timedelta64(1, "M")).astype("M8[D]") - np.timedelta64(1, "D")


def _both(one: Mask | None, other: Mask) -> Mask:
    return other if one is None else one & other


def _dates(days: Array, args: Sequence[Any], kind: pa.DataType) -> Any:
    """Dates from days since 1970, NULL where an argument is or where the days are too many."""
    fits = np.abs(days) < 2**31
    return with_nulls(np.where(fits, days, 0).astype(np.int32), _both(valid_rows(args), fits), kind)


def _by_days(function: Callable[[Longs], Any]) -> ColumnFunction:
    """A function of the days since 1970 of its only argument, which gives days if the result is a date."""

    def rule(args: Sequence[Any], kind: pa.DataType) -> Any:
        values = function(days_of(args[0]))
        if pa.types.is_date(kind):
            return _dates(values.astype(np.int64), args, kind)
        return with_nulls(values.astype(np.int64), valid_rows(args), kind)

    return rule


def _by_micros(function: Callable[[Longs], Any]) -> ColumnFunction:
    """A whole number from the microseconds since 1970 of a time."""

    def rule(args: Sequence[Any], kind: pa.DataType) -> Any:
        return with_nulls(function(micros_of(args[0])), valid_rows(args), kind)

    return rule


def year_days(days: Longs) -> Any:
    """The day of the year, from 1, of days since 1970."""
    return days - days.astype("M8[D]").astype("M8[Y]").astype("M8[D]").astype(np.int64) + 1


def month_number(days: Longs) -> Any:
    """The months since 1970 of days since then."""
    return days.astype("M8[D]").astype("M8[M]").astype(np.int64)


def _week(days: Longs) -> Any:
    """The number of the week as ISO 8601 counts: week 1 has the first Thursday of the year."""
    thursday = days - (days + 3) % 7 + 3
    return (year_days(thursday) - 1) // 7 + 1


def _week_year(days: Longs) -> Any:
    thursday = days - (days + 3) % 7 + 3
    return thursday.astype("M8[D]").astype("M8[Y]").astype(np.int64) + 1970


def _name_of(names: str, place: Callable[[Longs], Any]) -> ColumnFunction:
    """A name out of some, by a number from 0 for the days since 1970.

    The names become a column when one is asked for: the first that Arrow makes of Python's objects imports pandas.
    """

    def rule(args: Sequence[Any], _kind: pa.DataType) -> Any:
        index = with_nulls(place(days_of(args[0])), valid_rows(args), pa.int64())
        return pa.array(names.split()).take(index)

    return rule


_WEEKDAYS, _MONTHS = "Mon Tue Wed Thu Fri Sat Sun", "Jan Feb Mar Apr May Jun Jul Aug Sep Oct Nov Dec"


def _move(sign: int) -> ColumnFunction:
    """The date so many days later or earlier."""

    def rule(args: Sequence[Any], kind: pa.DataType) -> Any:
        dates, count = columns_of(args)
        step = np.clip(numbers(count).astype(np.int64), -(2**40), 2**40)
        return _dates(days_of(dates) + sign * step, [dates, count], kind)

    return rule


def _add_months(args: Sequence[Any], kind: pa.DataType) -> Any:
    dates, months = columns_of(args)
    return _dates(months_later(days_of(dates), numbers(months).astype(np.int64)), [dates, months], kind)


def _date_diff(args: Sequence[Any], kind: pa.DataType) -> Any:
    end, start = columns_of(args)
    return with_nulls(days_of(end) - days_of(start), valid_rows([end, start]), kind)


def _months_between(args: Sequence[Any], kind: pa.DataType) -> Any:
    """Months and parts of months of 31 days; whole ones between equal days, and between the last days of months."""
    rounded = len(args) < 3 or constant_of(args[2])
    end, start = columns_of(args[:2])
    micros = [micros_of(value) for value in (end, start)]
    days = [value // DAY for value in micros]
    months = month_number(days[0]) - month_number(days[1])
    firsts = [day.astype("M8[D]").astype("M8[M]") for day in days]
    places = [day - first.astype("M8[D]").astype(np.int64) for day, first in zip(days, firsts, strict=True)]
    last = [_last_day(first).astype(np.int64) == day for day, first in zip(days, firsts, strict=True)]
    seconds = [(value % DAY) // 1_000_000 for value in micros]
    rest = ((places[0] - places[1]) * 86400 + seconds[0] - seconds[1]) / (31 * 86400.0)
    found = np.where((places[0] == places[1]) | (last[0] & last[1]), months.astype(np.float64), months + rest)
    if rounded:
        found = np.floor(np.abs(found) * 1e8 + 0.5) / 1e8 * np.sign(found)
    valid = valid_rows([end, start] if len(args) < 3 or constant_of(args[2]) is not None else args)
    return with_nulls(found, valid, kind)


_UNITS = {
    **dict.fromkeys(("YEAR", "YYYY", "YY"), "Y"),
    "QUARTER": "Q",
    **dict.fromkeys(("MONTH", "MON", "MM"), "M"),
    "WEEK": "W",
    **dict.fromkeys(("DAY", "DD"), "D"),
    "HOUR": "h",
    "MINUTE": "m",
    "SECOND": "s",
    "MILLISECOND": "ms",
    "MICROSECOND": "us",
}
_SPANS = {"D": DAY, "h": 3_600_000_000, "m": 60_000_000, "s": 1_000_000, "ms": 1000, "us": 1}


def _start_of(days: Longs, unit: str) -> Any:
    """The first day of the year, quarter, month or week of each day."""
    if unit == "W":
        return days - (days + 3) % 7
    if unit == "Q":
        months = month_number(days)
        return (months - months % 3).astype("M8[M]").astype("M8[D]").astype(np.int64)
    return days.astype("M8[D]").astype(f"M8[{unit}]").astype("M8[D]").astype(np.int64)


def _date_trunc(args: Sequence[Any], kind: pa.DataType) -> Any:
    unit, (moments,) = _UNITS.get(str(constant_of(args[0])).upper()), columns_of(args[1:])
    if unit is None:
        return pa.nulls(len(moments), kind)
    micros = micros_of(moments)
    start = micros - micros % _SPANS[unit] if unit in _SPANS else _start_of(micros // DAY, unit) * DAY
    return with_nulls(start, valid_rows([moments]), pa.int64()).view(TIMESTAMP)


def _trunc(args: Sequence[Any], kind: pa.DataType) -> Any:
    dates, unit = args[0], _UNITS.get(str(constant_of(args[1])).upper(), "")
    if unit not in ("Y", "Q", "M", "W"):
        return pa.nulls(len(dates), kind)
    return _dates(_start_of(days_of(dates), unit), [dates], kind)


_DAY_NAMES = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DAY_PLACES = {name[:size]: place for place, name in enumerate(_DAY_NAMES) for size in (2, 3, len(name))}


def _next_day(args: Sequence[Any], kind: pa.DataType) -> Any:
    """The first date after a date that is a given day of the week; NULL where there is no such day."""
    dates, names = columns_of(args)
    coded = pc.utf8_lower(pc.utf8_trim_whitespace(names))
    place = pc.index_in(coded, value_set=pa.array(list(_DAY_PLACES)))
    target = np.array([*_DAY_PLACES.values()])[numbers(place)]
    days = days_of(dates)
    return _dates(days + 1 + (target - (days + 1) - 3) % 7, [dates, place], kind)


def _make_date(args: Sequence[Any], kind: pa.DataType) -> Any:
    parts = columns_of(args)
    days, exists = civil_days(*(numbers(part).astype(np.int64) for part in parts))
    found = _dates(days, parts, kind)
    return pc.if_else(pa.array(exists), found, pa.scalar(None, kind))


def civil_days(year: Longs, month: Longs, day: Longs) -> tuple[Longs, Mask]:
    """The days since 1970 of dates, and which of them exist."""
    good = (month >= 1) & (month <= 12) & (day >= 1) & (np.abs(year) < 1_000_000)
    first = ((np.where(good, year, 1970) - 1970) * 12 + np.where(good, month, 1) - 1).astype("M8[M]")
    days = first.astype("M8[D]") + (np.where(good, day, 1) - 1).astype("m8[D]")
    return days.astype(np.int64), good & (days.astype("M8[M]") == first)


def _make_timestamp(args: Sequence[Any], _kind: pa.DataType) -> Any:
    """A time from its parts; 60 seconds are the next minute, and a fraction has six digits."""
    parts = columns_of(args)
    year, month, day, hour, minute = (numbers(part).astype(np.int64) for part in parts[:5])
    seconds = np.round(numbers(parts[5]).astype(np.float64) * 1e6)
    days, exists = civil_days(year, month, day)
    exists &= (hour >= 0) & (hour < 24) & (minute >= 0) & (minute < 60)
    exists &= (seconds >= 0) & (seconds <= 60e6)
    micros = np.where(exists, seconds, 0).astype(np.int64)
    clock = np.where(exists, hour * 3600 + minute * 60, 0) * 1_000_000 + micros
    found = with_nulls(days * DAY + clock, _both(valid_rows(parts), exists), pa.int64())
    return found.view(TIMESTAMP)


def _from_number(scale: int) -> ColumnFunction:
    """Times from a count since 1970 of units that have so many microseconds; NULL where 64 bits do not hold it."""

    def rule(args: Sequence[Any], _kind: pa.DataType) -> Any:
        (value,) = args
        if pa.types.is_integer(value.type):
            count = numbers(value).astype(np.int64)
            fits = np.abs(count // 2 + count % 2) <= 2**62 // scale
            micros = np.where(fits, count, 0) * scale
        else:
            count = numbers(as_type(value, pa.float64()))
            fits = np.abs(count) < 2.0**63 / scale
            micros = np.trunc(np.where(fits, count, 0.0) * scale).astype(np.int64)
        return with_nulls(micros, _both(valid_rows(args), fits), pa.int64()).view(TIMESTAMP)

    return rule


def _moment_later(args: Sequence[Any], _kind: pa.DataType) -> Any:
    """A time so many units later."""
    unit = str(constant_of(args[0]))
    count, moments = columns_of(args[1:])
    micros, steps = micros_of(moments), numbers(count).astype(np.int64)
    if unit in _MONTHS_OF:
        days = months_later(micros // DAY, steps * _MONTHS_OF[unit])
        found = days * DAY + micros % DAY
    else:
        found = micros + steps * _MICROS_OF[unit]
    return with_nulls(found, valid_rows([count, moments]), pa.int64()).view(TIMESTAMP)


_MONTHS_OF = {"YEAR": 12, "QUARTER": 3, "MONTH": 1}
_MICROS_OF = {"WEEK": 7 * DAY, "DAY": DAY, "HOUR": 3_600_000_000, "MINUTE": 60_000_000}
_MICROS_OF |= {"SECOND": 1_000_000, "MILLISECOND": 1000, "MICROSECOND": 1}


def _whole_months(one: Longs, other: Longs) -> Longs:
    """How many whole months lie between two times: a month is whole when its day and its time of day have come."""
    days, end = one // DAY, other // DAY
    end = end - ((end > days) & (other % DAY < one % DAY)) + ((end < days) & (other % DAY > one % DAY))
    packed = [month_number(day) * 32 + day - _start_of(day, "M") for day in (days, end)]
    apart = packed[1] - packed[0]
    whole: Longs = np.sign(apart) * (np.abs(apart) // 32)
    return whole


def _moments_apart(args: Sequence[Any], kind: pa.DataType) -> Any:
    """How many whole units lie between two times."""
    unit = str(constant_of(args[0]))
    start, end = columns_of(args[1:])
    one, other = micros_of(start), micros_of(end)
    if unit in _MONTHS_OF:
        whole = _whole_months(one, other)
        count = np.sign(whole) * (np.abs(whole) // _MONTHS_OF[unit])
    else:
        apart = other - one
        count = np.sign(apart) * (np.abs(apart) // _MICROS_OF[unit])
    return with_nulls(count, valid_rows([start, end]), kind)


def _second_with_fraction(args: Sequence[Any], kind: pa.DataType) -> Any:
    micros = with_nulls(micros_of(args[0]) % 60_000_000, valid_rows(args), pa.int64())
    whole = pc.cast(micros, pa.decimal128(19, 0))
    buffers = whole.buffers()
    exact = pa.Array.from_buffers(pa.decimal128(19, 6), len(whole), buffers, whole.null_count, whole.offset)
    return pc.cast(exact, kind)


def _clock(extract: Callable[..., Any]) -> ColumnFunction:
    def rule(args: Sequence[Any], kind: pa.DataType) -> Any:
        return pc.cast(extract(naive(args[0])), kind)

    return rule


FUNCTIONS: dict[str, ColumnFunction] = {
    "year": _by_days(lambda days: days.astype("M8[D]").astype("M8[Y]").astype(np.int64) + 1970),
    "quarter": _by_days(lambda days: month_number(days) % 12 // 3 + 1),
    "month": _by_days(lambda days: month_number(days) % 12 + 1),
    "day": _by_days(lambda days: days - _start_of(days, "M") + 1),
    "dayofyear": _by_days(year_days),
    "dayofweek": _by_days(lambda days: (days + 4) % 7 + 1),
    "weekday": _by_days(lambda days: (days + 3) % 7),
    "weekofyear": _by_days(_week),
    "yearofweek": _by_days(_week_year),
    "dayname": _name_of(_WEEKDAYS, lambda days: (days + 3) % 7),
    "monthname": _name_of(_MONTHS, lambda days: month_number(days) % 12),
    "hour": _clock(pc.hour),
    "minute": _clock(pc.minute),
    "second": _clock(pc.second),
    "second_with_fraction": _second_with_fraction,
    "date_add": _move(1),
    "date_sub": _move(-1),
    "datediff": _date_diff,
    "add_months": _add_months,
    "months_between": _months_between,
    "last_day": _by_days(lambda days: _last_day(days.astype("M8[D]").astype("M8[M]"))),
    "next_day": _next_day,
    "date_trunc": _date_trunc,
    "trunc": _trunc,
    "timestampadd": _moment_later,
    "timestampdiff": _moments_apart,
    "make_date": _make_date,
    "make_timestamp": _make_timestamp,
    "unix_date": _by_days(lambda days: days),
    "date_from_unix_date": lambda args, kind: _dates(numbers(args[0]).astype(np.int64), args, kind),
    "unix_micros": _by_micros(lambda micros: micros),
    "unix_millis": _by_micros(lambda micros: micros // 1000),
    "unix_seconds": _by_micros(lambda micros: micros // 1_000_000),
    "unix_timestamp": _by_micros(
        lambda micros: -(-micros // 1_000_000) * (micros < 0) + micros // 1_000_000 * (micros >= 0)
    ),
    "timestamp_micros": _from_number(1),
    "timestamp_millis": _from_number(1000),
    "timestamp_seconds": _from_number(1_000_000),
}
