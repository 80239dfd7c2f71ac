"""What SQL can say, on Spark's workers: every pair joined, USING, quoted names, texts that grow too large."""

from __future__ import annotations

from collections import Counter
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.spark.files import definition, read_files, rows_of, session_of, write
from weft.errors import ResultError

A, B = "a [RANGE 1 SECOND]", "b [RANGE 1 SECOND]"


def exploding(text: str) -> str:
    """An expression of few words and many bytes."""
    for _ in range(12):
        text = f"replace({text}, 'x', 'xxxxxxxxxx')"
    return text


def untimed(rows: Counter[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Rows without their times, which the definition gives without a zone."""
    found: Counter[tuple[Any, ...]] = Counter()
    for row, count in rows.items():
        found[tuple(value for value in row if not isinstance(value, datetime))] += count
    return found


def test_what_sql_says_is_what_spark_gives(spark: Any, tmp_path: Path) -> None:
    """A row padded though there is a tuple for it, or one query that takes the others' memory."""
    for number in (0, 1):
        write(tmp_path, "a", number)
        write(tmp_path, "b", number + 1)
    session = session_of(spark, tmp_path)
    read_files(session, tmp_path, "a", "b")
    grown = exploding("CAST({} AS STRING) || 'x'")
    texts = {
        "left": f"SELECT a.n AS an, b.n AS bn FROM {A} LEFT JOIN {B} ON TRUE",
        "full": f"SELECT a.n AS an, b.n AS bn FROM {A} FULL JOIN {B} ON TRUE WHERE a.k IS NULL OR a.k < 5",
        "anti": f'SELECT "a"."n" FROM {A} ANTI JOIN {B} ON TRUE',
        "star": f'SELECT * FROM {A} FULL JOIN {B} USING ("k")',
        "shown": f"SELECT {grown.format('a.n')} AS t FROM {A}, {B} WHERE a.k = b.k",
        "placed": f"SELECT a.n FROM {A}, {B} WHERE {grown.format('a.k')} = {grown.format('b.k')}",
    }
    planned = {
        name: session.query(text, name=name, sink=weft.to_memory(), cross=True)
        for name, text in texts.items()
    }
    with pytest.raises(ResultError, match=r"query shown has failed: .*replace would make"):
        session.run_available()
    for name in ("left", "full", "anti", "star"):
        expected = definition(tmp_path, planned[name])
        assert untimed(rows_of(planned[name].results())) == untimed(expected), name
        assert expected
    assert planned["star"].results().schema.names == ["k", "a_n", "a_ts", "b_n", "b_ts"]
    for name in ("shown", "placed"):
        progress = planned[name].progress
        assert progress.status == "stopped"
        assert "replace would make" in progress.reason
        assert "set WEFT_TEXT_BYTES_PER_" in progress.reason
