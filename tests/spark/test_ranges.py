"""Partitions that become others on Spark, while a session runs and when it is started again."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import weft
from tests.equivalence.grouped import SCHEMA, random_tables, rounded
from tests.shares import quick
from tests.spark.sessions import running
from tests.spark.test_grouped import LAST, STREAMS, TEXT, put
from weft.testing import reference_join

JOIN = "SELECT a.x AS a, b.x AS b, b.ts AS t FROM a [RANGE 5 SECONDS], b [RANGE 8 SECONDS] WHERE a.k = b.k"
LEFT = (
    "SELECT a.x AS a, b.x AS b, a.ts AS t "
    "FROM a [RANGE 5 SECONDS] LEFT JOIN b [RANGE 5 SECONDS] ON a.x = b.x AND a.k < b.k"
)
TEXTS = {"groups": TEXT, "pairs": JOIN, "left": LEFT}


def session_of(spark: Any, root: Path, execution: str, partitions: int) -> weft.Session:
    """A session with a join, an outer join and groups."""
    options = weft.Options(partitions=partitions)
    session = weft.Session(checkpoint=root / "ck", spark=spark, options=options, execution=execution)
    for name in STREAMS:
        source = weft.files("parquet", str(root / name), schema=SCHEMA)
        session.stream(name, source, event_time="ts", lateness="2 seconds")
    for name, text in TEXTS.items():
        session.query(text, name=name, sink=weft.to_parquet(root / "out" / name))
    return session


@pytest.mark.parametrize("execution", quick(("resident", "jobs"), 0))
def test_partitions_become_others(spark: Any, tmp_path: Path, execution: str) -> None:
    """Tasks in processes of their own would look for state where it was, or find the same rows twice."""
    tables = random_tables(random.Random(5), 60)
    put(tmp_path, tables, range(1))
    with running(session_of(spark, tmp_path, execution, 2)) as session:
        session.process_all_available()
        for piece, partitions in ((1, 5), (2, 1)):
            session.scale(partitions=partitions)
            put(tmp_path, tables, range(piece, piece + 1))
            session.process_all_available()
        changes = [one.what for one in session.plan_history if one.way == "repartitioned"]
        assert changes == ["2 → 5 partitions", "5 → 1 partitions"]
        assert "1 partitions were asked for" in session.explain()
    put(tmp_path, tables, range(3, LAST))
    again = session_of(spark, tmp_path, execution, 3)
    again.run_available()
    assert [one.what for one in again.plan_history if one.way == "repartitioned"] == ["1 → 3 partitions"]
    for name, text in TEXTS.items():
        expected = reference_join(again.parse(text), {stream: tables[stream] for stream in STREAMS})
        given = pq.read_table(tmp_path / "out" / name).select(expected.column_names)
        assert given.num_rows
        assert rounded(given) == rounded(expected), name
