"""What is remembered of batches: without it, progress is slow to ask for, or fills the memory."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

import weft
from tests.unit.plan.workloads import PAIR, query
from tests.unit.runtime.joins import SECOND
from tests.unit.runtime.workload import session
from weft.plan.physical.graph import Member, PhysicalGraph, Visibility
from weft.runtime.observe import progress
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.progress import History, complete_from
from weft.testing import LocalRun

LATER = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=7)


@pytest.fixture(scope="module")
def graph() -> PhysicalGraph:
    return session().query("SELECT * FROM v, w WHERE v.vid = w.vid", name="q").graph


def batch(number: int) -> BatchMetrics:
    return BatchMetrics(number, (), {}, {}, {}, 0, {"q": 0}, {}, ())


def ran(graph: PhysicalGraph, graphs: int) -> History:
    """A history of one batch by each of so many graphs, asked for the part of each."""
    history = History()
    for number in range(graphs):
        own = replace(graph)
        history.add(own, batch(number))
        history.part_in(own, "q", ())
    return history


def test_a_part_is_worked_out_once(graph: PhysicalGraph) -> None:
    history = ran(graph, 2)
    assert history.part(0, "q", ()) is history.part(0, "q", ())
    assert history.part(0, "q", ()) is not history.part(1, "q", ())


def test_a_part_is_under_the_names_that_are_asked_for(graph: PhysicalGraph) -> None:
    history = ran(graph, 1)
    other = history.part_in(history.graphs[0], "q", (("v", "videos"), ("w", "views")))
    assert other is not None
    assert other.aliases == {"v": "videos", "w": "views"}
    same = history.part_in(history.graphs[0], "q", ())
    assert same is not None
    assert same.aliases == {"v": "v", "w": "w"}


def test_a_batch_that_is_being_added_does_not_count_yet(graph: PhysicalGraph) -> None:
    """Whoever asks for a query while another one stops would be refused it, for a part that the new graph lacks."""
    history = ran(graph, 1)
    history.graphs[1] = session().query("SELECT * FROM v, w WHERE v.vid = w.vid", name="other").graph
    assert set(history.since_planned({})) == {"q"}


def test_forgotten_graphs_have_no_parts(graph: PhysicalGraph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "GRAPHS", 2)
    history = ran(graph, 4)
    assert [history.part(number, "q", ()) is None for number in range(4)] == [True, True, False, False]


def test_parts_beyond_the_room_for_them_are_worked_out_again(
    graph: PhysicalGraph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "PARTS", 1)
    history = ran(graph, 2)
    first, second = history.part(0, "q", ()), history.part(1, "q", ())
    history.add(replace(graph), batch(2))
    assert history.part(1, "q", ()) is second
    assert history.part(0, "q", ()) is not first
    assert history.part(0, "q", ()) == first


@pytest.mark.parametrize("backfill", [False, True])
@pytest.mark.parametrize("text", [PAIR, "SELECT v.x FROM v"])
def test_results_are_complete_from_where_all_inputs_are_seen(text: str, backfill: bool) -> None:
    """Whoever relies on results would else take what is left of the past for all of it."""
    requests = query(text)
    visibilities = [
        Visibility(alias, 5, None, (5 + n) * SECOND) for n, alias in enumerate(requests.aliases, 2)
    ]
    member = Member("new", requests, 0, 5, tuple(visibilities), backfill=backfill)
    needs_the_past = len(requests.aliases) > 1 or backfill
    last = LATER + timedelta(seconds=len(requests.aliases) - 1)
    assert complete_from(member) == (last if needs_the_past else None)
    assert complete_from(Member("first", requests, 0, backfill=backfill)) is None


def test_a_batch_is_logged_for_the_queries_that_were_in_it(caplog: pytest.LogCaptureFixture) -> None:
    """A batch that is committed while the next one has begun with another query would end the session."""
    made = session()
    made.query("SELECT v.vid FROM v, w WHERE v.vid = w.vid", name="old", sink=weft.to_memory())
    run = LocalRun(made)
    run.batch({})
    before = run._loop.last_batch
    assert before is not None
    made.query("SELECT w.vid FROM v, w WHERE v.vid = w.vid", name="new", sink=weft.to_memory())
    run.batch({})
    caplog.clear()  # of what the batches above said, where another test has asked for all that is said
    with caplog.at_level(logging.INFO, logger="weft"):
        run._loop._committed(before)
    assert [json.loads(record.getMessage())["query"] for record in caplog.records] == ["old"]
