"""Functions of dates and times."""

from __future__ import annotations

from collections.abc import Sequence

from weft.errors import QueryError
from weft.logical.expr.builtin.entry import Function, define
from weft.logical.expr.builtin.formats import DEFAULT_FORMAT, pieces_of, reading_pattern
from weft.logical.expr.conversion import DATE, STRING, TIMESTAMP, cast, coerce, literal
from weft.logical.expr.expression import Call, Expr, Literal, make_call
from weft.logical.expr.rules import CallTypes, TypingRule, fitted, mismatch
from weft.logical.schema import DataType

__all__ = ["TIMES"]

_PARTS = {
    **dict.fromkeys(("YEAR", "Y", "YEARS", "YR", "YRS"), "year"),
    **dict.fromkeys(("QUARTER", "QTR"), "quarter"),
    **dict.fromkeys(("MONTH", "MON", "MONS", "MONTHS"), "month"),
    **dict.fromkeys(("WEEK", "W", "WEEKS"), "weekofyear"),
    "YEAROFWEEK": "yearofweek",
    **dict.fromkeys(("DAY", "D", "DAYS"), "day"),
    **dict.fromkeys(("DAYOFWEEK", "DOW"), "dayofweek"),
    "DOY": "dayofyear",
    **dict.fromkeys(("HOUR", "H", "HOURS", "HR", "HRS"), "hour"),
    **dict.fromkeys(("MINUTE", "M", "MIN", "MINS", "MINUTES"), "minute"),
    **dict.fromkeys(("SECOND", "S", "SEC", "SECONDS", "SECS"), "second_with_fraction"),
}
_UNITS = ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND")


def _to(type_: DataType) -> tuple[TypingRule, int, int]:
    """The rule of a function that is a cast, or, of a text with a format, reads it."""

    def rule(function: str, args: Sequence[Expr]) -> Expr:
        if not (args[0].type.is_time or args[0].type.name in ("string", "null")):
            raise mismatch(function, args, "it takes (time), or (string, format)")
        if len(args) == 1 or args[0].type.is_time:
            return cast(args[0], type_)
        return cast(_read(function, args), type_)

    return rule, 1, 2


def _read(function: str, args: Sequence[Expr]) -> Expr:
    """The time that a text has by a format."""
    format_ = _format(function, args[1])
    if isinstance(format_.value, str):
        reading_pattern(format_.value)
    return make_call("to_timestamp", (coerce(args[0], STRING), format_), TIMESTAMP)


def _format(function: str, arg: Expr) -> Literal:
    if not isinstance(arg, Literal) or not isinstance(arg.value, str | None):
        raise QueryError(
            f"{function} needs a constant format: {arg}", hint="write the format itself, as in 'yyyy-MM-dd'"
        )
    return Literal(arg.value, STRING)


def _write(function: str, args: Sequence[Expr]) -> Expr:
    """A time as a text, by a format."""
    moment, format_ = fitted(args[0], "timestamp"), _format(function, args[1])
    if moment is None:
        raise mismatch(function, args, "it takes (time, format)")
    if isinstance(format_.value, str):
        pieces_of(format_.value)
    return make_call("date_format", (moment, format_), STRING)


def _from_unix_time(_function: str, args: Sequence[Expr]) -> Expr:
    """FROM_UNIXTIME is DATE_FORMAT of a number of seconds."""
    moment = CallTypes.parse("long -> timestamp").rule("timestamp_seconds", args[:1])
    return _write("from_unixtime", (moment, args[1] if len(args) > 1 else literal(DEFAULT_FORMAT)))


def _unix_time(function: str, args: Sequence[Expr]) -> Expr:
    """The seconds of a time, or of a text by a format."""
    moment = args[0]
    if moment.type == STRING:
        moment = _read(function, (moment, args[1] if len(args) > 1 else literal(DEFAULT_FORMAT)))
    return CallTypes.parse("timestamp -> long").rule(function, (moment,))


