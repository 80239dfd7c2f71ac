"""A service whose process dies between any two writes to its checkpoint: what it said before must hold afterwards."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from unittest.mock import patch

from tests.unit.service.api.running import PIPELINE, Place, place, running_hub, wait_for
from weft.errors import StateError, WeftError
from weft.service.hub.hub import SessionHub
from weft.service.hub.values import NewQuery
from weft.storage.storage import LocalDisk

QUERIES = (
    "SELECT a.k, b.ts FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k",
    "SELECT a.k, a.x FROM a WHERE a.k > 2",
    "SELECT b.k FROM b WHERE b.k < 5",
    "SELECT a.x, c.x AS y FROM a [RANGE 1 HOUR], a c [RANGE 1 HOUR] WHERE a.k = c.k",
    "SELECT d.k, b.ts FROM (SELECT k, ts FROM a WHERE k > 1) d [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE d.k = b.k",
)
NAMES = ("one", "two", "three", "four")
EMPTY = PIPELINE.replace(
    "queries:\n  q: SELECT a.k, a.x FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k\n", ""
)


class DeadError(StateError):
    """The process is dead: nothing is written any more. What is locked is let go of, as the system would."""


@dataclass
class Death:
    """When the process dies: before so many more writes and deletions; None: it lives."""

    left: int | None = None

    def step(self) -> None:
        """One write or deletion."""
        if self.left is not None:
            if self.left <= 0:
                raise DeadError("the process is dead")
            self.left -= 1


@contextmanager
def mortal(death: Death) -> Iterator[None]:
    """Have everything that is written to a directory pass by the death."""
    writing, delete = LocalDisk._writing, LocalDisk.delete

    @contextmanager
    def write(disk: LocalDisk, name: str, data: bytes, flush: bool) -> Iterator[tuple[str, str]]:
        death.step()
        with writing(disk, name, data, flush) as found:
            yield found

    def remove(disk: LocalDisk, name: str) -> None:
        death.step()
        delete(disk, name)

    with patch.object(LocalDisk, "_writing", write), patch.object(LocalDisk, "delete", remove):
        yield


@dataclass
class Story:
    """What was asked of a service, and what it acknowledged; ``runs`` has the text of every query that must run.

    ``unsure`` are the names of which the last request was not answered: both may be, that it was heard or not.
    """

    root: Path
    rng: random.Random
    runs: dict[str, str] = field(default_factory=dict)
    unsure: set[str] = field(default_factory=set)
    rows: int = 0

    @property
    def here(self) -> Place:
        """The directory with the inputs."""
        return place(self.root)

    def live(self, steps: int, death: Death) -> None:
        """A life of the service: it is asked for things until it dies or, at the end, is killed."""
        death.left = None
        with suppress(DeadError), running_hub(self.root, EMPTY) as hub:
            self.check(hub)
            death.left = self.rng.choice((None, self.rng.randrange(60)))
            for _ in range(steps):
                self._step(hub)
            death.left = 0
        death.left = None

    def _step(self, hub: SessionHub) -> None:
        kind, name = self.rng.choice(("create", "create", "stop", "input", "wait")), self.rng.choice(NAMES)
        if kind == "input":
            self.rows += 1
            self.here.pair(self.rows % 7)
        elif kind == "wait":
            before = hub.health().batch
            with suppress(AssertionError):
                wait_for(lambda: hub.health().batch != before, seconds=0.1)
        elif kind == "create":
            text = self.rng.choice(QUERIES)
            if self._ask(name, lambda: hub.create(NewQuery(text, name))):
                self.runs[name] = text
        elif name in self.runs and self._ask(name, lambda: hub.stop_query(name)):
            del self.runs[name]

    def _ask(self, name: str, request: object) -> bool:
        """Whether a request was acknowledged; one that was refused changes nothing."""
        try:
            request()  # type: ignore[operator]
        except DeadError:
            self.unsure.add(name)
            raise
        except WeftError:
            return False
        self.unsure.discard(name)
        return True

    def check(self, hub: SessionHub) -> None:
        """Every query that was acknowledged is there, and every stop is in force, at once or with the next batch."""
        found = {one.name: one for one in hub.queries()}
        for name in NAMES:
            runs = name in found and found[name].status in ("waiting", "running")
            if name in self.unsure:
                self.runs.pop(name, None)
                if runs:
                    self.runs[name] = found[name].sql
            elif name in self.runs:
                assert runs, f"{name} was acknowledged, and is gone: {found.get(name)}"
                assert found[name].sql == str(hub.session.parse(self.runs[name]))
            elif runs:
                wait_for(lambda name=name: hub.query(name).status == "stopped")  # type: ignore[misc]
        self.unsure.clear()
