"""What would be lost: rows of a DataFrame that come twice or never, and a query that fails where nobody looks."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from weft.connectors.frames.source import DataFrameSource, FrameCursor, dataframe
from weft.errors import SourceError
from weft.ports.source import CursorContext, MemoryBlobs


def write(folder: Path, name: str, *values: int) -> None:
    folder.mkdir(exist_ok=True)
    hidden = folder / f"_{name}"
    hidden.write_text("".join(json.dumps({"k": value}) + "\n" for value in values))
    hidden.rename(folder / name)


def described(spark: Any, folder: Path) -> DataFrameSource:
    folder.mkdir(exist_ok=True)
    return dataframe(spark.readStream.schema("k long").json(str(folder)))


@contextmanager
def opened(source: DataFrameSource, folder: Path, state: dict[str, Any]) -> Iterator[FrameCursor]:
    cursor = source.open(CursorContext("s", state, MemoryBlobs(), folder))
    try:
        yield cursor
    finally:
        cursor.close()


def take_all(source: DataFrameSource, cursor: FrameCursor) -> list[int]:
    cursor.catch_up()
    parts = cursor.look(time.time()).parts
    found = [row["k"] for part in parts for row in source.read("s", part).batch.to_pylist()]
    cursor.take(parts)
    cursor.release(parts)
    return sorted(found)


def test_rows_of_a_dataframe_come_once(spark: Any, tmp_path: Path) -> None:
    source, place = described(spark, tmp_path / "in"), tmp_path / "place"
    write(tmp_path / "in", "a", 1, 2)
    with opened(source, place, {}) as cursor:
        assert take_all(source, cursor) == [1, 2]
        write(tmp_path / "in", "b", 3)
        assert take_all(source, cursor) == [3]
        assert any(query.name.startswith("weft: s") for query in spark.streams.active)
        write(tmp_path / "in", "c", 4)
        cursor.catch_up()
        state = cursor.state()
    # As after a crash: Spark could not note that it had put its last batch down, and runs it again.
    (place / "spark" / "commits" / "2").unlink()
    (place / "spark" / "commits" / ".2.crc").unlink(missing_ok=True)
    write(tmp_path / "in", "d", 5)
    with opened(source, place, state) as cursor:
        assert take_all(source, cursor) == [4, 5]
        assert take_all(source, cursor) == []
        assert len(list((place / "arrow").iterdir())) <= 2  # of batches that were read nothing stays


def test_books_of_spark_that_are_lost_are_an_error(spark: Any, tmp_path: Path) -> None:
    source, place = described(spark, tmp_path / "in"), tmp_path / "place"
    with opened(source, place, {}) as cursor:
        for number in range(2):
            write(tmp_path / "in", str(number), number)
            assert take_all(source, cursor) == [number]
        state = cursor.state()
    shutil.rmtree(place / "spark")
    with opened(source, place, state) as cursor:
        cursor.catch_up()
        with pytest.raises(SourceError, match="batch 0 of the DataFrame after batch 1"):
            cursor.look(time.time())


def test_a_query_that_fails_or_is_stopped_is_told_by_the_next_look(spark: Any, tmp_path: Path) -> None:
    write(tmp_path / "in", "a", 1)
    broken = spark.readStream.schema("k long").json(str(tmp_path / "in"))
    source = dataframe(broken.selectExpr("CAST(raise_error('this went wrong') AS BIGINT) AS k"))
    with opened(source, tmp_path / "place", {}) as cursor:
        cursor.catch_up()
        with pytest.raises(SourceError, match=r"s: Spark's query .* has ended: .*this went wrong"):
            cursor.look(time.time())
    whole = described(spark, tmp_path / "in")
    with opened(whole, tmp_path / "other", {}) as cursor:
        cursor.catch_up()
        next(query for query in spark.streams.active if query.name.startswith("weft: s")).stop()
        with pytest.raises(SourceError, match="it was stopped"):
            cursor.look(time.time())
