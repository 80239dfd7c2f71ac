"""Operators and common functions of every type over values at the edges of the types, beside Spark's own.

`.venv/bin/pytest tests/spark/test_edge_values.py --scale 100` compares all of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import Decimal
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest

from tests.shares import seeds, share_of
from tests.unit.kernels.edges import (
    BITS,
    NUMBERS,
    POOLS,
    calls_over,
    plain,
    rows_over,
    table_over,
    values_over,
)
from weft.logical.expr.conversion import as_decimal
from weft.logical.expr.expression import Call, to_sql, type_sql

KINDS = [kind for kind in POOLS if kind not in ("binary", "interval")]
# Compared in Spark's default mode over pairs of types; `tests/equivalence/test_scalar_functions.py` has all functions.
COMPARED = {
    *(
        "=",
        "<>",
        "<",
        "<=",
        "like",
        "+",
        "-",
        "*",
        "/",
        "%",
        "neg",
        "cast",
        "abs",
        "ceil",
        "floor",
        "sign",
        "round",
    ),
    *(
        "exp",
        "ln",
        "sqrt",
        "power",
        "lower",
        "upper",
        "trim",
        "ltrim",
        "rtrim",
        "reverse",
        "concat",
        "replace",
    ),
    *(
        "substring",
        "length",
        "startswith",
        "endswith",
        "contains",
        "levenshtein",
        "year",
        "month",
        "day",
        "hour",
    ),
    *("minute", "second", "add_months", "unix_micros", "coalesce", "nullif", "greatest", "least", "is null"),
}
TRIED = {"+": "try_add", "-": "try_subtract", "*": "try_multiply", "/": "try_divide", "%": "try_mod"}
INEXACT = {"exp", "ln", "sqrt", "power"}  # Java's last digit may be another


@pytest.fixture
def utc(spark: Any) -> Iterator[Any]:
    """Spark in its default mode, with times in UTC as Weft has them."""
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    zone = spark.conf.get("spark.sql.session.timeZone")
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    spark.conf.set("spark.sql.codegen.wholeStage", "false")  # so many expressions take long to compile
    yield spark
    spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.codegen.wholeStage", "true")


def spark_text(expr: Call) -> str:
    """The expression for Spark, with NULL where it would stop the query, and with the type that Weft gives it."""
    return re.sub(r"(?<!try_)CAST\(", "try_cast(", _text(expr))


def _text(expr: Call) -> str:
    args = [to_sql(arg) for arg in expr.args]
    kinds, name, type_ = [arg.type for arg in expr.args], expr.function, type_sql(expr.type)
    times = any(kind.is_time or kind.name == "interval" for kind in kinds)
    if name in TRIED and not times:
        return f"{TRIED[name]}({', '.join(args)})"
    if name == "cast" and kinds[0].name == "decimal" and expr.type.is_integer:
        return f"try_cast(try_cast({args[0]} AS BIGINT) AS {type_})"  # to an INT, Spark casts 0.9999999999999999 as 1
    if name == "cast":
        return f"try_cast({args[0]} AS {type_})"
    if name in ("neg", "abs") and kinds[0].is_integer:
        least = f"CAST({-(2 ** (BITS[kinds[0].name] - 1))} AS {type_})"
        return f"CASE WHEN {args[0]} <> {least} THEN {to_sql(expr)} END"
    if name == "round" and kinds[0].is_integer:
        return f"try_cast(round(CAST({args[0]} AS DECIMAL(20, 0)), {', '.join(args[1:]) or 0}) AS {type_})"
    if name in ("ceil", "floor") and kinds[0].name in ("float", "double"):
        return f"CASE WHEN abs({args[0]}) < 9e18 THEN {to_sql(expr)} END"
    if name in ("ceil", "floor", "round") and kinds[0].name == "decimal":
        return f"try_cast({to_sql(expr)} AS {type_})"
    return to_sql(expr)


def alike(expr: Call, ours: Any, theirs: Any) -> bool:
    """Whether two values are the same, as far as the same is wanted."""
    if theirs is None and (expr.function == "%" or expr.args[0].type.name in ("float", "double")):
        return True  # Spark refuses remainders of quotients of more than 38 digits, and whole parts that are no longs
    if isinstance(ours, float) and isinstance(theirs, float):
        same = ours == theirs or (math.isnan(ours) and math.isnan(theirs))
        return same or (expr.function in INEXACT and math.isclose(ours, theirs, rel_tol=1e-13))
    if expr.function == "cast" and expr.args[0].type.name in ("float", "double") and ours != theirs:
        if ours is None:
            return bool(theirs == 2**63 - 1)  # Spark takes 2**63 for the greatest long, which is one less
        if isinstance(ours, Decimal):  # made of the digits of a text, as below
            return theirs is not None and np.float32(ours) == np.float32(theirs)
    if expr.function == "cast" and expr.args[0].type.name in ("float", "double") and isinstance(ours, str):
        # before Java 19, some digits are too many
        return ours == theirs or (theirs is not None and np.float32(ours) == np.float32(theirs))
    return bool(ours == theirs)


def is_compared(expr: Call) -> bool:
    """Whether Spark has the function, and gives an exact result."""
    kind = expr.args[0].type
    if expr.function in ("neg", "abs", "round") and kind.name == "decimal":
        return kind.precision < 34  # beyond, Spark rounds before it looks whether the result fits
    if expr.function == "%" and expr.type.name == "decimal":
        one, other = map(as_decimal, expr.args)
        return (
            one.precision - one.scale + other.scale <= 38
        )  # beyond, Spark may stop: the quotient has too many digits
    if expr.function in ("substring", "add_months") and any(arg.type.name == "long" for arg in expr.args[1:]):
        return False  # Spark casts these to an INT, and stops where they are none
    if any(isinstance(arg, Call) and arg.args[0].type.name in ("float", "double") for arg in expr.args):
        return False  # a text made of a float, which has some digits too many before Java 19
    return expr.function in COMPARED


def compared(spark: Any, kinds: tuple[str, ...]) -> list[str]:
    """What differs."""
    calls = [one for one in calls_over(kinds) if is_compared(one)]
    table, rows = table_over(kinds), rows_over(kinds)
    spark.createDataFrame(table).createOrReplaceTempView("t")
    texts = [f"{spark_text(one)} AS e{place}" for place, one in enumerate(calls)]
    found = spark.sql(f"SELECT {', '.join(texts)} FROM t").toArrow()
    wrong = []
    for place, expr in enumerate(calls):
        ours, theirs = values_over(expr, table), plain(found.column(place))
        wrong += [
            f"{spark_text(expr)} of {row}: {one!r}, and {other!r} in Spark"
            for row, one, other in zip(rows, ours, theirs, strict=True)
            if not alike(expr, one, other)
        ]
    return wrong


@pytest.mark.parametrize("seed", seeds(1))
def test_values_at_the_edges_are_those_of_spark(seed: int, utc: Any) -> None:
    """A result would be another than that of the same query in Spark, or one value would stop the query."""
    singles, pairs = [(kind,) for kind in KINDS], list(product(NUMBERS, repeat=2))
    random = Random(seed)
    chosen = random.sample(singles, k=min(len(singles), share_of(3)))
    for kinds in (*chosen, *random.sample(pairs, k=min(len(pairs), share_of(5)))):
        assert compared(utc, kinds) == []
