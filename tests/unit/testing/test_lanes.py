"""Tests of a lane are run by one worker, while the others run the rest."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.lanes import LaneScheduling, write_lanes
from xdist.remote import Producer

TESTS = ["a", "b", "c", "d", "e", "f", "g", "h"]
LANE = ["b", "d", "e", "h"]


@dataclass(eq=False)
class Worker:
    """A worker that notes which tests it is to run."""

    gateway: Any = field(default_factory=lambda: SimpleNamespace(id="gw"))
    told: list[str] = field(default_factory=list)
    shutting_down: bool = False

    def send_runtest_some(self, places: list[int]) -> None:
        self.told += [TESTS[place] for place in places]

    def shutdown(self) -> None:
        self.shutting_down = True


def scheduling(folder: Path, workers: list[Worker]) -> LaneScheduling:
    """What hands the tests out to these workers."""
    (folder / "lanes").write_text(json.dumps(dict.fromkeys(LANE, "spark")))
    option = SimpleNamespace(loadscopereorder=True)
    config: Any = SimpleNamespace(option=option, getvalue=lambda _: ["popen"] * len(workers))
    made = LaneScheduling(config, Producer("lanes", enabled=False), folder / "lanes")
    for worker in workers:
        made.add_node(worker)
        made.add_node_collection(worker, TESTS)
    return made


def test_one_worker_has_the_lane_and_then_helps_the_others(tmp_path: Path) -> None:
    """With the tests of a lane on every worker, each of them would start a Spark."""
    first, second = workers = [Worker(), Worker()]
    made = scheduling(tmp_path, workers)
    made.schedule()
    assert first.told == LANE
    assert second.told == ["a", "c"]
    for name in LANE:
        made.mark_test_complete(first, TESTS.index(name))
    assert first.told[len(LANE) :] == ["f", "g"]
    assert sorted(first.told + second.told) == TESTS


def test_the_lanes_are_those_of_the_marks(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    """What a worker notes is what the controller hands out by."""
    request.node.add_marker(pytest.mark.xdist_group("spark"))
    write_lanes(tmp_path / "lanes", [request.node])
    assert json.loads((tmp_path / "lanes").read_text()) == {request.node.nodeid: "spark"}
