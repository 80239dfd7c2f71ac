"""A random case of the recovery tests with everything in an object store, struck at moments of its requests.

The front before the store sees every request, so a run is struck just when one of its steps reaches the store: before
the store has it, when the request takes effect though its sender is dead, or after.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Event

import pytest

from tests.recovery.cases import Case
from tests.recovery.check import check
from tests.recovery.processes import Run, until
from tests.storage.s3_front import Front, Trouble
from weft.connectors.files.parquet_sink import to_parquet
from weft.storage.objects import ObjectStorage

__all__ = ["Stricken"]

# What a run asks of the store on the way of a batch, and of a change of queries.
STEPS = (
    r"PUT .*/ck/plan/",
    r"PUT .*/ck/state/buckets/",
    r"PUT .*/out/.*/_weft/pending/",
    r"PUT .*/out/.*/batch=",
    r"PUT .*/out/.*/_weft/commits/",
    r"PUT .*/ck/state/\d+\.json",
    r"PUT .*/ck/(blueprints|blobs|migrated|lease)/",
    r"(DELETE|POST) ",
    r"GET ",
)


@dataclass
class Stricken:
    """A case in an object store, which runs in processes of its own, on a master and with settings of Spark's.

    ``environment`` is that of its driver, besides that of this process.
    """

    root: Path
    case: Case
    front: Front
    stack: ExitStack
    master: str = "local[2]"
    execution: str = "local"
    settings: Sequence[str] = ()
    environment: dict[str, str] = field(default_factory=dict)
    story: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.case.seed} strikes at requests")
        print(self.case)  # its seed, whatever fails
        self.case.write(self.root)
        storage = ObjectStorage(self.case.place)
        for file in sorted((self.root / "in").rglob("*.json")):
            storage.put(str(file.relative_to(self.root)), file.read_bytes())
        self.front.begin(self.case.seed, Trouble(percent=5, delay=0.05))

    def start(self, machine: str = "here", settings: Sequence[str] = ()) -> Run:
        """Begin, or go on, on a machine that has nothing yet but a folder and an empty cache."""
        case = [str(self.case.seed), str(self.case.files), self.case.kind]
        folder = self.root / machine
        folder.mkdir(exist_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            for name, value in {"WEFT_CACHE": str(folder / "cache"), **self.environment}.items():
                patch.setenv(name, value)
            given = [*case, self.master, self.execution, self.case.place]
            run = Run(self.root, given, settings=[*self.settings, *settings], folder=folder)
        self.stack.callback(run.end)
        return run

    def strike(self, run: Run, what: str, act: Callable[[], object]) -> bool:
        """Do something at a random request; whether that came before the run ended."""
        step, when, nth = self.rng.choice(STEPS), self.rng.choice(("before", "after")), self.rng.randint(1, 6)
        began, ended = Event(), Event()

        def strike() -> None:
            began.set()
            try:
                act()
                self.story.append(f"{what} {when} request {nth} that is like {step}")
            finally:
                ended.set()

        before = len(self.story)
        self.front.watch(step, when, strike, nth)
        until(lambda: began.is_set() or run.code is not None, lambda: f"{step} never comes\n{run.tail()}")
        self.front.watch_no_more()
        if began.is_set():
            until(ended.is_set, lambda: f"a strike does not end\n{run.tail()}")
        return len(self.story) > before

    def signal(self, run: Run, number: signal.Signals) -> bool:
        """Send a signal to a driver at a random request; whether that came before the run ended."""
        return self.strike(run, number.name, lambda: os.kill(run.members("driver")[0], number))

    def check(self) -> None:
        """Fetch all that is in the store, and compare it with the definition."""
        self.front.begin(0, Trouble(percent=0))
        storage = ObjectStorage(self.case.place)
        names = [one.name for one in storage.entries()]
        found = [name for name in names if name.startswith("ck/")]
        for query in {name.split("/")[1] for name in names if name.startswith("out/")}:
            sink = to_parquet(f"{self.case.place}/out/{query}")
            found += [uri.removeprefix(f"{self.case.place}/") for uri in sink.committed_files()]
        for name in found:
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / name).write_bytes(storage.get(name) or b"")
        print(*self.story, self.front.counts, sep="\n")  # pytest -rP shows it
        check(replace(self.case, place=""), self.root, self.story)
        assert sum(self.front.counts.values()), "there was no trouble"
