"""Plans are worked out elsewhere, for everybody one at a time, and given up in time."""

from __future__ import annotations

import random
import socket
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.shares import current
from tests.unit.service.api.running import JOIN, PIPELINE, place, running_hub, served, wait_for
from tests.unit.service.questions import Wait, self_join
from weft.adapting.background import GivenUpError
from weft.errors import QueryError, WeftError
from weft.logical.query.query import Query
from weft.optimizer.joint.methods import JointResult, optimise_all
from weft.service.api.guard import GuardSettings
from weft.service.api.tokens import read_tokens
from weft.service.client import Client, ServiceError
from weft.service.hub.hub import WAITING, PlanningLanes
from weft.service.hub.refusals import BusyError, ConflictError
from weft.service.hub.values import NewQuery

FULL, READ = "full-token-of-many-letters", "read-token-of-many-letters"
OTHER = "another-token-of-many-letters"


@pytest.fixture
def lanes(monkeypatch: pytest.MonkeyPatch) -> Iterator[PlanningLanes]:
    """Lanes with two processes, in which a question may take three seconds, and which find the questions of tests."""
    command = [sys.executable, "-m", "weft.adapting.background"]
    monkeypatch.setattr("weft.adapting.background.own_python", lambda _: command)
    monkeypatch.chdir(Path(__file__).parents[3])
    found = PlanningLanes(3.0, processes=2)
    yield found
    found.close()


def test_a_lane_takes_nothing_from_others(lanes: PlanningLanes) -> None:
    """One client's long questions made everybody wait."""
    refused = list[WeftError]()

    def ask() -> None:
        with pytest.raises(WeftError) as caught:
            lanes.ask(Wait(60, "late"), "greedy")
        refused.append(caught.value)

    greedy = [threading.Thread(target=ask) for _ in range(2 + WAITING)]
    for one in greedy:
        one.start()
    wait_for(lambda: any(isinstance(error, BusyError) for error in refused))
    assert lanes.ask(Wait(0, "soon"), "modest") == "soon"
    with pytest.raises(QueryError, match="it cannot be") as caught:
        lanes.ask(Wait(0, None), "modest")
    assert caught.value.hint == "do something else"
    lanes.close()
    for one in greedy:
        one.join(60)
    assert {type(error) for error in refused} == {BusyError, GivenUpError}


@pytest.mark.ci
def test_a_question_is_given_up_when_it_takes_too_long_or_nobody_waits(lanes: PlanningLanes) -> None:
    """And the next one is answered all the same."""
    with pytest.raises(GivenUpError, match="cannot be planned within 3 seconds"):
        lanes.ask(Wait(60, "late"))
    gone = threading.Event()
    threading.Timer(0.3, gone.set).start()
    with pytest.raises(GivenUpError, match="nobody waits"):
        lanes.ask(Wait(60, "late"), "", gone)
    assert lanes.ask(Wait(0, "soon")) == "soon"


