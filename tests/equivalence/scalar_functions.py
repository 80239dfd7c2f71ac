"""Every function and operator of SQL over values at the edges of their types, by Weft and by Spark.

An expression is drawn as a text that both read: a form of the function (from its entry, or from `FORMS` where it is
written in another way), over columns of types that its parameters take. Spark runs with ANSI mode off and gives NULL
where ANSI mode would stop; where it would give a wrapped number instead, it is asked by its ``try_`` functions
(`IN_SPARK`).
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa

from weft.errors import SqlError
from weft.kernels.expr.arrow import arrow_type
from weft.kernels.expr.select import evaluate
from weft.logical.catalog import Catalog
from weft.logical.expr.builtin.entry import Function
from weft.logical.expr.functions import FUNCTIONS
from weft.logical.schema import Field, Schema, Stream, parse_type
from weft.sql.bind import parse_query

ROWS = 200


def _whole(bits: int) -> list[Any]:
    most = 1 << (bits - 1)
    return [-most, 1 - most, -100, -7, -2, -1, 0, 1, 2, 3, 7, 12, 31, 44, most - 2, most - 1]


_FLOATS = [0.0, -0.0, 0.5, -0.5, 1.5, 2.5, -2.5, 0.1, 1.0, -1.0, 3.0, 2.0**31, 2.0**53, -(2.0**63), 1e19]
_FLOATS += [1e-7, 123456789.987654321, math.nan, math.inf, -math.inf, 100.0, 0.25]
POOLS: dict[str, list[Any]] = {
    **{name: _whole(bits) for name, bits in (("byte", 8), ("short", 16), ("int", 32), ("long", 64))},
    "float": [*_FLOATS, 3.4028234663852886e38, 1e-45],
    "double": [*_FLOATS, 1.7976931348623157e308, -1e308, 5e-324, 1e22, 4.35, 1.005, 709.0],
    "decimal(10,2)": [
        Decimal(text) for text in ("0.00", "1.00", "-1.00", "0.05", "99999999.99", "-2.50", "12.34")
    ],
    "decimal(38,6)": [Decimal(text) for text in ("0.000000", "1.500000", "-7.000001", "9" * 26 + ".999999")],
    "boolean": [True, False],
    "string": [
        *(
            "",
            "a",
            "A",
            "abc",
            "Hello World",
            "  padded  ",
            "a,b,,c",
            "a.b.c",
            "ab12cd34",
            "Ä",
            "ß",
            "İ",
            "naïve",
        ),
        *(
            "名前",
            "\U0001f600",
            "e\u0301",
            "1",
            "-1",
            "7",
            "1.5",
            "abcabc",
            "100%",
            "a_b",
            "\\",
            "x\ny",
            "tab\there",
        ),
        *(
            "2024-02-29",
            "2024-02-29 12:30:15.123456",
            "true",
            "NaN",
            "9" * 25,
            "0x1F",
            "+7 ",
            "1e3",
            "%",
            "A1-b2",
        ),
        *(
            '{"a": 1, "b": {"c": [1, 2, "x"]}, "d": null}',
            "[1, 2, 3]",
            "{bad",
            "http://user@host:80/p/a?k=v&q=1#frag",
        ),
    ],
    "date": [
        *(
            dt.date(1, 1, 1),
            dt.date(1582, 10, 15),
            dt.date(1900, 2, 28),
            dt.date(1969, 12, 31),
            dt.date(1970, 1, 1),
        ),
        *(dt.date(2000, 2, 29), dt.date(2024, 2, 29), dt.date(2024, 3, 31), dt.date(2024, 12, 30)),
        *(dt.date(2023, 1, 1), dt.date(2026, 12, 31), dt.date(9999, 12, 31)),
    ],
    "timestamp": [
        *(dt.datetime(1, 1, 1), dt.datetime(1899, 12, 31, 23, 59, 59, 999999), dt.datetime(1970, 1, 1)),
        *(dt.datetime(1969, 12, 31, 23, 59, 59, 999999), dt.datetime(2024, 2, 29, 12, 30, 15, 123456)),
        *(dt.datetime(2024, 3, 31, 1, 30), dt.datetime(2024, 10, 27, 1, 30), dt.datetime(2024, 12, 31)),
        *(dt.datetime(2024, 1, 31, 0, 0, 0, 1), dt.datetime(9999, 12, 31, 23, 59, 59, 999999)),
    ],
    "binary": [b"", b"a", b"\x00\x01", b"hello", b"\xff\xfe", "名".encode()],
}
POOLS |= {
    "array<int>": [[], [1], [None], [3, 1, 2, 1], [2, None, 2], [7, -1, 0], [1, 2, 3, 4, 5], [None, None, 1]],
    "array<double>": [[], [0.0, -0.0], [math.nan, 1.5, math.nan], [None, math.inf], [2.5, -1.0, 2.5], [0.0]],
    "array<string>": [
        [],
        [""],
        ["a", "b"],
        ["b", None, "a"],
        ["名", "\U0001f600", "A"],
        ["a", "a", "abc"],
        [None],
    ],
    "array<array<int>>": [[], [[1], [2, 3]], [[], [None]], [[1], None], [None], [[4]]],
}
NUMBERS = ("byte", "short", "int", "long", "float", "double", "decimal(10,2)", "decimal(38,6)")
TAKEN: dict[str, tuple[str, ...]] = {
    "number": NUMBERS,
    "integer": ("byte", "int", "long"),
    "time": ("date", "timestamp"),
    "text": ("string", "binary"),
    "any": (*NUMBERS, "string", "date", "timestamp", "boolean"),
    "int": ("int", "int", "short"),
    "long": ("long", "int"),
    "double": ("double", "float", "int", "decimal(10,2)"),
    "small": ("int",),
    "ints": ("array<int>",),
    "doubles": ("array<double>",),
    "texts": ("array<string>",),
    "deep": ("array<array<int>>",),
    "array": ("array<int>", "array<double>", "array<string>"),
}
MOMENTS = [
    *("2024-02-29 12:30:15", "2023-02-29 12:30:15", "2024-13-01 00:00:00", "2024-02-29 24:00:00", "20240229"),
    *("202402291", "29.2.2024", "1.1.1", "31.12.9999", "2024-02-29 12:30:15.1", "2024-02-29 12:30:15.123456"),
    *(
        "2024-02-29 12:30:15.1234567",
        "2024-366",
        "2023-366",
        "2024-000",
        "29 FEB 2024",
        "29 feb 2024",
        "9 Feb 2024",
    ),
    *(
        "February 29, 24 1:05 PM",
        "may 1, 99 12:00 am",
        "12:30",
        "24:00",
        "12 pm",
        "00 AM",
        "12 AM",
        "",
        " ",
        "x",
    ),
    *(
        "2024-02-29T24:00:00.5",
        "2024-02-29T01:02:03.123",
        "02/29",
        "2/9",
        "12/31",
        " 20240229",
        "-2024-001",
        "0000-001",
    ),
]
JSON = [
    *(
        '{"a": 1, "b": {"c": [1, 2, "x"]}, "d": null}',
        "[1, 2, 3]",
        "{bad",
        "",
        " ",
        "null",
        "[null, 1]",
        "{}",
    ),
    *("[]", "[ ]", "{ }", '"text"', "'text'", "1.50", "-0", "[-0, -0.0, 1e3, 1.0E-7, 12345678.5]", "1e400"),
    *("[1e400, -1e400]", "01", "-", "1.", "true", "[true, false]", "truex", '{"a": 1} rest', "[1, 2] rest"),
    *('{"a": null, "a": 2}', '{"a": 1, "a": 2}', '{"a": 1, "b": }', '{"a": [1, {"b": 2}]}', "[1,]", "[,1]"),
    *("{'a': 'x\"y', \"b\": '\\''}", '{"a": "\\u00e9\\ud83d\\ude00\\n\\/\\b"}', '{"a": "x\ny\tz"}'),
    *(
        '["x\ny\u0001", "\\u00e9\\u001f"]',
        '{"\\u00e9": 1}',
        '{"é": {"a": "名"}}',
        '{"a b": 7}',
        "[[1, [2]], [3]]",
    ),
    *('{"a": {"b": {"c": 1}, "c": 2}, "c": 3}', '{"b": 1, "b": {"c": 9}}', '[{"a": 1}, {"a": 2}]', '{"a" 1}'),
    *(
        '{"a": [{"b": "q"}, "r"], "b": {"c": {}}}',
        '{"a": "unclosed',
        '{"a": "\\x"}',
        "[1 2]",
        "9" * 25,
        "{a: 1}",
    ),
    *(
        '{"a": "\\ud83d"}',
        '{"a": "x\\ude00y"}',
        '["\\ud83d", "\\ud83d\\ud83d\\ude00", "\\ude00\\ud83d"]',
        '{"\\ud83d": 1}',
    ),
    *(
        '{"a": ["\\ude00", 1], "b": {"c": "\\uD83D\\n"}}',
        '[1, "\\ud83d\\u0041"]',
        '{"a": {"b": 1, "\\ude00": "é"}}',
    ),
    *(
        '["\U0001f600", {"\U0001f600": 1}]',
        '{"a": "\U0001f600"}',
        "[" * 1001 + "]" * 1001,
        "[" * 999 + "]" * 999,
    ),
]
SMALL = [-3, -1, 0, 1, 2, 3, 5, 8, None]

WRITTEN = (
    "yyyy-MM-dd HH:mm:ss.SSS",
    "y/M/d h:m:s a",
    "EEEE, dd MMMM yy",
    "E MMM LL D",
    "DDD DD k K kk KK hh",
    "Q QQ QQQ",
    "SSSSSS S SSSSSSSSS",
    "yyyyMMdd\\'T\\'HHmmssXXX",
    "X x xxx Z y yyyyy",
)
READ = (
    "yyyy-MM-dd HH:mm:ss",
    "yyyyMMdd",
    "d.M.y",
    "yyyy-MM-dd HH:mm:ss.SSSSSS",
    "yyyy-DDD",
    "dd MMM yyyy",
    "MMMM d, yy h:mm a",
    "HH:mm",
    "hh a",
    "yyyy-MM-dd\\'T\\'kk:mm:ss.SSS",
    "MM/dd",
)


def _read_by(function: str) -> tuple[str, ...]:
    """Texts of times read by formats."""
    return tuple(f"{function}({{moment}}, '{format_}')" for format_ in READ)


# How functions are written that no signature types, and those whose arguments must be of a size that makes sense.
FORMS: dict[str, tuple[str, ...]] = {
    **{name: (f"{{number}} {name} {{number}}",) for name in ("+", "-", "*", "/", "%")},
    **{
        name: (f"{{number}} {name} {{number}}", f"{{string}} {name} {{string}}", f"{{time}} {name} {{time}}")
        for name in ("=", "<>", "<", "<=", ">", ">=")
    },
    "neg": ("-{number}",),
    "and": ("{boolean} AND {boolean}",),
    "or": ("{boolean} OR {boolean}",),
    "not": ("NOT {boolean}",),
    "in": ("{string} IN ('a', 'A', '7')", "{int} IN (1, 7, NULL)", "{double} IN (0.5, 1.0)"),
    "is null": ("{any} IS NULL", "{any} IS NOT NULL"),
    "like": ("{string} LIKE 'a%'", "{string} LIKE '%b_'"),
    "case": ("CASE WHEN {boolean} THEN {int} WHEN {boolean} THEN {long} ELSE {int} END",),
    "coalesce": ("coalesce({number}, {number})", "coalesce({string}, {string}, 'x')"),
    "nullif": ("nullif({int}, {long})", "nullif({string}, {string})"),
    "greatest": (
        "greatest({int}, {long})",
        "greatest({double}, {float}, {double})",
        "greatest({date}, {date})",
    ),
    "least": ("least({int}, {long})", "least({double}, {float}, {double})", "least({string}, {string})"),
    "abs": ("abs({number})",),
    "ceil": ("ceil({double})", "ceil({long})", "ceil({float})", "ceil({decimal(10,2)})"),
    "floor": ("floor({double})", "floor({long})", "floor({float})"),
    "sign": ("sign({number})",),
    "round": (
        "round({double}, 2)",
        "round({double})",
        "round({small}, -1)",
        "round({float}, 1)",
        "round({decimal(10,2)}, 1)",
    ),
    **{name: (f"{name}({{number}})",) for name in ("exp", "ln", "sqrt")},
    "power": ("power({number}, {number})", "power({double}, {small})"),
    "date_part": tuple(
        f"date_part('{part}', {{time}})"
        for part in ("year", "week", "doy", "dow", "second", "month", "yearofweek")
    ),
    "second_with_fraction": ("EXTRACT(SECOND FROM {timestamp})",),
    "yearofweek": ("EXTRACT(YEAROFWEEK FROM {time})",),
    "date_trunc": tuple(
        f"date_trunc('{unit}', {{time}})"
        for unit in (
            "YEAR",
            "quarter",
            "mon",
            "week",
            "day",
            "hour",
            "minute",
            "second",
            "millisecond",
            "never",
        )
    ),
    "trunc": tuple(f"trunc({{date}}, '{unit}')" for unit in ("year", "QUARTER", "mm", "week", "day")),
    "months_between": ("months_between({time}, {time})", "months_between({time}, {time}, FALSE)"),
    "timestampadd": tuple(
        f"timestampadd({unit}, {{small}}, {{timestamp}})"
        for unit in ("YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR")
    ),
    "timestampdiff": tuple(
        f"timestampdiff({unit}, {{timestamp}}, {{timestamp}})"
        for unit in ("YEAR", "MONTH", "WEEK", "DAY", "HOUR", "SECOND")
    ),
    "next_day": ("next_day({date}, 'Mon')", "next_day({date}, 'sunday')", "next_day({date}, {string})"),
    "make_date": ("make_date(2024 + {small}, {small}, {small})", "make_date(2023, 2, 27 + {small})"),
    "make_timestamp": ("make_timestamp(2024, {small}, 3, {small}, 5, 6.5)",),
    "to_date": ("to_date({string})", "to_date({timestamp})", *_read_by("to_date")),
    "to_timestamp": ("to_timestamp({string})", "to_timestamp({date})", *_read_by("to_timestamp")),
    "unix_timestamp": ("unix_timestamp({timestamp})", *_read_by("unix_timestamp")[:3]),
    "date_format": tuple(f"date_format({{time}}, '{format_}')" for format_ in WRITTEN),
    "from_unixtime": ("from_unixtime({int})", "from_unixtime({small}, 'yy-D HH:mm')"),
    "date_add": ("date_add({date}, {small})", "{date} + {small}", "date_add({timestamp}, {small})"),
    "date_sub": ("date_sub({date}, {small})", "{date} - {small}"),
    "add_months": ("add_months({date}, {small})", "add_months({timestamp}, {small})"),
    "date_from_unix_date": ("date_from_unix_date({small})", "date_from_unix_date(1000 * {small})"),
    "timestamp_seconds": ("timestamp_seconds({int})", "timestamp_seconds({small} * 0.25)"),
    "timestamp_millis": ("timestamp_millis({int})",),
    "timestamp_micros": ("timestamp_micros({int})",),
    "unix_seconds": ("unix_seconds({timestamp})",),
    "substring": ("substring({string}, {small})", "substring({string}, {small}, {small})"),
    "replace": (
        "replace({string}, {string}, {string})",
        "replace({string}, 'a', 'bb')",
        "replace({string}, 'b')",
    ),
    "nvl2": ("nvl2({any}, {int}, {int})",),
    "isnull": ("isnull({any})",),
    "isnotnull": ("isnotnull({any})",),
    "zeroifnull": ("zeroifnull({int})", "zeroifnull({double})"),
    "nullifzero": ("nullifzero({int})", "nullifzero({double})"),
    "pi": ("pi()",),
    "e": ("e()",),
    "div": ("{int} DIV {int}", "{long} DIV 7", "{byte} DIV {short}"),
    "pmod": (
        "pmod({int}, {small})",
        "pmod({double}, {double})",
        "pmod({small}, {small})",
        "pmod({long}, {small})",
    ),
    "width_bucket": ("width_bucket({double}, 0.0, 10.0, 5)", "width_bucket({small}, 5.5, -3.0, {small})"),
    "nanvl": ("nanvl({double}, {double})",),
    **{sign: (f"{{integer}} {sign} {{integer}}",) for sign in ("&", "|", "^")},
    "~": ("~{integer}",),
    **{
        name: (f"{name}({{int}}, {{small}})", f"{name}({{long}}, {{small}})", f"{name}({{long}}, {{int}})")
        for name in ("shiftleft", "shiftright", "shiftrightunsigned")
    },
    "bit_get": ("bit_get({int}, 3)", "bit_get({long}, 7)", "bit_get({byte}, 7)"),
    "hex_of_number": ("hex({long})", "hex({int})"),
    "hex": ("hex({string})", "hex({binary})", "hex({int})"),
    "trim": ("trim({string})", "trim(BOTH 'aA ' FROM {string})"),
    "btrim": ("btrim({string})", "btrim({string}, 'ac')"),
    "ltrim": ("ltrim({string})", "trim(LEADING 'aA1' FROM {string})"),
    "rtrim": ("rtrim({string})", "trim(TRAILING 'c名' FROM {string})"),
    **{
        name: (
            f"{name}({{string}}, {{small}})",
            f"{name}({{string}}, 7, {{string}})",
            f"{name}({{string}}, 4, '名é')",
        )
        for name in ("lpad", "rpad")
    },
    "repeat": ("repeat({string}, {small})",),
    "space": ("space({small})",),
    "translate": (
        "translate({string}, 'ab1名', 'b名')",
        "translate({string}, 'aa', 'xy')",
        "translate({string}, '', 'x')",
    ),
    "overlay": (
        "overlay({string} PLACING {string} FROM {small})",
        "overlay({string}, {string}, {small}, {small})",
    ),
    "left": ("left({string}, {small})",),
    "right": ("right({string}, {small})",),
    "substring_index": (
        "substring_index({string}, {string}, {small})",
        "substring_index({string}, 'a', {small})",
        "substring_index({string}, ',', {small})",
    ),
    "split_part": (
        "split_part({string}, ',', abs({small}) + 1)",
        "split_part({string}, 'ab', -abs({small}) - 1)",
        "split_part({string}, {string}, 1)",
    ),
    "locate": (
        "locate({string}, {string})",
        "locate('a', {string}, {small})",
        "position('b' IN {string})",
        "locate({string}, {string}, {small})",
    ),
    "instr": ("instr({string}, {string})", "instr({string}, 'b')"),
    "elt": ("elt({small}, {string}, {string})",),
    "find_in_set": ("find_in_set({string}, 'a,abc,,1')", "find_in_set({string}, {string})"),
    "char": ("char({int})", "char({small} + 64)"),
    "factorial": ("factorial({small})", "factorial({int})"),
    "ilike": ("{string} ILIKE 'A%'", "{string} ILIKE '%ä'"),
    "rlike": tuple(
        f"{{string}} RLIKE '{pattern}'"
        for pattern in (
            "^a",
            "b$",
            "[0-9]+",
            "a.c",
            "\\\\s",
            "x.y",
            "(?i)HELLO",
            "^$",
            "a|b",
            "\\\\w\\\\d",
            "^.$",
        )
    ),
    "regexp_count": tuple(
        f"regexp_count({{string}}, '{pattern}')" for pattern in ("a", "[a-c]+", "\\\\d", "[^a]")
    ),
    "regexp_replace": (
        "regexp_replace({string}, '[abc]', 'x')",
        "regexp_replace({string}, '(\\\\w)(\\\\d)', '$2-$1')",
        "regexp_replace({string}, '\\\\s+', '')",
        "regexp_replace({string}, '.', '\\\\$')",
    ),
    "regexp_extract": (
        "regexp_extract({string}, '([a-z]+)([0-9]+)')",
        "regexp_extract({string}, '([a-z]+)([0-9]+)', 2)",
        "regexp_extract({string}, '[A-Z]', 0)",
        "regexp_extract({string}, '(x)|(a)', 1)",
    ),
    "reverse": ("reverse({string})", "reverse({array})"),
    "concat": (
        "concat({string}, {int})",
        "{string} || {string} || 'x'",
        "concat({ints}, {ints})",
        "concat({texts}, {texts}, {texts})",
    ),
    "split": tuple(
        f"split({{string}}, '{pattern}'{limit})"
        for pattern in (",", "[.a]", "b+", "\\\\s", "1|2")
        for limit in ("", ", 2", ", 0", ", 1")
    ),
    "size": ("size({array})", "cardinality({deep})", "array_size({array})"),
    "element_at": ("element_at({array}, {small} + 10)", "element_at({array}, 1)", "element_at({array}, -2)"),
    "get": ("get({array}, {small})",),
    **{
        name: (
            f"{name}({{ints}}, {{small}})",
            f"{name}({{doubles}}, {{double}})",
            f"{name}({{texts}}, {{string}})",
        )
        for name in ("array_contains", "array_position", "array_remove", "array_append", "array_prepend")
    },
    **{
        name: (f"{name}({{array}})", f"{name}({{array}})")
        for name in ("array_compact", "array_distinct", "array_max", "array_min", "array_sort")
    },
    "sort_array": ("sort_array({array})", "sort_array({array}, FALSE)", "sort_array({array}, TRUE)"),
    "slice": ("slice({array}, abs({small}) + 1, abs({small}))", "slice({array}, -abs({small}) - 1, 2)"),
    "array_join": (
        "array_join({texts}, ',')",
        "array_join({texts}, {string})",
        "array_join({texts}, '', 'N')",
    ),
    **{
        name: (
            f"{name}({{ints}}, {{ints}})",
            f"{name}({{doubles}}, {{doubles}})",
            f"{name}({{texts}}, {{texts}})",
        )
        for name in ("arrays_overlap", "array_union", "array_intersect", "array_except")
    },
    "sha2": tuple(f"sha2({text}, {bits})" for bits in (0, 224, 256) for text in ("{string}", "{binary}")),
    "md5": ("md5({string})", "md5(repeat({string}, 9))", "md5({binary})"),
    "sha1": ("sha1({string})", "sha(repeat({string}, 9))", "sha1({binary})"),
    "crc32": ("crc32({string})", "crc32({binary})"),
    "base64": ("base64({string})", "base64({binary})"),
    "flatten": ("flatten({deep})",),
    "get_json_object": tuple(
        f"get_json_object({{json}}, '{path}')"
        for path in (
            "$",
            "$.a",
            "$.b.c",
            "$[0]",
            "$[1]",
            "$.a[1]",
            "$.a[0].b",
            "$[0][1]",
            "$.é",
            "$.a b",
            "$.b",
            "$. b[ 2]",
            "$ [\\'b\\'].c[1]",
        )
    ),
    "json_array_length": ("json_array_length({json})",),
    "json_object_keys": ("json_object_keys({json})",),
    "levenshtein": ("levenshtein({string}, {string})",),
}

# How Spark is asked for what it would wrap, or would name otherwise: a pattern and what is written instead.
IN_SPARK: dict[str, tuple[str, str]] = {
    "+": (r"^(\w+) \+ (\w+)$", r"try_add(\1, \2)"),
    "-": (r"^(\w+) - (\w+)$", r"try_subtract(\1, \2)"),
    "*": (r"^(\w+) \* (\w+)$", r"try_multiply(\1, \2)"),
    "neg": (r"^-(?!decimal)(\w+)$", r"try_subtract(CAST(0 AS {type}), \1)"),
    "abs": (
        r"^abs\((?!decimal)(\w+)\)$",
        r"CASE WHEN \1 < 0 THEN try_subtract(CAST(0 AS {type}), \1) ELSE \1 + CAST(0 AS {type}) END",
    ),
}
# Functions whose doubles are the nearest ones only up to a few units in the last place, in Java as in C.
LOOSE = 4e-15


@dataclass(frozen=True, slots=True)
class Drawn:
    """An expression: of which function, as Weft reads it and as Spark does."""

    function: str
    text: str
    spark: str


def table(random: Random, rows: int = ROWS) -> tuple[pa.Table, Schema]:
    """Columns of every type with values at its edges, some of them NULL; three of each type."""
    columns, fields = {}, []
    for kind, pool in (*POOLS.items(), ("small", SMALL), ("moment", MOMENTS), ("json", JSON)):
        type_ = parse_type({"small": "int", "moment": "string", "json": "string"}.get(kind, kind))
        for place in range(3):
            name = f"{re.sub(r'[^a-z0-9]', '_', kind)}_{place}"
            drawn = [None if random.random() < 0.06 else random.choice(pool) for _ in range(rows)]
            columns[name] = pa.array(drawn, arrow_type(type_), from_pandas=False)
            fields.append(Field(name, type_))
    return pa.table(columns), Schema(tuple(fields))


def forms_of(function: Function) -> tuple[str, ...]:
    """How a function is written, with kinds of columns in braces."""
    if function.name in FORMS:
        return FORMS[function.name]
    signature = function.signature
    if signature is None:
        raise AssertionError(f"give {function.name} an entry in FORMS")
    kinds = [kind.lstrip("=") for kind in signature.kinds]
    counts = sorted({max(signature.least, 1), len(kinds), 3 if signature.most is None else len(kinds)})
    full = [kinds[min(place, len(kinds) - 1)] for place in range(max(counts))]
    return tuple(f"{function.name}({', '.join(f'{{{kind}}}' for kind in full[:count])})" for count in counts)


def drawn_expressions(random: Random, names: list[str], schema: Schema, times: int) -> Iterator[Drawn]:
    """Each form of each function, over columns drawn some times."""
    catalog = Catalog((Stream("t", schema),))
    for name in names:
        for form in forms_of(FUNCTIONS[name]):
            for text in sorted({_filled(random, form) for _ in range(times)}):
                try:
                    (output,) = parse_query(f"SELECT {text} AS e FROM t", catalog).projection
                except SqlError:  # types that do not go together
                    continue
                pattern, instead = IN_SPARK.get(name, ("^$", ""))
                spark = re.sub(pattern, instead.replace("{type}", _type_name(str(output.expr.type))), text)
                yield Drawn(name, text, spark)


def _type_name(type_: str) -> str:
    return {"byte": "TINYINT", "short": "SMALLINT", "long": "BIGINT"}.get(type_, type_)


def _filled(random: Random, form: str) -> str:
    def column(match: re.Match[str]) -> str:
        kind = random.choice(TAKEN.get(match[1], (match[1],)))
        kind = match[1] if match[1] in ("small", "moment", "json") else kind
        return f"{re.sub(r'[^a-z0-9]', '_', kind)}_{random.randrange(3)}"

    return re.sub(r"\{([a-z]+(?:\(\d+,\d+\))?)\}", column, form)


def by_weft(text: str, rows: pa.Table, schema: Schema) -> Any:
    """The column that an expression gives, by Weft."""
    (output,) = parse_query(f"SELECT {text} AS e FROM t", Catalog((Stream("t", schema),))).projection
    columns = {("t", name): rows.column(name).combine_chunks() for name in rows.column_names}
    return evaluate(output.expr, columns, rows.num_rows)


def by_spark(spark: Any, drawn: list[Drawn], rows: pa.Table) -> pa.Table:
    """All columns that expressions give, by Spark, a hundred at a time."""
    frame = spark.createDataFrame(rows).coalesce(1)
    frame.createOrReplaceTempView("edge_values")
    found = []
    for first in range(0, len(drawn), 100):
        part = drawn[first : first + 100]
        said = ", ".join(f"{one.spark} AS e{first + place}" for place, one in enumerate(part))
        found.append(spark.sql(f"SELECT {said} FROM edge_values").toArrow())
    return pa.table({name: one.column(name) for one in found for name in one.column_names})


def differences(one: Drawn, weft: Any, spark: Any) -> list[str]:
    """The cells that differ, in words."""
    if pa.types.is_float64(weft.type) and pa.types.is_float32(spark.type):
        return []  # only without ANSI mode are a float and a whole number a float together
    if re.fullmatch(
        r"(float_\d \W+ (byte|short|int|long)_\d)|((byte|short|int|long)_\d \W+ float_\d)", one.text
    ):
        return []  # they are compared as floats, too
    kind = str(spark.type).replace("large_", "").replace("<element: ", "<item: ").replace(" not null>", ">")
    if str(weft.type) != kind and not pa.types.is_null(spark.type):
        return [f"{one.text} is {weft.type}, and by Spark {spark.type}"]
    pairs = zip(_plain(weft), _plain(spark), strict=True)
    return [
        f"{one.text}, row {row}: {mine!r}, and by Spark {other!r}"
        for row, (mine, other) in enumerate(pairs)
        if not _same(mine, other)
    ]


def _plain(column: Any) -> list[Any]:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
        column = column.cast(pa.int64() if pa.types.is_timestamp(column.type) else pa.int32())
    found: list[Any] = column.to_pylist()
    return found


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        if one != one or other != other:
            return one != one and other != other
        return one == other or math.isclose(one, other, rel_tol=LOOSE, abs_tol=0.0)
    return bool(one == other)
