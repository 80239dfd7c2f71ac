"""Watermarks decide what is late and what is forgotten; a wrong one loses results."""

from __future__ import annotations

import pytest

from tests.unit.runtime.joins import SECOND, graph
from weft.plan.physical.graph import PhysicalGraph
from weft.runtime.model.batch_order import BatchOrder, Count
from weft.runtime.model.watermarks import Watermarks, connected_streams
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.state.expiry import forgettable

PAIR = "SELECT v.x FROM v [RANGE 10 SECONDS], w [RANGE 4 SECONDS] WHERE v.vid = w.vid"


@pytest.fixture
def pair() -> PhysicalGraph:
    return graph(PAIR, v="2 seconds")


def test_a_watermark_is_the_newest_time_less_the_lateness(pair: PhysicalGraph) -> None:
    """And it never falls."""
    marks = Watermarks().advance(connected_streams([pair]), {"v": 10 * SECOND, "w": 7 * SECOND}, 0)
    assert marks.marks == {"v": 8 * SECOND, "w": 7 * SECOND}
    assert marks.advance(connected_streams([pair]), {"v": 5 * SECOND}, 0).mark_of("v") == 8 * SECOND


def test_without_event_time_the_watermark_is_the_arrival() -> None:
    """What comes next comes now or later."""
    joined = graph("SELECT u.x FROM u [RANGE 1 SECOND], w WHERE u.vid = w.vid")
    assert Watermarks().advance(connected_streams([joined]), {}, 3 * SECOND).marks == {"u": 3 * SECOND}


def test_an_idle_source_does_not_hold_the_others_back() -> None:
    """It is taken along once it has been silent for longer than allowed, not before."""
    streams = connected_streams([graph(PAIR, v="2 seconds", idle_after="30 seconds")])
    marks = Watermarks().advance(streams, {"v": 10 * SECOND, "w": 1 * SECOND}, 0)
    still = marks.advance(streams, {"v": 50 * SECOND}, 30 * SECOND)
    assert still.mark_of("w") == 1 * SECOND
    assert still.advance(streams, {"v": 60 * SECOND}, 31 * SECOND).mark_of("w") == 58 * SECOND


def test_a_source_without_event_time_is_never_idle() -> None:
    """Its next tuple is of now, however silent it was and wherever the others are: they must remember till then."""
    sql = "SELECT u.x FROM u [RANGE 1 SECOND], w WHERE u.vid = w.vid"
    streams = connected_streams([graph(sql, idle_after="1 second")])
    marks = Watermarks().advance(streams, {"u": 0, "w": 50 * SECOND}, 0)
    later = marks.advance(streams, {"w": 60 * SECOND}, 9 * SECOND)
    assert later.marks == {"u": 9 * SECOND, "w": 60 * SECOND}


def test_an_idle_source_is_taken_along_by_those_it_is_joined_with_alone() -> None:
    """Other queries' streams may be of another year."""
    pair = "SELECT v.x FROM v [RANGE 1 SECOND], w [RANGE 1 SECOND] WHERE v.vid = w.vid"
    alone = graph("SELECT c.t FROM c", idle_after="30 seconds")
    streams = connected_streams([graph(pair, idle_after="30 seconds"), alone])
    assert [[stream.name for stream in some] for some in streams] == [["c"], ["v", "w"]]
    marks = Watermarks().advance(streams, {"v": 10 * SECOND, "w": 1 * SECOND, "c": 99 * SECOND}, 0)
    later = marks.advance(streams, {"v": 20 * SECOND, "c": 99 * SECOND}, 31 * SECOND)
    assert later.marks == {"v": 20 * SECOND, "w": 20 * SECOND, "c": 99 * SECOND}


def test_when_all_are_idle_nothing_moves() -> None:
    """Silence is no reason to forget."""
    streams = connected_streams([graph(PAIR, idle_after="1 second")])
    marks = Watermarks().advance(streams, {"v": 10 * SECOND, "w": 1 * SECOND}, 0)
    later = marks.advance(streams, {}, 99 * SECOND)
    assert later.marks == marks.marks


def test_a_store_forgets_what_no_partner_on_time_can_reach(pair: PhysicalGraph) -> None:
    """v lives 10 s beyond the watermark of w, w 4 s beyond that of v."""
    program, batch_order = ExecutableGraph(pair), BatchOrder(0, ("v", "w"), 1)
    marks = Watermarks({"v": 100 * SECOND, "w": 50 * SECOND})
    assert forgettable(program.stores["v"], marks, batch_order).since == 40 * SECOND
    assert forgettable(program.stores["w"], marks, batch_order).since == 96 * SECOND


def test_nothing_is_forgotten_for_a_partner_not_yet_seen(pair: PhysicalGraph) -> None:
    """Its first tuple may be as old as it likes."""
    program, batch_order = ExecutableGraph(pair), BatchOrder(0, ("v", "w"), 1)
    assert forgettable(program.stores["v"], Watermarks({"v": 5}), batch_order).since is None


def test_a_count_window_forgets_by_number() -> None:
    """Of 100 tuples, the last 3 are seen."""
    program = ExecutableGraph(graph("SELECT v.x FROM v [ROWS 3], w WHERE v.vid = w.vid"))
    batch_order = BatchOrder(4, ("v", "w"), 1, {"v": Count(90, 10)})
    assert forgettable(program.stores["v"], Watermarks(), batch_order).since == 97
    assert forgettable(program.stores["w"], Watermarks(), batch_order).since is None
