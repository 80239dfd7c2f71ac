"""When to kill: at random, or just when a file of a batch's path through the checkpoint and the sinks appears.

The windows that matter (results in place, manifest not yet) last milliseconds, so waiting for their files is the way to
hit them. A change of queries has windows of its own, before the batch with which it takes effect; so have rows that are
closed, and the end of the input. While a batch is committed the next one is under way, so both may be hit at once.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.recovery.processes import PATIENCE, POLL, Run
from weft.runtime.model.batch_order import ENDED, UNKNOWN

# In the order in which a batch passes them.
EVENTS = {
    "plan": "ck/plan/{n}.json",
    "bucket": "ck/state/buckets/{n}-*",
    "part": "out/*/_weft/pending/{n}/*",
    "results": "out/*/batch=*",
    "letters": "ck/dead_letters/batch-{n:012d}.jsonl",
    "manifest": "ck/state/{n}.json",
}
_ONCE = ("plan",)  # a replay does not write it again

# In the order in which a change passes them, of whichever batch. Where stored state is laid out anew for it, the plan
# says so ("relay"), and buckets ("laid") and results of the past ("answered") are written before the batch's own.
CHANGES = {
    "blueprint": "ck/blueprints/*.json",
    "migration": "ck/plan/*.json",
    "laid": "ck/state/buckets/*-*",
    "answered": "out/*/_weft/pending/*/*",
    "migrated": "ck/migrated/*.json",
}

# The same for rows that are closed on the way, by queries whose names begin with an o.
CLOSES = {
    "closing": "ck/plan/*.json",
    "closed": "out/o*/_weft/pending/*/*",
}

# And for the batch that ends the input, and any that follows it.
ENDS = {
    "ending": "ck/plan/*.json",
    "rest": "out/o*/_weft/pending/*/*",
    "rest in place": "out/o*/batch=*",
    "end": "ck/state/*.json",
}

_PATTERNS = {**EVENTS, **CHANGES, **CLOSES, **ENDS}
_SOON, _SOME_DAY = 2, 1_000  # batches within which there should be a change, and the end


@dataclass(frozen=True, slots=True)
class Moment:
    """So many seconds after something is seen of the batch that is so many after the last one committed."""

    event: str
    ahead: int
    delay: float

    @classmethod
    def random(cls, rng: random.Random, kind: str = "fixed", last: bool = False) -> Moment:
        """Any moment of a batch's life: every event, at once or a little later, or a random time after its plan.

        In runs of a kind that has more than that, most often a moment of that; the ``last`` ones at the end of it.
        """
        ahead = rng.choice((0, 0, 1))
        delay = rng.choice((0.0, 0.0, 0.002, 0.01, 0.05)) * rng.random()
        long = rng.uniform(0, 1) if rng.random() < 0.3 else delay  # into the job that follows
        if kind == "outer" and last:
            return cls(rng.choice(("ending", *ENDS)), _SOME_DAY, long)
        if kind == "outer" and rng.random() < 0.5:
            return cls(rng.choice(tuple(CLOSES)), _SOON, long)
        if kind != "fixed" and rng.random() < 0.6:
            return cls(rng.choice(tuple(CHANGES)), _SOON, long)
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
    only = _ONLY[event](root) if event in _ONLY else None
    for file in root.glob(_PATTERNS[event].format(n=batch)):
        if event == "results" and _number(file) != batch:
            continue
        with suppress(FileNotFoundError):
            status = file.stat()
            if only is None or _number(file) in only:
                found.add((file.name, status.st_ino, status.st_mtime_ns))
    return found


def _number(file: Path) -> int:
    """The batch that a file belongs to, by its name or that of its folder; -1 if neither tells."""
    found = re.search(r"\d+", file.parent.name if file.parent.name.isdigit() else file.name)
    return int(found[0]) if found else -1


def _plans(root: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """The batches whose plans are still known, and what these say."""
    for file in (root / "ck" / "plan").glob("*.json"):
        with suppress(FileNotFoundError):
            if file.stem.isdigit():
                yield int(file.stem), json.loads(file.read_text(encoding="utf-8").partition("\n")[2])


def _clocks(plan: dict[str, Any]) -> list[list[int]]:
    return list(plan["batch_order"]["clocks"].values()) if plan["batch_order"] else []


def _relayed(root: Path) -> set[int]:
    """The batches for which stored state is laid out anew."""
    return {number for number, plan in _plans(root) if plan["migration"]}


def _closing(root: Path) -> set[int]:
    """The batches that may close rows: the clock of a query moves, and says a time."""
    return {
        number
        for number, plan in _plans(root)
        if any(now > max(before, UNKNOWN) for before, now in _clocks(plan))
    }


def is_ending(plan: dict[str, Any]) -> bool:
    """Whether a batch ends the input, or comes after its end."""
    return any(now >= ENDED for _, now in _clocks(plan))


def _ending(root: Path) -> set[int]:
    return {number for number, plan in _plans(root) if is_ending(plan)}


# Which batches an event is of, where not of any.
_ONLY: dict[str, Callable[[Path], set[int]]] = {
    **dict.fromkeys(("migration", "laid", "answered"), _relayed),
    **dict.fromkeys(("closing", "closed"), _closing),
    **dict.fromkeys(ENDS, _ending),
}


def last_batch(root: Path) -> int:
    """The last batch with a manifest; -1 if there is none."""
    found = (root / "ck" / "state").glob("*.json")
    return max((int(file.stem) for file in found if file.stem.isdigit()), default=-1)
