"""The phases of a start of Weft, from `import weft` to the first result: `weft bench start`.

Guarantees: every start is a process of its own, over two streams of one small file each. Kernels are compiled before;
the archive of Spark's classes is made in a folder of the benchmark. Starts without it, with it and after a kill take
turns, so that a machine that gets busier does not favour one of them; how busy it was is shown. A start after a kill is
one over the checkpoint of a session that was killed (kill -9) after its first batch.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from benchmarks._harness import ContenderError, conclude, make_console, make_parser, run_alone, say
from benchmarks._start_run import start
from rich.table import Table

FIRST, AGAIN = 7.0, 9.0  # seconds: to the first result, and after a kill
SECOND = 1_000_000
TIMEOUT = 600.0
Marks = Mapping[str, float]


def write_inputs(root: Path, number: int, rows: int = 1_000) -> None:
    """Write one more small file of each stream, with event times a second later than the one before."""
    random = np.random.default_rng(number)
    for name in "ab":
        folder = root / "in" / name
        folder.mkdir(parents=True, exist_ok=True)
        times = np.sort(random.integers(0, SECOND, rows)) + number * SECOND
        columns = {"k": random.integers(0, 100, rows), "n": np.arange(rows)}
        pq.write_table(
            pa.table({**columns, "ts": pa.array(times, pa.timestamp("us"))}), folder / f"{number}.parquet"
        )


def run_start(root: Path, cores: int, *, die: bool = False) -> Marks:
    """Run one start in a process of its own; with ``die`` it is killed after its first batch, and has no figures."""
    task = {"root": str(root), "cores": cores, "die": die}
    try:
        return run_alone(start, task, TIMEOUT)
    except ContenderError as error:
        if die and "ended with -9" in str(error):
            return {}
        raise


def phases(marks: Marks) -> dict[str, float]:
    """How long each phase took; workers start beside the other phases, so these add up without them."""
    return {
        "import, plan of the query": marks["import"],
        "Java": marks["context"] - marks["import"],
        "Spark's session": marks["spark"] - marks["context"],
        "plan of the batch, launch": marks["start"] - marks["spark"],
        "first batch": marks["result"] - marks["start"],
        "to the first result": marks["result"],
        "(workers, meanwhile)": marks["workers"] - marks["spark"],
    }


def measure(root: Path, rounds: int, cores: int) -> dict[str, list[Marks]]:
    """Run starts without and with the archive, and after a kill."""
    from weft.runtime.spark.class_archive import archive_place
    from weft.runtime.spark.class_archive_maker import make_archive

    found: dict[str, list[Marks]] = {"without archive": [], "with archive": [], "after a kill": []}
    os.environ |= {"WEFT_CLASS_ARCHIVE": "1", "XDG_CACHE_HOME": str(root / "cache")}
    place = archive_place()
    say("making the archive, and a start that compiles kernels")
    if place is None or make_archive(place) is None:
        raise SystemExit("no archive of Spark's classes can be made here")
    run_start(_work(root, "first"), cores)
    for number in range(1, rounds + 1):
        say(f"round {number} of {rounds}: without the archive, with it, and after a kill")
        os.environ["WEFT_CLASS_ARCHIVE"] = "0"
        found["without archive"].append(run_start(_work(root, f"without{number}"), cores))
        os.environ["WEFT_CLASS_ARCHIVE"] = "1"
        found["with archive"].append(run_start(_work(root, f"with{number}"), cores))
        killed = _work(root, f"killed{number}")
        run_start(killed, cores, die=True)
        write_inputs(killed, 1)
        found["after a kill"].append(run_start(killed, cores))
    return found


def _work(root: Path, name: str) -> Path:
    write_inputs(root / name, 0)
    return root / name


def start_table(found: Mapping[str, Sequence[Marks]]) -> Table:
    """The table of medians, with a column per kind of start."""
    load = os.getloadavg()[1] / (os.cpu_count() or 1)
    table = Table(title="A start (s, medians)", caption=f"{load:.1f} processes per core wanted to run")
    table.add_column("")
    columns = {kind: [phases(marks) for marks in starts] for kind, starts in found.items()}
    for kind in columns:
        table.add_column(kind, justify="right")
    for phase in next(iter(columns.values()))[0]:
        figures = (statistics.median(one[phase] for one in starts) for starts in columns.values())
        table.add_row(phase, *(f"{figure:.2f}" for figure in figures))
    return table


def main(arguments: list[str]) -> int:
    """Print the table and the verdicts; 1 if a target is missed and ``--strict`` given."""
    parser = make_parser("start", __doc__, "cores strict")
    parser.add_argument("--rounds", type=int, default=3, help="starts of each kind")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error("--rounds must be 1 at least")
    with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
        found = measure(Path(folder), options.rounds, options.cores)
    console = make_console()
    console.print(start_table(found))
    judged = []
    for kind, most in (("with archive", FIRST), ("after a kill", AGAIN)):
        taken = statistics.median(marks["result"] for marks in found[kind])
        judged.append((f"{kind}: a result within {most:g} s ({taken:.1f} s)", taken <= most))
    return conclude(console, options, judged)
