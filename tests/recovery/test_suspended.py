"""A query whose sink cannot take its results is suspended: nothing is lost or repeated, and the others go on."""

from __future__ import annotations

import random
import traceback
from collections import Counter
from collections.abc import Container
from pathlib import Path

import pytest

from tests.equivalence.merging import random_merging
from tests.recovery.fault_world import FORMATS, LATER, QUERIES, World
from tests.recovery.full_disks import FullDisks
from tests.shares import seeds
from weft.errors import WeftError
from weft.optimizer.joint.methods import METHODS
from weft.runtime.loop.loop import Loop

STORIES = 8
CHAPTERS = 5


class _Story:
    """A session some of whose sinks fail now and then, while queries come and go and processes end."""

    def __init__(self, root: Path, seed: int, disks: FullDisks) -> None:
        self.rng = rng = random.Random(f"suspended {seed}")
        names = tuple(sorted(rng.sample(list(QUERIES), rng.randint(1, 4))))
        overlapping, partitions = rng.random() < 0.6, rng.randint(1, 3)
        self.world = World(root, rng, names, overlapping, partitions, rng.choice(METHODS), lambda *_: None)
        self.world.blocking = True
        self.disks, self.root = disks, root
        self.lines = [f"seed {seed}: {names}, {partitions} partitions, {overlapping=}"]
        self.outcomes = Counter[str]()

    def run(self) -> None:
        """Tell it; an `AssertionError` if anything is wrong."""
        self.world.start()
        for last in (*[False] * (CHAPTERS - 1), True):
            self._write()
            self._drain()
            self._check(())
            self._add_query()
            self._fill()
            self.world.ending = last
            self._go_on()
            self._free()
            self._go_on(last_time=True)
            self._check(())
        self.world.stop()

    def _write(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self.world.write(self.rng.choice(list(FORMATS)))

    def _add_query(self) -> None:
        requests = self.world.session._registered.requests
        more = [name for name in QUERIES if name not in (*requests, *LATER)] if "chain" in requests else []
        if more and self.rng.random() < 0.3:
            self.lines.append(f"add {more[0]}")
            self.world.add(more[0])

    def _fill(self) -> None:
        names = list(self.world.session._registered.requests)
        full = self.rng.sample(names, self.rng.randint(1, len(names)))
        self.disks.fill({self.root / "out" / name for name in full}, self.rng)
        self.lines.append(f"full: {full}, {sorted(self.disks.steps)}")
        streams = [name for name in FORMATS if any(name not in self._streams(one) for one in names)]
        if streams and self.rng.random() < 0.4:
            self.disks.unreadable = {self.rng.choice(streams)}
            self.lines.append(f"unreadable: {self.disks.unreadable}")

    def _streams(self, query: str) -> set[str]:
        return {one.stream.name for one in self.world.session.parse(QUERIES[query]).inputs}

    def _free(self) -> None:
        self.disks.free()
        self.lines.append("free")

    def _go_on(self, *, last_time: bool = False) -> None:
        """More input comes, and the process may end and begin again."""
        for _ in range(1 if last_time else self.rng.randint(1, 3)):
            if not self.world.ending:
                self._write()
            if self.rng.random() < 0.4:
                self.lines.append("it starts again")
                self.world.stop()
                self._start()
            if self.world.ending:
                self._loop.end_input()
            self._drain()
            full = [folder.name for folder in self.disks.full]
            suspended = self._loop.suspended()
            for name, one in suspended.items():
                if name in self._loop.delivery.suspended:
                    assert name in full, f"suspended without a cause: {one}"
                    assert f"out/{name}" in one.reason, f"its place is not named: {one.reason}"
                    self.outcomes["suspended"] += 1
                else:
                    assert self._streams(name) & self.disks.unreadable, f"suspended without a cause: {one}"
                    assert "cannot be read" in one.reason
                    self.outcomes["blocked"] += 1
            self._check(suspended)

    def _start(self) -> None:
        """Start, unless a sink that was not suspended yet cannot be opened: then start when it can be."""
        try:
            self.world.start()
        except WeftError as error:
            self.lines.append(f"it does not start: {error.message}")
            if not self.disks.full:
                raise
        else:
            return
        self.outcomes["refused at the start"] += 1
        self._free()
        self.world.start()

    @property
    def _loop(self) -> Loop:
        assert self.world.loop is not None
        return self.world.loop

    def _drain(self) -> None:
        self.world.drain()
        loop = self._loop
        loop.give_kept(at_once=True)
        if loop.delivery.has_resumed:
            self.outcomes["resumed"] += 1
            self.world.drain()

    def _check(self, suspended: Container[str]) -> None:
        """All is right; of queries that are suspended, some results may be missing, and none is wrong."""
        for name, (too_many, missing) in self.world.wrong().items():
            assert not too_many, f"{name} has rows that are too many: {too_many}"
            assert name in suspended, f"{name} lacks rows: {missing}"


@pytest.mark.ci
def test_results_that_a_sink_cannot_take_are_given_when_it_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, a folder without permission: every result is given in the end, exactly once."""
    disks, outcomes, wrong = FullDisks(monkeypatch), Counter[str](), list[str]()
    for number in seeds(STORIES):
        story = _Story(tmp_path / str(number), number, disks)
        try:
            with random_merging(number):
                story.run()
        except Exception:
            wrong.append("\n".join([*story.lines, traceback.format_exc()]))
        finally:
            disks.free()
            story.world.stop()
        outcomes += story.outcomes
    print(dict(sorted(outcomes.items())))
    assert not wrong, f"{len(wrong)} stories went wrong:\n" + "\n\n".join(wrong[:3])
    assert outcomes["suspended"] > 0
    assert outcomes["resumed"] > 0
    assert outcomes["blocked"] > 0
