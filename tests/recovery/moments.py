"""When to kill: at random, or just when a file of a batch's path through the checkpoint and the sinks appears.

The windows that matter (results in place, manifest not yet) last milliseconds, so waiting for their files is the way to
hit them. A change of queries has windows of its own, before the batch with which it takes effect.
"""

from __future__ import annotations

import json
import random
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.recovery.processes import PATIENCE, POLL, Run

# In the order in which a batch passes them.
EVENTS = {
    "offset": "ck/spark/offsets/{n}",
    "plan": "ck/plan/{n}.json",
    "bucket": "ck/state/buckets/{n}-*",
    "part": "out/*/_weft/pending/{n}/*",
    "staged": "out/*/_weft/staged/{n}",
    "results": "out/*/batch={n}",
    "letters": "ck/dead_letters/batch-{n:012d}.jsonl",
    "manifest": "ck/state/{n}.json",
    "commit": "ck/spark/commits/{n}",
}
_ONCE = ("offset", "plan")  # a replay does not write them again

# In the order in which a change passes them, of whichever batch. Where stored state is laid out anew for it, the plan
# says so ("relay"), and buckets ("laid") and results of the past ("answered") are written before the batch's own.
CHANGES = {
    "blueprint": "ck/blueprints/*.json",
    "relay": "ck/plan/*.json",
    "laid": "ck/state/buckets/*-*",
    "answered": "out/*/_weft/pending/*/*",
    "relaid": "ck/relaid/*.json",
}
_RELAYED = ("relay", "laid", "answered")
_SOON = 2  # batches within which there should be a change


@dataclass(frozen=True, slots=True)
class Moment:
    """So many seconds after something is seen of the batch that is so many after the last one committed."""

    event: str
    ahead: int
    delay: float

    @classmethod
    def random(cls, rng: random.Random, changing: bool = False) -> Moment:
        """Any moment of a batch's life: every event, at once or a little later, or a random time after its plan."""
        ahead = rng.choice((0, 0, 1))
        delay = rng.choice((0.0, 0.0, 0.002, 0.01, 0.05)) * rng.random()
        if changing and rng.random() < 0.6:
            long = rng.random() < 0.3  # into the job that follows
            return cls(rng.choice(tuple(CHANGES)), _SOON, rng.uniform(0, 1) if long else delay)
        if rng.random() < 0.3:
            return cls("plan", ahead, rng.uniform(0, 1))
        return cls(rng.choice(tuple(EVENTS)), ahead, delay)

    def wait(self, root: Path, run: Run) -> bool:
        """Wait for it; whether it came before the run ended. What a batch does not have is not waited for."""
        batch, deadline = last_batch(root) + 1 + self.ahead, time.monotonic() + PATIENCE
        event = "bucket" if self.event in _ONCE and _files(root, self.event, batch) else self.event
        before = _files(root, event, batch)
        while not _files(root, event, batch) - before and last_batch(root) <= batch:
            if run.code is not None:
                return False
            if time.monotonic() > deadline:
                raise TimeoutError(f"batch {batch} does not come to its {event}\n{run.tail()}")
            time.sleep(POLL)
        time.sleep(self.delay)
        return run.code is None


def _files(root: Path, event: str, batch: int) -> set[tuple[str, int, int]]:
    """What there is of an event; a file that was replaced is another one."""
    found = set()
    relayed = _relayed(root) if event in _RELAYED else set()
    for file in root.glob((EVENTS.get(event) or CHANGES[event]).format(n=batch)):
        with suppress(FileNotFoundError):
            status = file.stat()
            if event not in _RELAYED or _number(event, file) in relayed:
                found.add((file.name, status.st_ino, status.st_mtime_ns))
    return found


def _number(event: str, file: Path) -> int:
    """The batch that a file of a change belongs to."""
    return int(file.parent.name if event == "answered" else file.stem.partition("-")[0])


def _relayed(root: Path) -> set[int]:
    """The batches for which stored state is laid out anew, of those that are still known."""
    found = set()
    for file in (root / "ck" / "plan").glob("*.json"):
        with suppress(FileNotFoundError):
            if file.stem.isdigit() and json.loads(file.read_text(encoding="utf-8"))["relays"]:
                found.add(int(file.stem))
    return found


def last_batch(root: Path) -> int:
    """The last batch with a manifest; -1 if there is none."""
    found = (root / "ck" / "state").glob("*.json")
    return max((int(file.stem) for file in found if file.stem.isdigit()), default=-1)
