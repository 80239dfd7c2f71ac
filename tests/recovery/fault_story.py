"""Stories of a session to whose files things happen, between its batches, during them, and while it is stopped.

In every chapter some input comes, one thing happens to one file, and the session may break off where it is. Then it
goes on, and either all is right, or an error of Weft's names the file; with the file as it was, all is right after all:

- an input that no batch has taken is what it is now: gone, elsewhere, rewritten; one that is cut off or empty is said
  to be unfinished, and is completed, or is taken as it is after a while;
- an input that a batch has taken is needed as it was until the batch is committed, and then no more;
- when files were touched never matters;
- what happens to the log never changes an answer;
- a record with a wrong time, of any year to come, NULL or no time at all, is a dead letter, and changes no answer.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.recovery.fault_world import FORMATS, LATER, QUERIES, Rows, World, content_of
from tests.recovery.faults import ALL, LOG, TOUCHES, Fault, damage, is_time, log_files
from weft.errors import WeftError
from weft.optimizer.joint.methods import METHODS

MOMENTS = (
    "stopped",
    "running",
    "before plan",
    "planned",
    "before run",
    "after run",
    "before manifest",
    "committed",
)
IN_COMMIT = ("before manifest", "committed")  # while the next batch may be under way
INPUTS = ("unread", "planned", "read")
WHEN = {  # when there are such inputs
    "unread": ("stopped", "running", "planned", "before run", "after run"),
    "planned": ("planned", "before run", "after run", "before manifest"),
}
INPUT_KINDS = ("delete", "empty", "truncate", "rename", "rewrite", *TOUCHES)


class BreakOffError(BaseException):
    """Where a session broke off; no error that a session could deal with."""


@dataclass
class Story:
    """One session, from its beginning to the end of its input, in so many chapters."""

    root: Path
    seed: int
    chapters: int
    lines: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    fault: Fault | None = None
    _due: tuple[str, int, bool] | None = None  # at which moment, the how-manieth, and whether it breaks off
    _wish: tuple[str, str] = ("", "")  # what is to happen to which group of files
    _plans: dict[int, set[Path]] = field(default_factory=dict)
    _between: set[Path] = field(default_factory=set)  # files of a plan that is about to be written
    _committed: set[int] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.rng = rng = random.Random(f"faults {self.seed}")
        names = tuple(sorted(rng.sample(list(QUERIES), rng.randint(1, 3))))
        method, partitions = rng.choice(METHODS), rng.randint(1, 3)
        self.world = World(self.root, rng, names, rng.random() < 0.6, partitions, method, self._hook)
        self.world.wrong_times = rng.choice((0.0, 0.1, 0.3))
        self.lines.append(
            f"seed {self.seed}: {names}, {partitions} partitions, {method}, {self.world.overlapping=}"
        )

    def run(self) -> None:
        """Tell it; an `AssertionError` if anything is wrong."""
        self.world.start()
        for _ in range(self.chapters - 1):
            self._write()
            self._change_queries()
            self._chapter()
        self._write()
        self._live_well()
        self.world.ending = True
        self._chapter()
        self.world.stop()
        rows = [row for rows in self.world.meant.values() for row in rows]
        self.outcomes["wrong times"] = sum(not is_time(row[3]) for row in rows)

    # What the session does

    def _write(self) -> None:
        for _ in range(self.rng.randint(1, 5)):
            self.world.write(self.rng.choice(list(FORMATS)))

    def _change_queries(self) -> None:
        """Ask for one more query, or stop one."""
        world, requests = self.world, self.world.session._registered.requests
        more = [name for name in QUERIES if name not in (*requests, *LATER)] if "chain" in requests else []
        running = [
            name for name in requests if name not in (*world.frozen, *LATER, "chain")
        ]  # which stores all streams
        if more and self.rng.random() < 0.25:
            self.lines.append(f"add {more[0]}")
            world.add(more[0])
        elif running and self.rng.random() < 0.15:
            name = self.rng.choice(running)
            self.lines.append(f"stop {name}")
            world.stop_query(name)

    def _live(self, *, afresh: bool = False) -> WeftError | None:
        """Go on until there is nothing to do; an error of Weft's ends it."""
        world = self.world
        try:
            if world.loop is None:
                self._recall()
                world.start(as_new_process=afresh or self.rng.random() < 0.8)
            if world.ending:
                assert world.loop is not None
                world.loop.end_input()
            world.drain()
        except BreakOffError:
            self.lines.append("it breaks off")
            world.stop()
            return self._live()
        except WeftError as error:
            self.lines.append(f"error: {error.message}")
            world.stop()
            return error
        return None

    def _live_well(self) -> None:
        error = self._live()
        assert error is None, f"an error that has no cause: {error}"
        self._check()

    def _check(self) -> None:
        wrong = self.world.wrong()
        assert not wrong, f"rows that are too many, and that are missing: {wrong}"

    def _recall(self) -> None:
        """Forget plans that are in the log no more and were not committed."""
        there = {
            int(file.stem) for file in (self.world.checkpoint / "plan").glob("*.json") if file.stem.isdigit()
        }
        self._plans = {n: files for n, files in self._plans.items() if n in self._committed or n in there}

    def _hook(self, moment: str, number: int, files: set[Path]) -> None:
        """A step of a batch."""
        with self._lock:
            self._between = files if moment == "before plan" else set()
            if moment == "planned":
                self._plans[number] = files
            elif moment == "committed":
                self._committed.add(number)
            if self._due is None or self._due[0] != moment:
                return
            _, left, breaks = self._due
            self._due = (moment, left - 1, breaks) if left > 1 else None
            if left == 1:
                self._strike(moment)
                if breaks:
                    raise BreakOffError

    # What happens to it

    def _chapter(self) -> None:
        """One thing happens to one file."""
        group = self.rng.choice((*INPUTS, *LOG, "unread", "planned"))
        self.fault, self._wish = None, (group, self.rng.choice(ALL))
        moment, nth = self.rng.choice(WHEN.get(group, MOMENTS)), self.rng.choice((1, 1, 2))
        breaks = self.rng.random() < 0.5
        self.lines.append(f"{moment} {nth}{', breaking off' if breaks else ''}:")
        if moment in ("stopped", "running"):
            assert self.world.loop is not None
            for _ in range(self.rng.choice((0, 0, 1, 2))):
                self.world.loop.run_next()
            self.world.loop.committer.wait()
            if moment == "stopped":
                self.world.stop()
                self._recall()
            self._strike(moment)
        else:
            self._due = (moment, nth, breaks)
        error = self._live()
        if self._due is not None:  # there were fewer batches
            self._due = None
            if error is None:
                self._strike("running")
                error = self._live()
        self._go_on(error)

    def _go_on(self, error: WeftError | None) -> None:
        """All is right, or the error names the file and all is right when it is as it was."""
        fault = self.fault
        assert fault is not None or error is None, f"an error that has no cause: {error}"
        if fault is None:
            return
        if error is None:
            self._see_unfinished(fault)
            self._check()
            if fault.group in LOG:
                error = self._meet()
        if error is not None:
            assert fault.is_named_in(error.message), f"{fault} is not named: {error}"
            assert fault.kind not in TOUCHES, f"when a file was touched matters: {error}"
            assert fault.group not in ("read", "unread"), f"a file matters that does not: {error}"
            self.lines.append("it is undone")
            fault.undo()
            self._live_well()
        elif fault.group in ("planned", "read", "buckets"):
            fault.put_back()
        self._check()
        self.outcomes["named" if error is not None else "right"] += 1
        self.outcomes[f"{fault.group}: {'named' if error is not None else 'right'}"] += 1

    def _meet(self) -> WeftError | None:
        """Let what happened to the log be met by whoever starts next, if nobody has met it yet."""
        self.world.stop()
        for stream in () if self.world.ending else FORMATS:
            self.world.write(stream)
        return self._live(afresh=True)

    def _strike(self, moment: str) -> None:
        """Let it happen, to a file of the group that was drawn or, if it has none, of another one."""
        group, kind = self._wish
        groups = [group, *self.rng.sample((*INPUTS, *LOG), len(INPUTS) + len(LOG))]
        careful = moment in IN_COMMIT and self.world.overlapping  # the next batch may be taking its input
        for one in groups:
            skipped = one == "unread" and (careful or self.world.ending)
            files = [] if skipped else list(self._files(one))
            if files:
                file = self.rng.choice(files)
                self.fault = (
                    self._to_input(file, one, kind) if one in INPUTS else damage(file, one, kind, self.rng)
                )
                self.lines.append(f"  {self.fault}")
                return

    def _files(self, group: str) -> Iterator[Path]:
        if group in LOG:
            yield from log_files(self.world.checkpoint, self.root / "out", group)
            return
        read = set[Path]().union(*(files for n, files in self._plans.items() if n in self._committed))
        planned = set[Path]().union(*self._plans.values()) - read
        for file in sorted(self.world.meant):
            is_in = "read" if file in read else "planned" if file in planned else "unread"
            if is_in == group and file not in self._between and file.exists():
                yield file

    def _to_input(self, file: Path, group: str, kind: str) -> Fault:
        """Something happens to an input; if no batch has taken it, what it is meant to hold follows."""
        kind = kind if kind in INPUT_KINDS else self.rng.choice(INPUT_KINDS)
        seen = (
            group != "planned" and not self.world.ending and self.rng.random() < 0.5
        )  # whether a name that it is given is one of an input
        name = f"x{self.world.next_number()}-{file.name}" if seen else f"_{file.name}"
        if kind != "rewrite":
            fault = damage(file, group, kind, self.rng, name)
        else:
            fault, rows = (
                Fault(kind, group, file, file.read_bytes()),
                self.world.rows(text=file.suffix != ".parquet"),
            )
            meant = self.world.meant[file]
            self.world.put(file, rows)
            if group != "unread":
                self.world.meant[file] = meant
        if kind == "rename" and seen and fault.after is not None:
            self.world.meant[fault.after] = self.world.meant[file]
        if group == "unread" and kind in ("delete", "rename"):
            del self.world.meant[file]
        return fault

    def _see_unfinished(self, fault: Fault) -> None:
        """Of an input that was not taken and is not complete, it is said; it becomes so, or is taken as it is."""
        if fault.group != "unread" or fault.kind not in ("empty", "truncate"):
            return
        world, content = self.world, fault.file.read_bytes()
        kept = _kept(fault.file, world.meant[fault.file], content)
        if content.endswith(b"\n"):
            world.meant[fault.file] = kept  # nothing tells that there was more
            return
        assert world.loop is not None
        said = [one for names in world.loop.intake.unfinished().values() for one in names]
        assert any(fault.file.name in one for one in said), (
            f"nobody says that {fault.file.name} is not complete"
        )
        if self.rng.random() < 0.5:
            self.lines.append("it is completed")
            fault.undo()
        else:
            self.lines.append("it stays so")
            world.meant[fault.file] = kept
            world.ahead += 100
        error = self._live()
        assert error is None, f"an error that has no cause: {error}"


def _kept(file: Path, rows: Rows, content: bytes) -> Rows:
    """The tuples that are left of a file that was cut off; the end of the last line may be missing."""
    if file.suffix == ".parquet":
        return []
    return [row for n, row in enumerate(rows) if len(content_of(file, rows[: n + 1])) - 1 <= len(content)]
