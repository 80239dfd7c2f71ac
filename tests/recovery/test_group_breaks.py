"""Groups of sessions that break off at any step of a commit are there once, and as they are after all rows.

Nothing is killed: the step raises, and another session goes on in the same process (`test_breaks.py`).
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
import weft.session.run
from tests.equivalence.grouped import SCHEMA, STREAMS, random_tables, random_text, rounded
from tests.equivalence.test_derived import split
from tests.equivalence.test_grouped import last_per_key
from tests.recovery.test_breaks import Breaker, BrokenError
from tests.shares import quick, seeds
from weft.connectors.files.parquet_sink import ParquetSink
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import BatchPlan, Manifest
from weft.testing import reference_join

FILES, STEPS, BREAKS = 5, 12, 6


class Breaking(Checkpoint):
    """A checkpoint whose steps may break."""

    breaker: ClassVar[Breaker]

    def write_plan(self, plan: BatchPlan) -> None:
        """The batch is fixed, or not."""
        with self.breaker.step(f"plan {plan.number}"):
            super().write_plan(plan)

    def commit(self, manifest: Manifest) -> None:
        """Results are in place, the manifest is not; or both are."""
        with self.breaker.step(f"manifest {manifest.number}"):
            super().commit(manifest)


@pytest.fixture
def breaker(monkeypatch: pytest.MonkeyPatch) -> Breaker:
    """What breaks sessions off."""
    breaker, commit_parts = Breaker(), ParquetSink.commit_parts

    def breaking(self: ParquetSink, batch_id: int, names: list[str]) -> None:
        with breaker.step(f"results of batch {batch_id}"):
            commit_parts(self, batch_id, names)

    monkeypatch.setattr(ParquetSink, "commit_parts", breaking)
    monkeypatch.setattr(weft.session.run, "Checkpoint", Breaking)
    monkeypatch.setattr(Breaking, "breaker", breaker, raising=False)
    return breaker


def _session(root: Path, text: str, partitions: int, updates: dict[int, pa.Table] | None) -> weft.Session:
    """A session with a query in the modes that it can have; ``updates`` takes what it gives in update mode."""
    options = weft.Options(partitions=partitions)
    session = weft.Session(checkpoint=root / "ck", options=options, execution="local")
    for name in STREAMS:
        source = weft.files("parquet", root / name, schema=SCHEMA, max_files_per_batch=1)
        session.stream(name, source, event_time="ts", lateness="2 seconds")
    session.query(text, name="final", sink=weft.to_parquet(root / "final"))
    if updates is not None:

        def keep(rows: Any, batch: int) -> None:
            updates[batch] = rows

        session.query(text, name="update", sink=weft.foreach_batch(keep, arrow=True), mode="update")
    return session


@pytest.mark.parametrize("seed", quick(seeds(12), 2))
def test_groups_of_sessions_that_break_off(seed: int, tmp_path: Path, breaker: Breaker) -> None:
    """A group would be lost, given twice, or have rows of a batch twice that is repeated."""
    rng = random.Random(seed)
    text, tables, partitions = random_text(rng), random_tables(rng, 30), rng.choice((1, 3))
    for number, batch in enumerate(split(rng, tables, FILES)):
        for name, table in batch.items():
            (tmp_path / name).mkdir(exist_ok=True)
            pq.write_table(table, tmp_path / name / f"{number}.parquet")
    final = any(word in text for word in ("SELECT DISTINCT", "session_window", "HAVING"))
    updates: dict[int, pa.Table] | None = None if final else {}
    finished = False
    while not finished:
        breaker.left = rng.randrange(1, STEPS) if len(breaker.story) < BREAKS else -1
        finished = _runs_to_its_end(_session(tmp_path, text, partitions, updates))
    assert breaker.story
    query = _session(tmp_path, text, partitions, None).parse(text)
    expected = reference_join(query, tables)
    assert rounded(_given(tmp_path / "final", expected)) == rounded(expected), (text, breaker.story)
    if updates is not None:
        last = last_per_key(pa.concat_tables(table for _, table in sorted(updates.items())))
        assert rounded(last) == rounded(expected), (text, breaker.story)


def _runs_to_its_end(session: weft.Session) -> bool:
    try:
        session.run_available()
    except BrokenError:
        return False
    return True


def _given(path: Path, expected: pa.Table) -> pa.Table:
    """The columns of the groups that a reader of the files sees."""
    if not any(path.rglob("*.parquet")):
        return expected.slice(0, 0)
    return pq.read_table(path).select(expected.schema.names)
