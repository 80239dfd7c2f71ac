"""What every function and operator of the expression language does, for people: pages, completion, help.

Guarantees: every function of `FUNCTIONS` has an entry, and every example gives what stands beside it, as a test shows.
Results are written as Python prints them: times are UTC, None is NULL.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["GUIDE", "Entry"]


@dataclass(frozen=True, slots=True)
class Entry:
    """A function or operator: in which section of the page it stands, how it is written, what it does, and examples.

    An example is an expression of SQL and its value as Python prints it.
    """

    section: str
    form: str
    text: str
    examples: tuple[tuple[str, str], ...]


_COMPARE, _LOGIC, _NUMBER, _TEXT, _TIME = (
    "Comparisons",
    "Conditions and choices",
    "Numbers",
    "Texts",
    "Dates and times",
)

GUIDE: dict[str, Entry] = {
    "=": Entry(
        _COMPARE,
        "x = y",
        "Equal. NULL is equal to nothing, NaN to NaN.",
        (("1 = 1.0", "True"), ("NULL = 1", "None")),
    ),
    "<>": Entry(_COMPARE, "x <> y, x != y", "Not equal.", (("'a' <> 'b'", "True"),)),
    "<": Entry(
        _COMPARE,
        "x < y",
        "Less. NaN is greater than any number.",
        (("2 < 10", "True"), ("'2' < '10'", "False")),
    ),
    "<=": Entry(
        _COMPARE,
        "x <= y",
        "Less or equal; `x BETWEEN a AND b` is `a <= x AND x <= b`.",
        (("2 <= 2", "True"), ("5 BETWEEN 1 AND 5", "True")),
    ),
    ">": Entry(_COMPARE, "x > y", "Greater.", (("2 > 10", "False"),)),
    ">=": Entry(_COMPARE, "x >= y", "Greater or equal.", (("2 >= 2", "True"),)),
    "is null": Entry(
        _COMPARE,
        "x IS NULL, x IS NOT NULL",
        "Whether there is no value.",
        (("NULL IS NULL", "True"), ("1 IS NOT NULL", "True")),
    ),
    "in": Entry(
        _COMPARE,
        "x IN (a, b, …)",
        "Whether a value is one of some.",
        (("2 IN (1, 2)", "True"), ("3 NOT IN (1, 2)", "True")),
    ),
    "like": Entry(
        _COMPARE,
        "x LIKE pattern",
        "Whether a text has a form: `%` stands for any characters, `_` for one.",
        (("'weft' LIKE 'w%t'", "True"), ("'weft' LIKE '_'", "False")),
    ),
    "and": Entry(
        _LOGIC,
        "p AND q",
        "Both; false if one is, whatever the other.",
        (("TRUE AND FALSE", "False"), ("NULL AND FALSE", "False")),
    ),
    "or": Entry(
        _LOGIC,
        "p OR q",
        "One of them; true if one is, whatever the other.",
        (("FALSE OR TRUE", "True"), ("NULL OR TRUE", "True")),
    ),
    "not": Entry(_LOGIC, "NOT p", "The opposite.", (("NOT FALSE", "True"),)),
    "case": Entry(
        _LOGIC,
        "CASE WHEN p THEN x … ELSE y END",
        "The first value whose condition is true.",
        (("CASE WHEN 1 > 2 THEN 'a' WHEN 2 > 1 THEN 'b' ELSE 'c' END", "b"),),
    ),
    "coalesce": Entry(
        _LOGIC, "coalesce(x, y, …)", "The first that is not NULL.", (("coalesce(NULL, 7)", "7"),)
    ),
    "nullif": Entry(
        _LOGIC,
        "nullif(x, y)",
        "NULL if both are equal, else the first.",
        (("nullif(1, 1)", "None"), ("nullif(1, 2)", "1")),
    ),
    "greatest": Entry(
        _LOGIC, "greatest(x, y, …)", "The greatest that is not NULL.", (("greatest(1, NULL, 3)", "3"),)
    ),
    "least": Entry(_LOGIC, "least(x, y, …)", "The least that is not NULL.", (("least(1, NULL, 3)", "1"),)),
    "+": Entry(
        _NUMBER,
        "x + y",
        "Sum; also a time and an interval. NULL where it does not fit its type.",
        (("1 + 2", "3"), ("DATE '2024-05-31' + INTERVAL '1' DAY", "2024-06-01")),
    ),
    "-": Entry(_NUMBER, "x - y", "Difference; also of times.", (("1 - 2", "-1"),)),
    "*": Entry(_NUMBER, "x * y", "Product.", (("6 * 7", "42"),)),
    "/": Entry(
        _NUMBER,
        "x / y",
        "Quotient, a double or a decimal; NULL where y is 0.",
        (("7 / 2", "3.5"), ("1 / 0", "None")),
    ),
    "%": Entry(
        _NUMBER,
        "x % y",
        "Remainder, with the sign of x; NULL where y is 0.",
        (("7 % 3", "1"), ("-7 % 3", "-1")),
    ),
    "neg": Entry(_NUMBER, "-x", "The negative.", (("-(3)", "-3"),)),
    "abs": Entry(_NUMBER, "abs(x)", "The absolute value.", (("abs(-3)", "3"),)),
    "ceil": Entry(
        _NUMBER,
        "ceil(x)",
        "The least whole number that is not less.",
        (("ceil(1.2)", "2"), ("ceil(-1.2)", "-1")),
    ),
    "floor": Entry(
        _NUMBER, "floor(x)", "The greatest whole number that is not greater.", (("floor(1.8)", "1"),)
    ),
    "sign": Entry(_NUMBER, "sign(x)", "1, 0 or -1.", (("sign(-2)", "-1.0"),)),
    "round": Entry(
        _NUMBER,
        "round(x), round(x, places)",
        "Rounded, halves away from 0.",
        (("round(2.5)", "3.0"), ("round(1.255, 2)", "1.26"), ("round(1234, -2)", "1200")),
    ),
    "exp": Entry(_NUMBER, "exp(x)", "e to the power of x.", (("exp(0)", "1.0"),)),
    "ln": Entry(
        _NUMBER,
        "ln(x)",
        "The natural logarithm; NULL where there is none.",
        (("ln(1)", "0.0"), ("ln(-1)", "None")),
    ),
    "sqrt": Entry(_NUMBER, "sqrt(x)", "The square root.", (("sqrt(9)", "3.0"),)),
    "power": Entry(_NUMBER, "power(x, y)", "x to the power of y.", (("power(2, 10)", "1024.0"),)),
    "lower": Entry(_TEXT, "lower(s)", "In small letters.", (("lower('Weft')", "weft"),)),
    "upper": Entry(_TEXT, "upper(s)", "In capital letters.", (("upper('straße')", "STRASSE"),)),
    "trim": Entry(_TEXT, "trim(s)", "Without spaces at both ends.", (("trim('  a ')", "a"),)),
    "ltrim": Entry(
        _TEXT, "ltrim(s)", "Without spaces at its beginning.", (("concat('[', ltrim('  a'), ']')", "[a]"),)
    ),
    "rtrim": Entry(
        _TEXT, "rtrim(s)", "Without spaces at its end.", (("concat('[', rtrim('a  '), ']')", "[a]"),)
    ),
    "reverse": Entry(_TEXT, "reverse(s)", "Backwards.", (("reverse('abc')", "cba"),)),
    "concat": Entry(
        _TEXT,
        "concat(s, t, …), s || t",
        "One after the other; NULL if one is.",
        (("concat('a', 'b')", "ab"), ("'a' || 'b'", "ab")),
    ),
    "replace": Entry(
        _TEXT,
        "replace(s, old, new)",
        "With every `old` replaced.",
        (("replace('a-b-c', '-', '+')", "a+b+c"),),
    ),
    "substring": Entry(
        _TEXT,
        "substring(s, from), substring(s, from, length)",
        "A part, counted from 1; a negative place counts from the end.",
        (("substring('stream', 1, 3)", "str"), ("substring('stream', -2)", "am")),
    ),
    "length": Entry(_TEXT, "length(s)", "How many characters.", (("length('naïve')", "5"),)),
    "startswith": Entry(
        _TEXT,
        "startswith(s, t)",
        "Whether a text begins with another.",
        (("startswith('weft', 'we')", "True"),),
    ),
    "endswith": Entry(
        _TEXT, "endswith(s, t)", "Whether a text ends with another.", (("endswith('weft', 'ft')", "True"),)
    ),
    "contains": Entry(
        _TEXT, "contains(s, t)", "Whether a text has another in it.", (("contains('weft', 'ef')", "True"),)
    ),
    "levenshtein": Entry(
        _TEXT,
        "levenshtein(s, t)",
        "How many characters to insert, delete or change to get from one to the other.",
        (("levenshtein('kitten', 'sitting')", "3"),),
    ),
    "year": Entry(_TIME, "year(t)", "The year.", (("year(DATE '2024-05-31')", "2024"),)),
    "month": Entry(_TIME, "month(t)", "The month, 1 to 12.", (("month(DATE '2024-05-31')", "5"),)),
    "day": Entry(_TIME, "day(t)", "The day of the month.", (("day(DATE '2024-05-31')", "31"),)),
    "hour": Entry(_TIME, "hour(t)", "The hour, 0 to 23.", (("hour(TIMESTAMP '2024-05-31 13:45:10')", "13"),)),
    "minute": Entry(_TIME, "minute(t)", "The minute.", (("minute(TIMESTAMP '2024-05-31 13:45:10')", "45"),)),
    "second": Entry(_TIME, "second(t)", "The second.", (("second(TIMESTAMP '2024-05-31 13:45:10')", "10"),)),
    "add_months": Entry(
        _TIME,
        "add_months(date, n)",
        "So many months later, at the end of a shorter month.",
        (("add_months(DATE '2024-01-31', 1)", "2024-02-29"),),
    ),
    "unix_micros": Entry(
        _TIME,
        "unix_micros(t)",
        "Microseconds since 1970.",
        (("unix_micros(TIMESTAMP '1970-01-01 00:00:01')", "1000000"),),
    ),
}