def _part(function: str, args: Sequence[Expr]) -> Expr:
    """A part of a time by its name."""
    name, moment = args
    part = _PARTS.get(str(name.value).upper()) if isinstance(name, Literal) else None
    fitting = fitted(moment, "time")
    if part is None or fitting is None:
        raise mismatch(function, args, f"it takes the name of a part ({', '.join(_UNITS[:8])}) and a time")
    type_ = DataType("decimal", 8, 6) if part == "second_with_fraction" else DataType("int")
    return make_call(part, (fitting,), type_)


def _of_unit(signature: str) -> tuple[TypingRule, int, int]:
    """The rule of a function whose first argument is the name of a unit."""
    types = CallTypes.parse(signature)

    def rule(function: str, args: Sequence[Expr]) -> Expr:
        found = types.rule(function, args)
        unit = str(args[0].value).upper() if isinstance(args[0], Literal) else ""
        if unit not in _UNITS or not isinstance(found, Call):
            raise QueryError(f"{function} has no unit {unit or args[0]}", hint=f"it has {', '.join(_UNITS)}")
        return make_call(function, (Literal(unit, DataType("string")), *found.args[1:]), found.type)

    return rule, 3, 3


TIMES: tuple[Function, ...] = (
    define("year", "time -> int", "year(t)", "The year.", "year(DATE '2024-05-31') → 2024"),
    define("quarter", "time -> int", "quarter(t)", "The quarter, 1 to 4.", "quarter(DATE '2024-05-31') → 2"),
    define("month", "time -> int", "month(t)", "The month, 1 to 12.", "month(DATE '2024-05-31') → 5"),
    define(
        "day",
        "time -> int",
        "day(t)",
        "The day of the month.",
        "day(DATE '2024-05-31') → 31",
        also="dayofmonth",
    ),
    define(
        "dayofyear",
        "time -> int",
        "dayofyear(t)",
        "The day of the year.",
        "dayofyear(DATE '2024-05-31') → 152",
    ),
    define(
        "dayofweek",
        "time -> int",
        "dayofweek(t)",
        "The day of the week, Sunday is 1.",
        "dayofweek(DATE '2024-05-31') → 6",
    ),
    define(
        "weekday",
        "time -> int",
        "weekday(t)",
        "The day of the week, Monday is 0.",
        "weekday(DATE '2024-05-31') → 4",
    ),
    define(
        "weekofyear",
        "time -> int",
        "weekofyear(t)",
        "The week of the year, as ISO 8601 counts.",
        "weekofyear(DATE '2024-12-31') → 1",
    ),
    define(
        "yearofweek",
        "time -> int",
        "EXTRACT(YEAROFWEEK FROM t)",
        "The year that the week belongs to.",
        "EXTRACT(YEAROFWEEK FROM DATE '2024-12-31') → 2025",
    ),
    define(
        "dayname",
        "time -> string",
        "dayname(t)",
        "The short name of the day.",
        "dayname(DATE '2024-05-31') → Fri",
    ),
    define(
        "monthname",
        "time -> string",
        "monthname(t)",
        "The short name of the month.",
        "monthname(DATE '2024-05-31') → May",
    ),
    define(
        "hour", "time -> int", "hour(t)", "The hour, 0 to 23.", "hour(TIMESTAMP '2024-05-31 13:45:10') → 13"
    ),
    define(
        "minute", "time -> int", "minute(t)", "The minute.", "minute(TIMESTAMP '2024-05-31 13:45:10') → 45"
    ),
    define(
        "second", "time -> int", "second(t)", "The second.", "second(TIMESTAMP '2024-05-31 13:45:10') → 10"
    ),
    define(
        "second_with_fraction",
        (lambda name, args: _part(name, (Literal("SECOND", DataType("string")), *args)), 1, 1),
        "EXTRACT(SECOND FROM t)",
        "The second with its fraction.",
        "EXTRACT(SECOND FROM TIMESTAMP '2024-05-31 13:45:10.5') → 10.500000",
    ),
    define(
        "date_part",
        (_part, 2, 2),
        "date_part(part, t), EXTRACT(part FROM t)",
        "A part of a time by its name.",
        "date_part('week', DATE '2024-05-31') → 22",
        "EXTRACT(DOY FROM DATE '2024-05-31') → 152",
        also="datepart",
        rewritten=True,
    ),
    define(
        "date_add",
        "date, integer -> date",
        "date_add(date, n), date + n",
        "So many days later.",
        "date_add(DATE '2024-02-28', 2) → 2024-03-01",
        "DATE '2024-02-28' + 2 → 2024-03-01",
        also="dateadd",
    ),
    define(
        "date_sub",
        "date, integer -> date",
        "date_sub(date, n), date - n",
        "So many days earlier.",
        "date_sub(DATE '2024-03-01', 1) → 2024-02-29",
    ),
    define(
        "datediff",
        "date, date -> int",
        "datediff(end, start)",
        "The days from start to end.",
        "datediff(DATE '2024-03-01', DATE '2024-02-28') → 2",
        also="date_diff",
    ),
    define(
        "add_months",
        "time, integer -> date",
        "add_months(date, n)",
        "So many months later, at the end of a shorter month.",
        "add_months(DATE '2024-01-31', 1) → 2024-02-29",
    ),
    define(
        "months_between",
        "timestamp, timestamp, [=boolean] -> double",
        "months_between(end, start), months_between(end, start, rounded)",
        "The months from start to end; a part of one is of 31 days, and has eight digits unless `rounded` is false.",
        "months_between(DATE '2024-03-31', DATE '2024-02-29') → 1.0",
        "months_between(DATE '2024-03-15', DATE '2024-02-29') → 0.5483871",
    ),
    define(
        "last_day",
        "date -> date",
        "last_day(date)",
        "The last day of the month.",
        "last_day(DATE '2024-02-05') → 2024-02-29",
    ),
    define(
        "next_day",
        "date, string -> date",
        "next_day(date, day)",
        "The next such day of the week.",
        "next_day(DATE '2024-05-31', 'Mon') → 2024-06-03",
    ),
    define(
        "date_trunc",
        "=string, timestamp -> timestamp",
        "date_trunc(unit, t)",
        "The beginning of the year, quarter, month, week, day, hour, minute, second, millisecond or microsecond.",
        "date_trunc('hour', TIMESTAMP '2024-05-31 13:45:10') → 2024-05-31 13:00:00+00:00",
    ),
    define(
        "trunc",
        "date, =string -> date",
        "trunc(date, unit)",
        "The first day of the year, quarter, month or week.",
        "trunc(DATE '2024-05-31', 'quarter') → 2024-04-01",
    ),
    define(
        "timestampadd",
        _of_unit("=string, integer, timestamp -> timestamp"),
        "timestampadd(unit, n, t), dateadd(unit, n, t)",
        "The time so many units later.",
        "timestampadd(HOUR, 2, TIMESTAMP '2024-05-31 13:45:10') → 2024-05-31 15:45:10+00:00",
    ),
    define(
        "timestampdiff",
        _of_unit("=string, timestamp, timestamp -> long"),
        "timestampdiff(unit, start, end), datediff(unit, start, end)",
        "How many whole units lie between two times.",
        "timestampdiff(MONTH, DATE '2024-01-31', DATE '2024-05-30') → 3",
    ),
    define(
        "make_date",
        "int, int, int -> date",
        "make_date(year, month, day)",
        "The date; NULL where there is none.",
        "make_date(2024, 2, 29) → 2024-02-29",
        "make_date(2023, 2, 29) → None",
    ),
    define(
        "make_timestamp",
        "int, int, int, int, int, double -> timestamp",
        "make_timestamp(year, month, day, hour, minute, second)",
        "The time; NULL where there is none.",
        "make_timestamp(2024, 2, 29, 12, 30, 1.5) → 2024-02-29 12:30:01.500000+00:00",
    ),
    define(
        "to_date",
        _to(DATE),
        "to_date(x), to_date(s, format)",
        "The date that a text or a time has.",
        "to_date('2024-05-31 10:00:00') → 2024-05-31",
        "to_date('31.5.2024', 'd.M.yyyy') → 2024-05-31",
        rewritten=True,
    ),
    define(
        "to_timestamp",
        _to(TIMESTAMP),
        "to_timestamp(x), to_timestamp(s, format)",
        "The time that a text has; a format is of the letters y, M, d, D, H, h, K, k, m, s, S and a.",
        "to_timestamp('2024-05-31 10:00:00') → 2024-05-31 10:00:00+00:00",
        "to_timestamp('31 May 24 1:05 PM', 'd MMM yy h:mm a') → 2024-05-31 13:05:00+00:00",
        rewritten=True,
    ),
    define(
        "date_format",
        (_write, 2, 2),
        "date_format(t, format)",
        "A time as a text; beside the letters of `to_timestamp`, a format may have E, Q, X, x and Z.",
        "date_format(TIMESTAMP '2024-05-31 13:45:10', 'EEE, d MMM yyyy h:mm a') → Fri, 31 May 2024 1:45 PM",
    ),
    define(
        "from_unixtime",
        (_from_unix_time, 1, 2),
        "from_unixtime(n), from_unixtime(n, format)",
        "The time so many seconds after 1970 began, as a text.",
        "from_unixtime(1) → 1970-01-01 00:00:01",
        "from_unixtime(0, 'd/M/yy') → 1/1/70",
        rewritten=True,
    ),
    define(
        "unix_date", "date -> int", "unix_date(date)", "Days since 1970.", "unix_date(DATE '1970-01-02') → 1"
    ),
    define(
        "date_from_unix_date",
        "int -> date",
        "date_from_unix_date(n)",
        "The date so many days after 1970 began.",
        "date_from_unix_date(1) → 1970-01-02",
    ),
    define(
        "unix_micros",
        "timestamp -> long",
        "unix_micros(t)",
        "Microseconds since 1970.",
        "unix_micros(TIMESTAMP '1970-01-01 00:00:01') → 1000000",
    ),
    define(
        "unix_millis",
        "timestamp -> long",
        "unix_millis(t)",
        "Milliseconds since 1970.",
        "unix_millis(TIMESTAMP '1970-01-01 00:00:01') → 1000",
    ),
    define(
        "unix_seconds",
        "timestamp -> long",
        "unix_seconds(t)",
        "Seconds since 1970.",
        "unix_seconds(TIMESTAMP '1970-01-01 00:00:01') → 1",
    ),
    define(
        "unix_timestamp",
        (_unix_time, 1, 2),
        "unix_timestamp(t), unix_timestamp(s), unix_timestamp(s, format)",
        "Seconds since 1970, of earlier times rounded up; of a text by a format, `yyyy-MM-dd HH:mm:ss` unless given.",
        "unix_timestamp(TIMESTAMP '1970-01-01 00:00:01') → 1",
        "unix_timestamp('2/1970', 'M/yyyy') → 2678400",
        also="to_unix_timestamp",
    ),
    define(
        "timestamp_micros",
        "long -> timestamp",
        "timestamp_micros(n)",
        "The time so many microseconds after 1970 began.",
        "timestamp_micros(1000000) → 1970-01-01 00:00:01+00:00",
    ),
    define(
        "timestamp_millis",
        "long -> timestamp",
        "timestamp_millis(n)",
        "The time so many milliseconds after 1970 began.",
        "timestamp_millis(1000) → 1970-01-01 00:00:01+00:00",
    ),
    define(
        "timestamp_seconds",
        "number -> timestamp",
        "timestamp_seconds(n)",
        "The time so many seconds after 1970 began.",
        "timestamp_seconds(1.5) → 1970-01-01 00:00:01.500000+00:00",
    ),
)
