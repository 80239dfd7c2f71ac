"""Tables and joins with the latest version on a real Spark: by resident tasks and by jobs, with a restart between."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import weft
from tests.spark.files import read_files, rows_of, session_of, write
from weft.testing import reference_join

LOOKED_UP = "SELECT a.n AS an, b.n AS bn, t.name FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS] LEFT JOIN t ON a.k = t.k"
LATEST = "SELECT a.n AS an, b.n AS bn FROM a ASOF LEFT JOIN b ON a.k = b.k AND a.ts >= b.ts"


@pytest.mark.parametrize("execution", ["resident", "jobs"])
def test_that_tables_and_versions_are_looked_up_on_spark(spark: Any, tmp_path: Path, execution: str) -> None:
    """A DataFrame that is no stream is a table; a restart goes on with it, and with the versions of a stream."""
    frame = spark.range(20).selectExpr("id AS k", "concat('name ', id) AS name")
    inner = LOOKED_UP.replace(", b [RANGE 5 SECONDS] LEFT", " JOIN b [RANGE 5 SECONDS] ON a.k = b.k LEFT")
    for number in range(2):
        for stream in "ab":
            write(tmp_path, stream, number)
        session = session_of(spark, tmp_path, execution=execution)
        read_files(session, tmp_path, "a", "b")
        session.table("t", frame)
        session.query(inner, name="named", sink=weft.to_parquet(tmp_path / "named"))
        session.query(LATEST, name="latest", sink=weft.to_parquet(tmp_path / "latest"))
        session.run_available(end=number == 1)
    tables = {stream: pq.read_table(tmp_path / "in" / stream) for stream in "ab"}
    tables["t"] = frame.toArrow()
    for name, text in {"named": inner, "latest": LATEST}.items():
        found = pq.read_table(tmp_path / name)
        query = session.parse(text)
        expected = reference_join(query, {i.alias: tables[i.stream.name] for i in query.inputs})
        assert rows_of(found.select(expected.schema.names)) == rows_of(expected)
        assert found.num_rows > 100
