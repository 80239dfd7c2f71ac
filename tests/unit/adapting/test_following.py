"""Sessions whose plans follow the data, as users run them: in this process, from files, the planner in its own."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pytest

import weft
from tests.restless import DrawnStatistics
from tests.unit.adapting.snapshots import CHAIN, COLUMNS, statistics
from tests.unit.adapting.worlds import OPTIONS, World, table
from weft.adapting.adapter import AdaptivePlan
from weft.adapting.background import BackgroundPlanner
from weft.errors import ConfigError
from weft.runtime.loop.adapter import StaticPlan
from weft.runtime.observe.plan_changes import PlanChange
from weft.testing import LocalRun, reference_join
from weft.testing.run import BEGINNING

EPOCH = weft.Adaptation(epoch_batches=3, epoch_seconds=0.0, half_life_batches=3, migrate="eager")
PATIENCE = 60.0  # seconds, on a busy machine; usually it is a few


def run_until(
    world: World, session: weft.Session, *ways: str, wanted: Callable[[PlanChange], bool] = lambda _: True
) -> PlanChange:
    """Write batches with swapped selectivities until the plan has changed in one of these ways, as it is wanted."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        for change in session.plan_history:
            if change.way in ways and wanted(change):
                return change
        world.write(swapped=True)
        session.process_all_available()
    pytest.fail(f"no change {ways}: {session.plan_history}")


def begun(world: World, session: weft.Session) -> weft.Session:
    """A session that has run for some batches."""
    session.start()
    for _ in range(4):
        world.write(swapped=False)
        session.process_all_available()
    return session


def test_a_plan_follows_the_data(tmp_path: Path) -> None:
    """Found beside the batches, taken up between two of them, explained, and measured; the results are exact."""
    world = World(tmp_path)
    session = begun(world, world.session(adaptation=EPOCH))
    adapter = session._graphs.loop.config.adapter if session._graphs.loop else None
    assert isinstance(adapter, AdaptivePlan)
    assert isinstance(adapter._finder, BackgroundPlanner)
    change = run_until(
        world,
        session,
        *("at once", "eager"),
        wanted=lambda one: one.cause == "the data has changed" and one.observed is not None,
    )
    session.stop()
    assert world.results() == world.expected(session)
    assert change.gain >= EPOCH.threshold
    assert "less work expected" in change.reason
    assert change.what
    text = session.explain()
    assert "Plan changes" in text
    assert change.reason in text
    assert "observed: " in text
    assert adapter._finder._process is None  # the planner ended with the session


def test_a_plan_that_is_not_to_follow_stays(tmp_path: Path) -> None:
    """Whatever the data does."""
    world = World(tmp_path)
    session = begun(world, world.session(adapt="off", adaptation=EPOCH))
    assert session._graphs.loop is not None
    assert isinstance(session._graphs.loop.config.adapter, StaticPlan)
    for _ in range(8):
        world.write(swapped=True)
        session.process_all_available()
    session.stop()
    assert session.plan_history == ()
    assert "Plan changes" not in session.explain()
    assert world.results() == world.expected(session)


@pytest.mark.parametrize("adapt", ["auto", "off"])
def test_a_session_goes_on_with_the_transition_of_another(tmp_path: Path, adapt: str) -> None:
    """Stores that were being filled are not lost with the process; they take over once they have all they need."""
    world = World(tmp_path)
    beside = weft.Adaptation(epoch_batches=3, epoch_seconds=0.0, half_life_batches=3, migrate="side by side")
    session = begun(world, world.session(adapt="always", adaptation=beside))
    run_until(world, session, "side by side")
    session.stop()
    assert session._graphs.loop is not None
    transition = session._graphs.loop.active_queries.transition
    assert transition is not None
    again = world.session(adapt=adapt, adaptation=beside)
    again.start()
    loop = again._graphs.loop
    assert loop is not None
    assert loop.active_queries.transition == transition
    for _ in range(8):
        world.write(swapped=True)
        again.process_all_available()
    again.stop()
    assert loop.active_queries.transition != transition
    assert loop.active_queries.program is not None
    assert again.plan_history[0].way == "filled"
    assert world.results() == world.expected(again)


def test_a_change_of_queries_gives_a_transition_up(tmp_path: Path) -> None:
    """The stores that were being filled are dropped, and no result is lost or repeated."""
    world = World(tmp_path)
    beside = weft.Adaptation(epoch_batches=3, epoch_seconds=0.0, half_life_batches=3, migrate="side by side")
    session = begun(world, world.session(adapt="always", adaptation=beside))
    run_until(world, session, "side by side")
    session.query("SELECT r.a FROM r WHERE r.a < 3", name="other", sink=weft.to_memory())
    run_until(world, session, "given up")
    run_until(world, session, "filled", "eager", "at once")
    session.stop()
    assert world.results() == world.expected(session)


@pytest.mark.parametrize("idle_after", [None, "3 seconds"])
def test_a_silent_stream_holds_a_transition_up_until_it_is_idle(idle_after: str | None) -> None:
    """What its first tuple may join is of use until then."""
    beside = weft.Adaptation(epoch_batches=2, epoch_seconds=0.0, migrate="side by side")
    session = weft.Session(options=OPTIONS, adapt="always", adaptation=beside)
    for name, columns in COLUMNS.items():
        schema = ", ".join([*(f"{column} long" for column in columns), "ts timestamp"])
        session.stream(
            name, weft.files("parquet", name, schema=schema), event_time="ts", idle_after=idle_after
        )
    session.query(CHAIN, name="chain", sink=weft.to_memory())
    known = [statistics()]
    session._measured = session._graphs.measured = DrawnStatistics(lambda: known[0])
    run = LocalRun(session)
    tables: dict[str, list[pa.Table]] = {name: [] for name in COLUMNS}

    def step(number: int, *names: str) -> None:
        given = {name: table(number, name, swapped=False) for name in names}
        for name, one in given.items():
            tables[name].append(one)
        run.batch(given, now=BEGINNING + timedelta(seconds=number))

    for number in range(3):
        step(number, *COLUMNS)
    known[0] = statistics(20.0, 0.001)
    for number in range(3, 5):
        step(number, *COLUMNS)
    assert [change.way for change in session.plan_history][-1] == "side by side"
    for number in range(5, 20):
        step(number, "r", "s", "t")
    assert ("filled" in [change.way for change in session.plan_history]) == (idle_after is not None)
    whole = {name: pa.concat_tables(parts) for name, parts in tables.items()}
    expected = reference_join(session.parse(CHAIN), whole)
    assert counted(run.results("chain")) == counted(expected)


def counted(table: pa.Table) -> Counter[tuple[object, ...]]:
    """The rows of a table, in no order."""
    return Counter(tuple(row.values()) for row in table.to_pylist())


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ({"adapt": "of"}, "did you mean off"),
        ({"adapt": "sometimes"}, "there are: always, auto, off"),
        ({"adapt": True}, "there are: always, auto, off"),
        ({"adaptation": {"threshold": 0.2}}, "weft.Adaptation"),
    ],
)
def test_wrong_settings_are_refused(given: dict[str, object], hint: str) -> None:
    """With what would be right."""
    with pytest.raises(ConfigError) as error:
        weft.Session(**given)  # type: ignore[arg-type]
    assert hint in str(error.value)
