"""Batches whose tasks are lost, or cannot be started, are run again, and there may be more tasks or fewer by then."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
import weft.session.run
from weft.errors import ConfigError
from weft.runtime.local import LocalExecutor
from weft.runtime.loop.batch import task_runner as attempts
from weft.runtime.loop.executor import NoRoomError, Pieces
from weft.runtime.wire.messages import Message
from weft.runtime.wire.task_input import Job, Setup

ROWS = 200


@dataclass
class Shaky(LocalExecutor):
    """An executor whose starts and runs fail with what is given, in turn; None is a success."""

    starts: Iterator[Exception | None] = field(default_factory=lambda: iter(()))
    runs: Iterator[Exception | None] = field(default_factory=lambda: iter(()))
    counts: Iterator[int] = field(default_factory=lambda: iter(()))
    begun: list[int] = field(default_factory=list)  # how many tasks each start that succeeded had

    def __post_init__(self) -> None:
        self.tasks = 1

    def start(self, setup: Setup) -> None:
        if (error := next(self.starts, None)) is not None:
            raise error
        super().start(setup)
        self.tasks = next(self.counts, 1)
        self.begun.append(self.tasks)
        self.is_outgrown = False

    def run(self, job: Job, pieces: Pieces, hops: int) -> list[Message]:
        assert job.tasks == self.tasks, "a batch was planned for other tasks than there are"
        if (error := next(self.runs, None)) is not None:
            raise error
        self.is_outgrown = True
        return super().run(job, pieces, hops)


@pytest.fixture
def session(tmp_path: Path) -> Iterator[weft.Session]:
    """A session of one query over three batches."""
    made = weft.Session(checkpoint=tmp_path / "ck", execution="local", options=weft.Options(partitions=4))
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        for number in range(3):
            rows = range(number * ROWS, (number + 1) * ROWS)
            table = pa.table({"k": [row % 50 for row in rows], "n": list(rows)})
            pq.write_table(table, tmp_path / name / f"{number}.parquet")
        made.stream(name, weft.files("parquet", str(tmp_path / name), max_files_per_batch=1))
    made.query("SELECT a.n AS x, b.n AS y FROM a, b WHERE a.k = b.k", name="q", sink=weft.to_memory())
    yield made
    made.stop()


def run(session: weft.Session, monkeypatch: pytest.MonkeyPatch, executor: Shaky) -> None:
    """Run to the end of the input, with an executor, and compare."""
    monkeypatch.setattr(attempts, "PATIENCE", 0.0)
    monkeypatch.setattr(weft.session.run, "executor_for", lambda *_: executor)
    session.start(available_now=True)
    assert session.await_termination(60)
    rows = range(3 * ROWS)
    (query,) = session.queries
    found = sorted((row["x"], row["y"]) for row in query.results().to_pylist())
    assert found == [(x, y) for x in rows for y in rows if x % 50 == y % 50]


def lost(times: int) -> list[Exception | None]:
    return [RuntimeError("an executor was lost")] * times


@pytest.mark.parametrize("what", ["starts", "runs"])
def test_what_fails_is_tried_again(session: weft.Session, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """An executor that is lost while tasks begin would end the session."""
    failing: dict[str, Any] = {what: iter([*lost(3), None, *lost(2)])}
    run(session, monkeypatch, Shaky(4, **failing))


@pytest.mark.parametrize("what", ["starts", "runs"])
def test_what_fails_again_and_again_is_an_error(
    session: weft.Session, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    failing: dict[str, Any] = {what: iter(lost(4))}
    with pytest.raises(RuntimeError, match="an executor was lost"):
        run(session, monkeypatch, Shaky(4, **failing))


def test_errors_that_would_come_again_are_raised_at_once(
    session: weft.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match="no such thing"):
        run(session, monkeypatch, Shaky(4, starts=iter([ConfigError("no such thing")])))


def test_a_batch_waits_until_there_is_room(session: weft.Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """All executors may be taken away for longer than four attempts last."""
    run(session, monkeypatch, Shaky(4, starts=iter([NoRoomError("no room")] * 20)))


def test_there_may_be_more_tasks_or_fewer_with_every_batch(
    session: weft.Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors come and go: partitions that moved to other tasks must be found there."""
    shaky = Shaky(4, counts=iter([1, 4, 2, 3]), runs=iter([None, *lost(1)]))
    run(session, monkeypatch, shaky)
    assert shaky.begun[:4] == [1, 4, 2, 3]
