"""Groups on Spark, through a restart and a change of queries, give what DuckDB gives for all rows at once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from tests.equivalence.grouped import SCHEMA, random_tables, rounded
from tests.shares import quick
from weft.testing import reference_join

TEXT = (
    "SELECT a.k AS k0, window.start AS w0, count(*) AS n, sum(b.f) AS f, sum(a.d) AS d, max(b.s) AS s "
    "FROM a [RANGE 5 SECONDS], b [RANGE 8 SECONDS] WHERE a.k = b.k GROUP BY a.k, window(a.ts, '6 seconds', '3 seconds')"
)
STREAMS = ("a", "b")
LAST = 5  # pieces that the tables are cut into


def put(root: Path, tables: dict[str, pa.Table], pieces: range) -> None:
    """Some pieces of the tables, as files."""
    for name in STREAMS:
        (root / name).mkdir(exist_ok=True)
        size = -(-tables[name].num_rows // LAST)
        for piece in pieces:
            pq.write_table(tables[name].slice(piece * size, size), root / name / f"{piece}.parquet")


def session_of(spark: Any, root: Path, execution: str, *, more: bool) -> weft.Session:
    """A session with the query in both modes, and one query more that shares the join with them."""
    session = weft.Session(
        checkpoint=root / "ck", spark=spark, options=weft.Options(partitions=3), execution=execution
    )
    for name in STREAMS:
        source = weft.files("parquet", str(root / name), schema=SCHEMA, max_files_per_batch=1)
        session.stream(name, source, event_time="ts", lateness="2 seconds")
    session.query(TEXT, name="final", sink=weft.to_parquet(root / "final"))
    if more:
        other = TEXT.replace("GROUP BY a.k, ", "GROUP BY a.k, a.x, ")
        session.query(other, name="other", sink=weft.to_parquet(root / "other"))
    return session


@pytest.mark.parametrize("execution", quick(("resident", "jobs")))
def test_groups_survive_a_restart(spark: Any, tmp_path: Path, execution: str) -> None:
    """A group that was open when a session ended would be lost, given twice, or begin anew."""
    tables = random_tables(random.Random(5), 60)
    put(tmp_path, tables, range(3))
    first = session_of(spark, tmp_path, execution, more=False)
    first.run_available(end=False)
    put(tmp_path, tables, range(3, LAST))
    second = session_of(spark, tmp_path, execution, more=True)
    second.run_available()
    given = pq.read_table(tmp_path / "final").select(["k0", "w0", "n", "f", "d", "s"])
    expected = reference_join(second.parse(TEXT), {name: tables[name] for name in STREAMS})
    assert given.num_rows
    assert rounded(given) == rounded(expected)
