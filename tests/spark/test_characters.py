"""Functions of texts over the characters of Unicode, beside Spark's own.

`.venv/bin/pytest tests/spark/test_characters.py --scale 1000` compares all characters.
"""

from __future__ import annotations

import unicodedata
from typing import Any

import pyarrow as pa
import pytest

from tests.shares import share_of
from tests.unit.kernels.characters import PLACES, cases, characters, counts, sample
from tests.unit.kernels.edges import plain, values_over
from weft.logical.expr.expression import Expr, to_sql

AT_ONCE = 20_000
# Letters of Unicode 17, of which Arrow has the capitals and Spark not yet; docs/sql.md lists them.
NEWER = {*(0x277, 0x27C, 0xAB4B, 0xAB4C, 0xA7DD, 0xA7E2, 0xAB6C, 0xAB6D), *range(0x1DF40, 0x1DF80)}


def is_known(function: str, text: str) -> bool:
    """Whether a difference is listed in docs/sql.md."""
    if "DECIMAL" in function:  # Spark reads the digits of all alphabets
        return any(unicodedata.category(one) == "Nd" and not one.isascii() for one in text)
    return any(ord(one) in NEWER for one in text)


def differing(spark: Any, texts: list[str], exprs: list[Expr]) -> list[tuple[str, str, Any, Any]]:
    """By function, the texts for which Spark gives another value, with both values."""
    table = pa.table({"c0": texts})
    spark.createDataFrame(table).createOrReplaceTempView("t")
    listed = ", ".join(
        f"{to_sql(expr).replace('CAST(', 'try_cast(')} AS e{n}" for n, expr in enumerate(exprs)
    )
    theirs = spark.sql(f"SELECT {listed} FROM t").toArrow()
    return [
        (to_sql(expr), text, one, other)
        for n, expr in enumerate(exprs)
        for text, one, other in zip(texts, values_over(expr, table), plain(theirs.column(n)), strict=True)
        if one != other and not is_known(to_sql(expr), text)
    ]


@pytest.mark.ci
def test_functions_of_texts_are_those_of_spark(spark: Any) -> None:
    """A name would be found by one of the two and not by the other."""
    every = characters()
    chosen = every if share_of(1) >= 1000 else sample(every)
    for place in PLACES:
        exprs = [*cases(), *counts()] if place in ("{}", "a{}b") else cases()
        for first in range(0, len(chosen), AT_ONCE):
            texts = [place.format(one) for one in chosen[first : first + AT_ONCE]]
            assert differing(spark, texts, exprs) == []
