"""Looking at a session writes nothing: only its loop writes the log, and a later session knows what it measured."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

import weft
from tests.unit.adapting.snapshots import CHAIN, COLUMNS
from tests.unit.adapting.worlds import World
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.observe import recent_statistics as recent
from weft.stats.known import Known

STATISTICS = "statistics.json"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three batches of a chain of four streams."""
    made = World(tmp_path)
    for name in COLUMNS:
        (tmp_path / name).mkdir()
    for _ in range(3):
        made.write(swapped=False)
    return made


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder, with a hash of what is in it; what holds the log says nothing of its content."""
    files = [path for path in folder.rglob("*") if path.is_file() and "lease" not in path.parts]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def look_at(session: weft.Session) -> None:
    """Look at everything that a session shows."""
    query = session.queries[0]
    session.measured()
    str(session.statistics_report())
    session.explain()
    query.explain()
    session.preview(CHAIN).explain()
    dict(session.progress)
    str(query.progress)
    session.graph_of(query.name)
    session.expected_of(query.name)
    session.batches_after(-1)
    assert session.plan_history is not None
    assert session.shared_graph is not None


def observed(session: weft.Session) -> dict[tuple[str, str], float]:
    """What batches measured, by what it is about."""
    rows = session.statistics_report().rows
    return {(row.of, row.what): row.value for row in rows if row.source == "observed"}


def run_all(session: weft.Session) -> None:
    """All that is there."""
    session.start()
    session.process_all_available()


@pytest.mark.parametrize("adapt", ["auto", "off", "always"])
def test_looking_changes_no_file_of_the_checkpoint(world: World, adapt: str) -> None:
    """Neither while the session runs nor after it has stopped."""
    session = world.session(adapt=adapt)
    run_all(session)
    before = contents(world.root)
    look_at(session)
    assert contents(world.root) == before
    session.stop()
    before = contents(world.root)
    look_at(session)
    assert contents(world.root) == before


def test_a_stopped_session_leaves_alone_what_another_one_measured(world: World) -> None:
    """It held the checkpoint once; whoever holds it now has measured more."""
    first = world.session()
    run_all(first)
    first.stop()
    world.write(swapped=True)
    second = world.session()
    run_all(second)
    second.stop()
    written = (world.root / "checkpoint" / STATISTICS).read_bytes()
    look_at(first)
    assert (world.root / "checkpoint" / STATISTICS).read_bytes() == written


@pytest.mark.parametrize("adapt", ["auto", "off"])
def test_a_later_session_knows_what_was_measured(world: World, adapt: str) -> None:
    """Though nobody has looked at the first one, and its plans need not follow the data."""
    session = world.session(adapt=adapt)
    run_all(session)
    session.stop()
    again = world.session(adapt=adapt)
    again.start()
    assert observed(again) == observed(session)
    assert {("r", "rate"), ("r.a = s.a", "selectivity")} <= observed(again).keys()
    again.stop()


def test_what_is_measured_is_kept_while_batches_run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that is killed has told what it knew, but for the last seconds."""
    monkeypatch.setattr(recent, "SAVE_SECONDS", 0.0)
    monkeypatch.setattr(recent, "SAVE_SHARE", float("inf"))
    session = world.session()
    run_all(session)
    saved = Checkpoint.at(world.root / "checkpoint").statistics()
    assert saved is not None
    assert Known.from_json(saved).batch == 2
    session.stop()


def test_it_is_kept_at_a_bounded_cost(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for every batch: writing it would take longer than a small one does."""
    monkeypatch.setattr(recent, "SAVE_SECONDS", 3600.0)
    session = world.session()
    run_all(session)
    before = (world.root / "checkpoint" / STATISTICS).stat().st_mtime_ns
    world.write(swapped=False)
    session.process_all_available()
    assert (world.root / "checkpoint" / STATISTICS).stat().st_mtime_ns == before
    session.stop()
    assert (world.root / "checkpoint" / STATISTICS).stat().st_mtime_ns > before