def test_every_question_is_answered_or_given_up(lanes: PlanningLanes) -> None:
    """Whoever asks, however long it takes, and whenever askers go."""
    rng, wrong = random.Random(current().seed), list[str]()

    def live(lane: str, wishes: list[tuple[float, str, float | None]]) -> None:
        for seconds, word, leaves in wishes:
            gone = threading.Event()
            if leaves is not None:
                threading.Timer(leaves, gone.set).start()
            try:
                if lanes.ask(Wait(seconds, word), lane, gone) != word:
                    wrong.append(f"{lane} got another answer")
            except GivenUpError:
                if leaves is None and seconds < 1:
                    wrong.append(f"{lane}: {word} was given up")

    threads = []
    for lane in ("one", "two", "three"):
        wishes = [
            (rng.choice((0, 0, 0.1, 60)), f"{lane} {number}", rng.choice((None, None, None, 0.2)))
            for number in range(5)
        ]
        threads.append(threading.Thread(target=live, args=(lane, wishes)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert not wrong
    assert not lanes._busy


@pytest.mark.ci
def test_a_join_of_thirty_inputs_blocks_nobody(tmp_path: Path) -> None:
    """A token that may only read had planning stand still for everybody, also after it had gone."""
    place(tmp_path)
    text = PIPELINE.replace("result_rows: 1000", "result_rows: 1000, plan_seconds: 3")
    tokens = GuardSettings(read_tokens((), {"WEFT_TOKEN": FULL, "WEFT_READ_TOKEN": READ}), None, 1e6, 10**6)
    with running_hub(tmp_path, text) as hub, served(hub, tokens) as (url, _):
        full, said = Client(url, token=FULL), list[str]()
        assert sorted(full.plan(JOIN).adds) == ["a", "b"]

        def attack() -> None:
            with pytest.raises(ServiceError) as caught:
                Client(url, token=READ).plan(self_join(30))
            said.append(str(caught.value))

        attacker = threading.Thread(target=attack)
        attacker.start()
        wait_for(lambda: bool(hub._lanes._busy))
        assert sorted(full.plan(JOIN).adds) == ["a", "b"]
        assert full.create(JOIN, name="new").name == "new"
        attacker.join(120)
        assert "cannot be planned within 3 seconds" in said[0]


def test_a_plan_whose_client_has_gone_is_given_up(tmp_path: Path) -> None:
    """It went on for minutes."""
    place(tmp_path)
    text = PIPELINE.replace("result_rows: 1000", "result_rows: 1000, plan_seconds: 600")
    with running_hub(tmp_path, text) as hub, served(hub) as (url, _):
        host, port = url.removeprefix("http://").split(":")
        body = b'{"sql": "' + self_join(30).encode() + b'"}'
        head = f"POST /api/v1/queries/plan HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n"
        with socket.create_connection((host, int(port))) as client:
            client.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
            wait_for(lambda: bool(hub._lanes._busy))
            time.sleep(0.3)
            assert hub._lanes._busy
        wait_for(lambda: not hub._lanes._busy, 30)


@pytest.mark.ci
def test_a_query_that_is_slow_to_plan_holds_up_nobody(tmp_path: Path) -> None:
    """It was planned in the service's process: batches and all other requests waited for it, up to a minute."""
    here = place(tmp_path)
    text = PIPELINE.replace("result_rows: 1000", "result_rows: 1000, plan_seconds: 10")
    (tmp_path / "tokens").write_text(f"{FULL}\n{OTHER}\n")
    tokens = GuardSettings(read_tokens([tmp_path / "tokens"], {}), None, 1e6, 10**6)
    with running_hub(tmp_path, text) as hub, served(hub, tokens) as (url, _):
        slow, quick, said = Client(url, token=FULL), Client(url, token=OTHER), list[str]()

        def ask() -> None:
            with pytest.raises(ServiceError) as caught:
                slow.create(self_join(30), name="slow")
            said.append(str(caught.value))

        asking = threading.Thread(target=ask)
        asking.start()
        wait_for(lambda: bool(hub._lanes._busy))
        assert quick.create(JOIN, name="small").name == "small"
        assert quick.create(self_join(8), name="large").name == "large"
        here.pair(1)
        wait_for(lambda: quick.query("large").results == 1)
        asking.join(120)
        assert "cannot be planned within 10 seconds" in said[0]
        assert [query.name for query in quick.queries()] == ["q", "small", "large"]


def test_the_plan_of_a_lane_is_the_one_that_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not worked out a second time in the service's process, neither alone nor beside the others."""
    planned_here = list[int]()

    def counted(queries: Mapping[str, Query], *given: Any, **more: Any) -> JointResult:
        planned_here.extend(len(query.inputs) for query in queries.values())
        return optimise_all(queries, *given, **more)

    here = place(tmp_path)
    with running_hub(tmp_path) as hub:
        here.pair(1)
        wait_for(lambda: hub.query("q").results == 1)
        monkeypatch.setattr("weft.adapting.planner.optimise_all", counted)
        hub.create(NewQuery(self_join(8), "first"))
        hub.create(NewQuery("SELECT f.k FROM (" + self_join(7) + ") AS f, b [RANGE 1 HOUR] WHERE f.k = b.k"))
        here.put("a", "2,x,2024-01-01T00:00:01Z")
        wait_for(lambda: hub.query("first").results == 1)
        assert max(planned_here, default=0) < 7
        here.put("a", "3,x,2024-01-01T00:00:02Z")
        wait_for(lambda: hub.query("first").results == 2, 30)
        assert hub.query("first").status == "running"
        assert "a0" in hub.explain("first")


def test_names_that_are_taken_are_refused_before_anything_is_planned(tmp_path: Path) -> None:
    """Whoever asks hears at once, not after the seconds that planning may take."""
    place(tmp_path)
    with running_hub(tmp_path) as hub:
        with pytest.raises(ConflictError, match="q"):
            hub.create(NewQuery(self_join(30), "q"))
        assert not hub._lanes._busy
