"""Every function of every type over values at the edges of the types."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Sequence
from decimal import Context, Decimal
from functools import lru_cache
from itertools import product
from typing import Any

import pyarrow as pa

from tests.unit.kernels.expressions import INF, NAN, arrow, column
from weft.errors import QueryError
from weft.kernels.expr.select import evaluate
from weft.logical.expr.conversion import cast, literal
from weft.logical.expr.expression import Call, Expr
from weft.logical.expr.functions import FUNCTIONS, call
from weft.logical.schema import parse_type

EXACT = Context(prec=200)
PLACES = (-400, -38, -20, -19, -10, -3, -1, 0, 1, 2, 5, 22, 25, 40, 400)
BITS = {"byte": 8, "short": 16, "int": 32, "long": 64}
DECIMALS = (
    (1, 0),
    (2, 2),
    (5, 5),
    (10, 2),
    (18, 0),
    (19, 0),
    (20, 20),
    (38, 0),
    (38, 10),
    (38, 37),
    (38, 38),
)


def _integers(bits: int) -> list[int]:
    most = 1 << (bits - 1)
    return [-most, 1 - most, -100, -15, -5, -1, 0, 1, 5, 15, 44, most - 2, most - 1]


def _decimals(precision: int, scale: int) -> list[Decimal]:
    digits = {0, 1, 4, 5, 6, 15, 25, 10**precision - 1, 10**precision - 2, 5 * 10 ** (precision - 1)}
    digits |= {10 ** (precision - 1), 10 ** (precision // 2) + 5, 2**63 - 1}
    kept = sorted(number for number in digits if number < 10**precision)
    return [Decimal(sign * number).scaleb(-scale, EXACT) for number in kept for sign in (1, -1)]


_FLOATS = [
    0.0,
    -0.0,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    2.675,
    0.1,
    1.0,
    -1.0,
    3.0,
    2.0**31,
    2.0**53,
    -(2.0**63),
]
_FLOATS += [9.223372036854775e18, 1e19, -1e19, 1e38, 1e-7, 123456789.987654321, NAN, INF, -INF]
POOLS: dict[str, list[Any]] = {
    **{name: _integers(bits) for name, bits in BITS.items()},
    "float": [*_FLOATS, 3.4028234663852886e38, 1e-45],
    "double": [*_FLOATS, 1.7976931348623157e308, -1e308, 5e-324, 1e22, 4.35, 1.005, 4.4245],
    **{f"decimal({p},{s})": _decimals(p, s) for p, s in DECIMALS},
}
NUMBERS = tuple(POOLS)
POOLS |= {
    "string": [
        "",
        "a",
        "Ä",
        "ß",
        "İ",
        "1",
        "-1",
        "1e400",
        "9" * 41,
        "NaN",
        "%",
        "\\",
        " 1 ",
        "2024-02-29",
        "a_b",
    ],
    "boolean": [True, False],
    "date": [dt.date(1, 1, 1), dt.date(1969, 12, 31), dt.date(2024, 2, 29), dt.date(9999, 12, 31)],
    "timestamp": [
        dt.datetime(1, 1, 1),
        dt.datetime(1969, 12, 31, 23, 59, 59, 999999),
        dt.datetime(2024, 2, 29, 12),
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999),
    ],
    "interval": [dt.timedelta(0), dt.timedelta(microseconds=-1), dt.timedelta(days=100_000)],
    "binary": [b"", b"\xff", b"a"],
}


def calls_over(kinds: Sequence[str]) -> Iterator[Call]:
    """Every function that takes arguments of these types, and of one every cast and rounding."""
    args = [column(kind, f"c{place}") for place, kind in enumerate(kinds)]
    for function in FUNCTIONS:
        if function == "round" and len(kinds) > 1:
            continue  # its places are constant
        yield from _typed(lambda function=function: call(function, *args))
    if len(kinds) == 1:
        for kind in POOLS:
            yield from _typed(lambda kind=kind: cast(args[0], parse_type(kind)))
        if kinds[0] in NUMBERS:
            yield from (call("round", args[0], literal(places)) for places in PLACES)  # type: ignore[misc]


def _typed(make: Any) -> Iterator[Call]:
    try:
        found: Expr = make()
    except QueryError:  # the types do not go together
        return
    if isinstance(found, Call):
        yield found


@lru_cache(maxsize=4)
def rows_over(kinds: tuple[str, ...]) -> tuple[tuple[Any, ...], ...]:
    """All combinations of the values of some types, with NULL."""
    return tuple(product(*([*POOLS[kind], None] for kind in kinds)))


def table_over(kinds: tuple[str, ...]) -> pa.Table:
    """These rows as a table."""
    rows = rows_over(kinds)
    return pa.table(
        {
            f"c{place}": pa.array([row[place] for row in rows], arrow(kind), from_pandas=False)
            for place, kind in enumerate(kinds)
        }
    )


def values_over(expr: Expr, table: pa.Table) -> list[Any]:
    """What an expression gives for every row."""
    columns = {("t", name): table.column(name).combine_chunks() for name in table.column_names}
    return plain(evaluate(expr, columns, table.num_rows))


def plain(column: Any) -> list[Any]:
    """The values of a column; times as numbers, since Python knows no year after 9999."""
    if pa.types.is_date(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    found: list[Any] = column.to_pylist()
    return found
