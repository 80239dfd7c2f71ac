"""Sessions with derived streams that end at any step of any batch lose nothing and repeat nothing."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from tests.recovery.derived_world import ARROW, SCHEMA, expected, results, session_over, write_files
from tests.shares import seeds
from weft.connectors.derived.sink import DerivedSink
from weft.connectors.derived.source import DerivedCursor
from weft.connectors.files.parquet_sink import ParquetSink
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import BatchPlan

STEPS: tuple[tuple[type, str], ...] = (
    (Checkpoint, "commit"),
    (Checkpoint, "write_plan"),
    (DerivedSink, "commit_parts"),
    (ParquetSink, "commit_parts"),
    (DerivedCursor, "release"),
)


class Crash(BaseException):
    """The end of a process."""


def _breaking(rng: random.Random, plain: Callable[..., Any], fatal: list[int]) -> Callable[..., Any]:
    def step(*args: Any, **named: Any) -> Any:
        fatal[0] -= 1
        if fatal[0] == 0 and rng.random() < 0.5:
            raise Crash
        found = plain(*args, **named)
        if fatal[0] == 0:
            raise Crash
        return found

    return step


@pytest.mark.parametrize("seed", seeds(4))
def test_ended_at_any_step(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A result of an inner query would be lost or come twice if a session ends between two steps of a batch."""
    rng = random.Random(seed)
    write_files(tmp_path, seed)
    fatal = [rng.randint(1, 60)]
    for kind, name in STEPS:
        monkeypatch.setattr(kind, name, _breaking(rng, getattr(kind, name), fatal))
    for _ in range(40):
        try:
            session_over(tmp_path).run_available()
        except Crash:
            fatal[0] = rng.randint(1, 60)
        else:
            break
    found = expected(tmp_path)
    assert found
    assert results(tmp_path) == found


def test_names_are_free_again(tmp_path: Path) -> None:
    """An inner query would go on for nobody or not begin again for somebody, or a name could not be used again."""
    other = "SELECT d.k FROM (SELECT a.k FROM a [ROWS 3], c WHERE a.k = c.k) AS d, b WHERE d.k = b.k"
    write_files(tmp_path, 1)
    first = session_over(tmp_path)
    first.start(ends=True)
    first.process_all_available()
    loop = first._run_under_way().loop
    assert any(name.startswith("derived_") for name in loop.active_queries.requests)
    first.stop_query("q")
    first.process_all_available()
    assert not loop.active_queries.requests
    first.query(other, name="q", sink=weft.to_parquet(tmp_path / "out" / "second"))
    _add_file(tmp_path)
    first.process_all_available()
    assert sorted(name.split("_")[0] for name in loop.active_queries.requests) == ["derived", "q"]
    first.stop_query("q")
    first.process_all_available()
    first.stop()
    again = session_over(tmp_path, query=other.replace("ROWS 3", "ROWS 4"), name="q", sink="third")
    _add_file(tmp_path)
    again.run_available()
    assert results(tmp_path, "second")
    assert results(tmp_path, "third")


def test_stream_registered_while_running(tmp_path: Path) -> None:
    """A stream that came while the session ran would be unknown to it, or to the session after it."""
    write_files(tmp_path, 2)
    inner = "(SELECT l.k FROM late [ROWS 9] AS l, b WHERE l.k = b.k)"
    text = f"SELECT e.k, a.x FROM {inner} AS e, a WHERE e.k = a.k"
    first = session_over(tmp_path)
    first.start(ends=True)
    first.process_all_available()
    (tmp_path / "late").mkdir()
    _register_late(first, tmp_path)
    first.query(text, name="more", sink=weft.to_parquet(tmp_path / "out" / "more"))
    _add_file(tmp_path, ("a", "b", "late"))
    first.process_all_available()
    first.stop()
    before = results(tmp_path, "more")
    again = session_over(tmp_path)
    _register_late(again, tmp_path)
    _add_file(tmp_path, ("a", "b", "late"))
    again.run_available()
    assert before
    assert before < results(tmp_path, "more")


def _register_late(session: weft.Session, folder: Path) -> None:
    session.stream("late", weft.files("parquet", str(folder / "late"), schema=SCHEMA), event_time="ts")


def _add_file(folder: Path, streams: Sequence[str] = ("a", "b", "c")) -> None:
    """One more file of every stream, with times after all there were."""
    for name in streams:
        number = len(list((folder / name).iterdir()))
        time = datetime(2024, 1, 1, 1, number, tzinfo=timezone.utc)
        rows = [{"k": key, "x": key, "ts": time} for key in range(4)]
        pq.write_table(pa.Table.from_pylist(rows, schema=ARROW), folder / name / f"{number:03d}.parquet")


def test_nothing_is_waited_for_between_two_levels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each level of derived streams would cost a pause of the loop beside its batch."""
    write_files(tmp_path, 3)
    plans, paused = dict[int, BatchPlan](), set[int]()
    write_plan = Checkpoint.write_plan

    def planned(self: Checkpoint, plan: BatchPlan) -> None:
        plans[plan.number] = plan
        write_plan(self, plan)

    monkeypatch.setattr(Checkpoint, "write_plan", planned)
    session = session_over(tmp_path)
    session.start(ends=True)
    loop = session._run_under_way().loop
    wait = loop.wake.wait

    def pause(timeout: float | None = None) -> bool:
        paused.add(loop.before.number)
        return wait(timeout)

    monkeypatch.setattr(loop.wake, "wait", pause)
    try:
        session.end()
    finally:
        session.stop()
    given = {
        (int(part.what["batch"]), number)
        for number, plan in plans.items()
        for parts in plan.inputs.values()
        for part in parts
        if "batch" in part.what
    }
    assert len(given) > 2
    assert all(taken == before + 1 for before, taken in given)
    assert not {before for before, _ in given} & paused
