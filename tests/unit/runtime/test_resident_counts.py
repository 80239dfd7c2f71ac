"""How many resident tasks there are on a cluster, after losses and when executors come."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from weft.runtime.loop.executor import NoRoomError
from weft.runtime.spark import resident
from weft.runtime.spark.resident import DriverAddress, ResidentExecutor, TaskLostError
from weft.runtime.spark.resident_stage import Stage
from weft.runtime.wire.channel import Channel


class Cluster:
    """A cluster of so many slots, as far as an executor asks it."""

    def __init__(self, slots: int) -> None:
        self.slots, self.lost = slots, 0
        self.tried: list[tuple[int, float]] = []  # tasks, and how long they were waited for
        self.rooms: list[Any] = []

    def stage(self, _spark: Any, _setup: Any, tasks: int, place: DriverAddress) -> Any:
        self.tried.append((tasks, place.patience))
        if tasks > self.slots:
            raise NoRoomError("no room")
        self.lost = 0
        return SimpleNamespace(tasks=tasks, count_lost=lambda: self.lost, end=lambda **_: None)

    def room(self, _spark: Any, tasks: int) -> Any:
        made = SimpleNamespace(tasks=tasks, is_found=False, close=lambda: None)
        self.rooms.append(made)
        return made


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    made = Cluster(8)
    monkeypatch.setattr(resident, "Stage", made.stage)
    monkeypatch.setattr(resident, "FreeSlots", made.room)
    monkeypatch.setattr(resident, "tasks_on_cluster", lambda _, limit: min(limit, made.slots))
    monkeypatch.setattr(resident, "LOOKS", 0.0)
    return made


def executor(tasks: int = 8, limit: int | None = 12) -> ResidentExecutor:
    spark: Any = None
    return ResidentExecutor(spark, tasks, lambda _: None, DriverAddress("host"), limit)


def start(one: ResidentExecutor) -> int:
    setup: Any = None
    one.start(setup)
    return one.tasks


def test_those_that_are_left_go_on_at_once_and_all_when_there_is_room(cluster: Cluster) -> None:
    """A batch would wait until the lost executor is replaced, or tasks would stay few for ever."""
    one = executor()
    assert start(one) == 8
    cluster.slots, cluster.lost = 6, 2
    assert start(one) == 6
    assert [count for count, _ in cluster.tried] == [8, 6]
    (room,) = cluster.rooms
    assert room.tasks == 2
    assert not one.is_outgrown
    assert start(one) == 6  # as when a query comes with a new stream
    cluster.slots, cluster.rooms[-1].is_found = 8, True
    assert one.is_outgrown
    assert start(one) == 8
    assert not one.is_outgrown


def test_a_failure_without_a_loss_leaves_their_number(cluster: Cluster) -> None:
    one = executor()
    assert [start(one), start(one)] == [8, 8]
    assert not cluster.rooms


def test_executors_that_are_added_get_tasks_up_to_the_limit(cluster: Cluster) -> None:
    """Machines that join a cluster would idle."""
    one = executor()
    start(one)
    for slots, tasks in ((10, 10), (20, 12)):
        cluster.slots = slots
        assert one.is_outgrown
        assert start(one) == tasks
    assert not one.is_outgrown
    fixed = executor(limit=None)
    cluster.slots = 8
    start(fixed)
    cluster.slots = 20
    assert not fixed.is_outgrown


def test_half_as_many_are_tried_where_spark_has_less_room_than_thought(cluster: Cluster) -> None:
    """An executor behind a cut cable is taken for alive by Spark."""
    one = executor()
    start(one)
    cluster.slots, cluster.lost = 3, 1
    assert start(one) == 3
    assert cluster.tried[1:] == [(count, resident.RESTART_PATIENCE) for count in (7, 3)]
    cluster.slots, cluster.lost = 0, 1
    with pytest.raises(NoRoomError):
        start(one)
    assert cluster.tried[-2:] == [(2, resident.RESTART_PATIENCE), (1, DriverAddress().patience)]


def test_no_room_at_all_is_waited_for_only_by_who_has_run(cluster: Cluster) -> None:
    """A session that cannot begin says so; one that has lost all executors goes on when they are back."""
    cluster.slots = 0
    with pytest.raises(TaskLostError, match="could not be started"):
        start(executor())
    cluster.slots = 8
    one = executor()
    start(one)
    cluster.slots, cluster.lost = 0, 8
    for _ in range(3):
        with pytest.raises(NoRoomError):
            start(one)
    cluster.slots = 8
    assert start(one) >= 1


@pytest.fixture
def pairs() -> Iterator[list[tuple[socket.socket, socket.socket]]]:
    made = [socket.socketpair() for _ in range(4)]
    yield made
    for pair in made:
        for end in pair:
            end.close()


def test_tasks_whose_end_is_closed_are_counted(pairs: list[tuple[socket.socket, socket.socket]]) -> None:
    stage = Stage.__new__(Stage)
    stage.channels = [Channel(mine) for mine, _ in pairs]
    assert stage.count_lost() == 0
    pairs[0][1].sendall(b"an answer that nobody has read")
    pairs[1][1].close()
    pairs[3][1].sendall(b"the last words")
    pairs[3][1].close()
    assert stage.count_lost() == 2
