"""One session at a time writes a log, whatever happens to the others."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from weft.errors import StateError
from weft.ports.source import Part
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.lease import LEASE_SECONDS, Lease
from weft.runtime.log.values import BatchPlan, Manifest
from weft.storage.storage import Memory, storage_at

# A driver that commits batch after batch until it is refused, and says each one.
_DRIVER = """
import sys, time
from weft.errors import StateError
from weft.runtime.log import lease
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import Manifest
from weft.storage.storage import storage_at
lease.LEASE_SECONDS = 4.0  # more than a busy machine keeps a driver waiting
log = Checkpoint(storage_at(sys.argv[1]))
try:
    log.open({})
    print("open", flush=True)
    number = log.last()
    while True:
        number += 1
        manifest = Manifest(number, results={sys.argv[2]: number})
        log.commit(manifest)
        print("committed", number, flush=True)
        log.tidy(manifest)
        time.sleep(0.02)
except StateError as error:
    print("refused", error.message, flush=True)
"""


@pytest.fixture
def drivers() -> Iterator[list[subprocess.Popen[str]]]:
    """The drivers that a test has started, which end with it."""
    started: list[subprocess.Popen[str]] = []
    yield started
    for one in started:
        one.kill()
        one.communicate()


def drive(drivers: list[subprocess.Popen[str]], place: str, name: str) -> subprocess.Popen[str]:
    """Start a driver."""
    command = [sys.executable, "-c", _DRIVER, place, name]
    drivers.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}))
    return drivers[-1]


def line(driver: subprocess.Popen[str]) -> str:
    """The next line of a driver."""
    assert driver.stdout is not None
    return driver.stdout.readline().strip()


def until(driver: subprocess.Popen[str], word: str) -> list[str]:
    """The lines of a driver up to one that begins with a word."""
    found = [line(driver)]
    while not found[-1].startswith(word):
        assert found[-1], "the driver has ended"
        found.append(line(driver))
    return found


def test_a_driver_that_was_paused_past_its_lease_stops(s3: str, drivers: list[subprocess.Popen[str]]) -> None:
    """Two drivers would both commit, and results be lost or come twice."""
    first = drive(drivers, s3, "first")
    until(first, "committed 3")
    early = drive(drivers, s3, "early")
    assert line(early).startswith("refused")
    os.kill(first.pid, signal.SIGSTOP)
    time.sleep(4.5)
    second = drive(drivers, s3, "second")
    mine = until(second, "committed")
    os.kill(first.pid, signal.SIGCONT)
    theirs = until(first, "refused")
    mine += until(second, "committed 12")
    committed = [one.split()[1] for one in theirs if one.startswith("committed")]
    taken = [one.split()[1] for one in mine if one.startswith("committed")]
    assert not set(committed) & set(taken), "both committed a batch"
    second.kill()
    second.wait()
    log = Checkpoint(storage_at(s3))
    last = log.manifest(log.last())
    assert last is not None
    assert last.results == {"second": last.number}
    assert last.number >= 12


def test_a_driver_that_was_killed_is_followed_at_once(s3: str, drivers: list[subprocess.Popen[str]]) -> None:
    """A restart on the same machine would wait for a lease to run out."""
    first = drive(drivers, s3, "first")
    until(first, "committed 2")
    first.kill()
    first.wait()
    lease, began = Lease(storage_at(s3), 60.0), time.monotonic()
    lease.take()
    assert time.monotonic() - began < 30  # half a lease, since machines may be busy
    lease.close()


@pytest.mark.parametrize(
    "kind", ["disk", pytest.param("s3", marks=[pytest.mark.ci, pytest.mark.xdist_group("s3")])]
)
def test_a_second_session_is_refused_at_once(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Two sessions on one checkpoint would overwrite each other; and a user should not wait to be told."""
    place = request.getfixturevalue("s3") if kind == "s3" else str(tmp_path)
    one, other = Checkpoint(storage_at(place)), Checkpoint(storage_at(place))
    one.open({})
    began = time.monotonic()
    with pytest.raises(StateError, match="in use by another session"):
        other.open({})
    assert time.monotonic() - began < LEASE_SECONDS / 2  # machines may be busy
    one.close()
    other.open({})
    other.close()


def elsewhere(storage: Memory, seconds: float = 0.3) -> Lease:
    """A lease that says it is held on another machine."""
    lease = Lease(storage, seconds)
    lease.take()
    lease._ended.set()
    for name, data in list(storage.entries.items()):
        storage.entries[name] = json.dumps({**json.loads(data), "boot": "other", "host": "far"}).encode()
    return lease


def test_a_lease_of_another_machine_is_waited_for() -> None:
    """A driver restarted on another host would never begin, or begin beside the first."""
    storage = Memory()
    elsewhere(storage)
    follower, began = Lease(storage, 0.3), time.monotonic()
    follower.take()
    assert time.monotonic() - began >= 0.3
    assert follower.epoch == 2
    follower.close()


