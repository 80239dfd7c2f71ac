"""How soon a session is as fast as it stays, and what following the data costs: `weft bench warm`.

Guarantees: the joins are those of `weft bench pair` and `weft bench chain3`, from files to Parquet, in a process of
their own, as users run them (``adapt="auto"``) and by a plan that stays (``adapt="off"``). The two take turns. Beside
the seconds of a batch stands the time of the processor that all processes used from one commit to the next, which
other programs on the machine disturb less; figures are medians of the rounds. The data stays as it is, so no plan
should change.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks._data import SCHEMA, Shape, write_streams
from benchmarks._harness import conclude, make_console, make_parser, make_table, run_alone, say, some_of
from benchmarks._joins import JOINS, KEYS, RATE
from benchmarks._processor import KINDS, ProcessorTime
from benchmarks._progress import wait_for_weft, weft_batches

import weft

SOON, FOLLOWING = 1.2, 1.03  # the second batch over the last ones, and "auto" over "off"
SHOWN = (1, 2, 3, 4, 6, 8, 12, 16, 20)
LAST = 5  # batches at the end, which are warm
TIMEOUT = 600.0
Run = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class WarmTask:
    """A join, and whether its plan follows the data."""

    join: str
    adapt: str
    data: str
    work: str
    cores: int
    launched: float = 0.0


def run_warm(task: WarmTask) -> dict[str, Any]:
    """Join all files, one of each stream a batch; the seconds of every batch, and those of the processor by process."""
    join = JOINS[task.join]
    known = weft.StreamStatistics(rate=RATE, distinct={"vid": KEYS, "uid": KEYS})
    session = weft.Session(
        checkpoint=f"{task.work}/checkpoint",
        master=f"local[{task.cores}]",
        statistics=weft.Statistics(dict.fromkeys(join.streams, known)),
        options=weft.Options(partitions=task.cores),
        adapt=task.adapt,
    )
    for name in join.streams:
        path = f"{task.data}/{name}"
        source = weft.files("parquet", path, schema=SCHEMA, max_files_per_batch=1)
        session.stream(name, source, event_time="ts")
    session.query(join.weft_sql(), name=join.name, sink=weft.to_parquet(f"{task.work}/out"))
    with ProcessorTime() as processor:
        session.start(available_now=True)
        began = time.perf_counter()
        wait_for_weft(session, f"{task.join}, adapt={task.adapt}")
    running: Any = session._last_run
    committed = running.loop.history.committed
    timed = weft_batches(session)
    commits = [began, *(committed[number][1] for number, _, _ in timed)]
    used = processor.used(commits)
    session.stop()
    return {
        "seconds": [alone for _, alone, _ in timed],
        "processor": {kind: [b - a for a, b in pairwise(s)] for kind, s in used.items()},
    }


def busy(run: Run, batches: slice) -> float:
    """The processor's seconds of some batches, of all processes."""
    return float(sum(sum(run["processor"][kind][batches]) for kind in KINDS))


def soon(run: Run, figure: str) -> float:
    """The second batch over the median of the last ones."""
    each = run["seconds"] if figure == "seconds" else [busy(run, slice(i, i + 1)) for i in _numbers(run)]
    return float(each[1] / statistics.median(each[-LAST:]))


def _numbers(run: Run) -> range:
    return range(len(run["seconds"]))


def measure(root: Path, join: str, shape: Shape, rounds: int, cores: int) -> dict[str, list[Run]]:
    """Run a join by both settings in turn."""
    write_streams(root / "in", JOINS[join].streams, shape)
    found: dict[str, list[Run]] = {"auto": [], "off": []}
    for number in range(rounds):
        for adapt, runs in found.items():
            say(f"{join}: round {number + 1} of {rounds}, adapt={adapt}")
            with tempfile.TemporaryDirectory(dir=root) as work:
                task = WarmTask(join, adapt, str(root / "in"), work, cores)
                runs.append(run_alone(run_warm, task, TIMEOUT))
    return found


def _median(runs: Sequence[Run], figure: Any) -> float:
    return float(statistics.median(figure(run) for run in runs))


def rows_of(found: Mapping[str, Sequence[Run]]) -> list[tuple[str, ...]]:
    """The lines of a join's table: seconds, and seconds of the processor, by setting."""
    count = min(len(run["seconds"]) for runs in found.values() for run in runs)
    lines: dict[str, slice] = {f"batch {n}": slice(n - 1, n) for n in SHOWN if n <= count}
    lines[f"all {count} but the first"] = slice(1, None)
    shown = [
        (
            name,
            *(f"{_median(runs, lambda run, s=part: sum(run['seconds'][s])):.2f}" for runs in found.values()),
            *(f"{_median(runs, lambda run, s=part: busy(run, s)):.2f}" for runs in found.values()),
        )
        for name, part in lines.items()
    ]
    for kind in KINDS:
        used = (
            f"{_median(runs, lambda run, k=kind: sum(run['processor'][k][1:])):.2f}"
            for runs in found.values()
        )
        shown.append((f"  of these: {kind}", "", "", *used))
    return shown


def verdicts(join: str, found: Mapping[str, Sequence[Run]]) -> list[tuple[str, bool]]:
    """Whether the second batch is as fast as the last ones, and following the data costs next to nothing."""
    judged = []
    for figure, words in (("seconds", "seconds"), ("processor", "processor time")):
        taken = _median(found["auto"], lambda run, f=figure: soon(run, f))
        judged.append((f"{join}: second batch ≤ {SOON:g} × the last, {words} ({taken:.2f})", taken <= SOON))
    pairs = list(zip(found["auto"], found["off"], strict=True))
    for name, of in (
        ("seconds", lambda run: sum(run["seconds"][1:])),
        ("processor time", lambda run: busy(run, slice(1, None))),
    ):
        ratio = statistics.median(of(auto) / of(off) for auto, off in pairs)
        judged.append((f"{join}: auto ≤ {FOLLOWING:g} × off, {name} ({ratio:.3f})", ratio <= FOLLOWING))
    return judged


def main(arguments: list[str]) -> int:
    """Print the tables and the verdicts; 1 if a target is missed and ``--strict`` given."""
    parser = make_parser("warm", __doc__, "cores json strict")
    add = parser.add_argument
    add("--rows", type=int, default=8_000_000, help="rows of each stream (%(default)s)")
    add("--batch", type=int, default=400_000, help="rows of each stream in a batch (%(default)s)")
    add("--rounds", type=int, default=3, help="runs of each kind (%(default)s)")
    add("--joins", default=["pair", "chain3"], type=some_of(tuple(JOINS)), help=f"some of {','.join(JOINS)}")
    options = parser.parse_args(arguments)
    if options.rounds < 1 or options.rows < (LAST + 2) * options.batch:
        parser.error(f"--rounds must be 1 at least, and --rows those of {LAST + 2} batches")
    shape, console, judged, figures = Shape(options.rows, options.batch, RATE, KEYS), make_console(), [], {}
    for join in options.joins:
        with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
            found = measure(Path(folder), join, shape, options.rounds, options.cores)
        heads = ("", "auto (s)", "off (s)", "auto (processor)", "off (processor)")
        table = make_table(f"{join}: batches since the start, medians", heads)
        for line in rows_of(found):
            table.add_row(*line)
        console.print(table)
        judged += verdicts(join, found)
        figures[join] = found
    return conclude(console, options, judged, figures=figures)
