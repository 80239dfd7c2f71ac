"""Tables that change, latest versions, unions and queries over queries on Spark, by resident tasks and by jobs."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
import weft.session.run
from tests.equivalence.sub_selects import SCHEMA, Shape, answer, base_streams, random_query
from tests.equivalence.test_derived import LATENESS, REFUSED, rows_of, split, timely_tables
from tests.recovery.records import Recorded, RecordedLoop
from tests.recovery.table_check import Told
from tests.recovery.table_program import tell
from tests.recovery.table_story import random_table_story
from tests.shares import seeds
from weft.errors import WeftError
from weft.logical.nested.nested import defined_streams

EXECUTIONS = ("resident", "jobs")


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("seed", seeds(1, block=2))
def test_a_story_of_tables(
    spark: Any, seed: int, execution: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tasks of Spark would look up another version than the plan says, or lose what an inner query gave."""
    monkeypatch.setattr(weft.session.run, "Checkpoint", Recorded)
    monkeypatch.setattr(weft.session.run, "Loop", RecordedLoop)
    story = random_table_story(seed)
    session = story.session(tmp_path, spark=spark, execution=execution)
    session.start(ends=True)
    try:
        tell(session, story, tmp_path)
        session.end()
    finally:
        session.stop()
    assert Told(story, tmp_path).check() > 0


def derived_query(rng: random.Random, session: weft.Session) -> str:
    """A random query over queries that needs a derived stream or a union to run."""
    streams = base_streams(Shape(untimed=False), LATENESS)
    while True:
        shape = Shape(untimed=False, counted=False, bounded=rng.random() < 0.7)
        text = str(random_query(rng, streams, shape, rng.choice((1, 2))))
        try:
            found = defined_streams(session.parse(text, cross=True))
        except WeftError as error:
            if not any(refused in error.message for refused in REFUSED):
                raise
        else:
            if found:
                return text


@pytest.mark.parametrize("execution", EXECUTIONS)
@pytest.mark.parametrize("seed", seeds(1, block=3))
def test_random_queries_over_queries(spark: Any, seed: int, execution: str, tmp_path: Path) -> None:
    """Results of inner queries would be lost between the tasks that write and those that read them."""
    rng = random.Random(seed)
    session = weft.Session(
        checkpoint=tmp_path / "ck", spark=spark, execution=execution, options=weft.Options(partitions=2)
    )
    tables = timely_tables(rng, base_streams(Shape(untimed=False), LATENESS), 12)
    for name, parts in _files(rng, tables, tmp_path).items():
        source = weft.files("parquet", str(tmp_path / name), schema=SCHEMA, max_files_per_batch=parts)
        session.stream(name, source, event_time="ts", lateness=LATENESS)
    queries = {f"q{number}": derived_query(rng, session) for number in range(3)}
    for name, text in queries.items():
        session.query(text, name=name, sink=weft.to_parquet(tmp_path / "out" / name), cross=True)
    session.run_available()
    positioned = {
        name: table.append_column("__position", pa.array(range(table.num_rows)))
        for name, table in tables.items()
    }
    for name, text in queries.items():
        query = session.parse(text, cross=True)
        files = (tmp_path / "out" / name).glob("batch=*/*.parquet")
        found = sum(
            (rows_of(pq.ParquetFile(file).read(), query) for file in files), Counter[tuple[Any, ...]]()
        )
        assert found == rows_of(answer(query, positioned), query)


def _files(rng: random.Random, tables: dict[str, pa.Table], root: Path) -> dict[str, int]:
    """Tables in files, cut at random places; by stream, how many files a batch takes at most."""
    for number, batch in enumerate(split(rng, tables, 4)):
        for name, table in batch.items():
            (root / name).mkdir(exist_ok=True)
            pq.write_table(table, root / name / f"{number}.parquet")
    return {name: rng.choice((1, 2)) for name in tables}