def test_a_lease_that_is_renewed_elsewhere_is_respected() -> None:
    """The same, while the first still runs there: its clock may be any."""
    storage, ended = Memory(), threading.Event()
    elsewhere(storage)

    def renew() -> None:
        while not ended.wait(0.05):
            data = json.loads(storage.entries["lease/1.json"])
            storage.entries["lease/1.json"] = json.dumps({**data, "time": data["time"] - 1000}).encode()

    thread = threading.Thread(target=renew)
    thread.start()
    try:
        with pytest.raises(StateError, match="of far holds its lease"):
            Lease(storage, 0.5).take()
    finally:
        ended.set()
        thread.join()


def test_a_lease_that_ran_out_untaken_goes_on() -> None:
    """A laptop that slept, or a store that was away for a minute, would end a session for nothing."""
    lease = Lease(Memory(), 0.2)
    lease.take()
    lease._ended.set()
    time.sleep(0.4)
    lease.check()
    lease.close()


class Told(Memory):
    """A storage that does something before it answers, and may be asked twice."""

    def put_if_absent(self, name: str, data: bytes, *, flush: bool = True) -> bool:
        """Put an entry; ``objects`` have what is done before, and whether the request is repeated."""
        before: Callable[[str], None] | None = self.objects.get("before")
        if before is not None:
            before(name)
        first = Memory.put_if_absent(self, name, data, flush=flush)
        return Memory.put_if_absent(self, name, data, flush=flush) if "twice" in self.objects else first


def log_with_lease(storage: Memory, seconds: float) -> Checkpoint:
    """A log in memory that has a lease nevertheless, which is not renewed by itself."""
    log = Checkpoint(storage)
    log._ownership.lease = lease = Lease(storage, seconds)
    lease.take()
    lease._ended.set()
    return log


def test_a_name_that_is_free_again_does_not_fool_a_late_driver() -> None:
    """A driver paused just before its commit would go on beside its follower, whose log has deleted that batch."""
    storage = Told()
    late = log_with_lease(storage, 0.2)

    def pause(name: str) -> None:
        if name.startswith("state"):
            time.sleep(0.4)
            storage.entries["lease/2.json"] = b"{}"  # a follower came, and is far ahead

    storage.objects["before"] = pause
    with pytest.raises(StateError, match="taken over"):
        late.commit(Manifest(0))


def test_a_plan_that_is_taken_back_late_does_not_replace_a_followers() -> None:
    """A driver paused while it takes input back would have a third session run by a plan that the second did not."""
    storage = Told()
    late = log_with_lease(storage, 0.2)
    plan = BatchPlan(0, 7, "blueprint", None, inputs={"a": (Part({"file": "x"}, 1),)})
    late.write_plan(plan)

    def pause(_: str) -> None:
        del storage.objects["before"]
        time.sleep(0.4)
        follower = log_with_lease(storage, 0.2)
        follower.settle_plans(-1)
        assert follower.plan(0) == plan

    storage.objects["before"] = pause
    with pytest.raises(StateError, match="taken over"):
        late.write_plan(plan.without_streams({}))
    third = Checkpoint(storage)
    assert third.plan(0) == plan
    third.clean()
    third.commit(Manifest(0))
    third.tidy(Manifest(2))
    assert not [name for name in storage.entries if name.startswith("plan/")], "entries of plans are left"


def test_a_plan_is_taken_back() -> None:
    """Input that cannot be read would be read again by every later session."""
    storage = Memory()
    log = log_with_lease(storage, 60.0)
    log.settle_plans(-1)
    plan = BatchPlan(0, 7, "blueprint", None, inputs={"a": (Part({"file": "x"}, 1),)})
    log.write_plan(plan)
    log.write_plan(plan.without_streams({}))
    log.close()
    for _ in range(2):  # sessions that find it, and end
        later = log_with_lease(storage, 60.0)
        later.settle_plans(-1)
        assert later.plan(0) == plan.without_streams({})
        assert later.plan(1) is None
        later.close()


def test_a_commit_whose_answer_was_lost_is_recognised() -> None:
    """A driver would take its own commit for another's and stop; another's commit it must not take for its own."""
    storage = Told()
    log = log_with_lease(storage, 60.0)
    storage.objects["twice"] = True
    log.commit(Manifest(0))
    with pytest.raises(StateError, match="by another session"):
        log.commit(Manifest(0, results={"other": 1}))
    log_of_follower = Checkpoint(storage)
    log_of_follower._ownership.lease.epoch = 2
    with pytest.raises(StateError, match=r"by another session|taken over"):
        log_of_follower.commit(Manifest(0))


def test_a_store_without_conditions_is_refused() -> None:
    """Two sessions could not be kept apart, and nobody would know."""

    class Careless(Memory):
        def put_if_absent(self, name: str, data: bytes, *, flush: bool = True) -> bool:
            self.put(name, data, flush=flush)
            return True

    with pytest.raises(StateError, match="If-None-Match"):
        Lease(Careless()).take()
