"""Groups of queries that are formed while they run: against no groups, and against those of a plan that knew.

AJoin's workload (its section 7): streams of six attributes, joins of two and three streams with a given similarity to a
pattern (Equation 3), windows of 1 to 3 s. Every tuple is of use to a given part of the queries only (AJoin's "cost of
sharing", Figure 22a: with 50 %, one half of the queries selects one half of the tuples, and the others the rest). A few
queries run from the start; the others arrive later, a few with each batch (its scenario SC1). Four contenders join the
same files, each in a process of its own: one group for all; groups by cost, as queries arrive; groups that are also
revised from measured overlap, where sessions can adapt; and the groups that one forms who knows the selections.
Throughput is that of the last half of the batches, when all queries run. Counts of results that differ give the exit
code 1.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from itertools import accumulate
from pathlib import Path
from random import Random
from typing import Any

from benchmarks._ajoin import (
    ATR_MAX,
    ATTRIBUTES,
    SCHEMA,
    Selection,
    Selections,
    draw,
    similar,
    stream_names,
    write_streams,
)
from benchmarks._ajoin_run import make_sink, state_bytes
from benchmarks._harness import (
    ContenderError,
    conclude,
    make_console,
    make_parser,
    run_alone,
    say,
    working_directory,
)
from benchmarks._plot import Plot
from benchmarks._plot import draw as draw_plots
from benchmarks._progress import weft_batches
from rich.table import Table

import weft

# Who takes part: one group for all; groups by cost, as queries arrive; groups that are also revised from what is
# measured while they run; and the groups of a plan that knew what filters have in common.
CONTENDERS = ("none", "placed", "revised", "known")


@dataclass(frozen=True, slots=True)
class GroupsTask:
    """The queries with their true groups, and a contender."""

    contender: str
    data: str
    work: str
    streams: list[str]
    queries: dict[str, str]
    groups: dict[str, str]  # of every query, as one would form them who knew
    first: int  # so many queries run from the start
    first_files: int  # so many files of each stream are joined before the other queries begin
    each: int  # so many queries begin with each of the next files
    epoch: int  # batches between two revisions
    rate: float
    cores: int
    launched: float = 0.0

    @property
    def complete_at(self) -> int:
        """The batch from which on all queries run."""
        return self.first_files + -(-(len(self.queries) - self.first) // self.each)


def run_groups(task: GroupsTask) -> dict[str, Any]:
    """Join all files, and give the figures of the run."""
    incoming = Path(task.work, "in")
    for name in task.streams:
        (incoming / name).mkdir(parents=True)
    sinks = {name: make_sink("count", "") for name in task.queries}
    names = list(task.queries)
    session = _session(task, incoming)
    for name in names[: task.first]:
        session.query(task.queries[name], name=name, sink=sinks[name])
    session.start()
    say(f"{task.contender}: started")
    _arrive(task, incoming, slice(None, task.first_files))
    session.process_all_available()
    file = task.first_files
    for place in range(task.first, len(names), task.each):
        for name in names[place : place + task.each]:
            session.query(task.queries[name], name=name, sink=sinks[name])
        _arrive(task, incoming, slice(file, file + 1))
        session.process_all_available()
        file += 1
    say(f"{task.contender}: all queries are there")
    _arrive(task, incoming, slice(file, None))
    session.process_all_available()
    say(f"{task.contender}: {len(weft_batches(session))} batches done")
    found = _figures(task, session)
    session.stop()
    return {**found, "results": {name: int(sinks[name].count()) for name in names[: task.first]}}


def _session(task: GroupsTask, incoming: Path) -> weft.Session:
    known = weft.StreamStatistics(rate=task.rate, distinct=dict.fromkeys(ATTRIBUTES, ATR_MAX))
    session = weft.Session(
        checkpoint=str(Path(task.work, "checkpoint")),
        master=f"local[{task.cores}]",
        statistics=weft.Statistics(dict.fromkeys(task.streams, known)),
        options=weft.Options(partitions=task.cores, group=_group_option(task)),
        adapt="auto" if task.contender == "revised" else "off",
        adaptation=weft.Adaptation(epoch_batches=task.epoch, epoch_seconds=0.0),
    )
    for name in task.streams:
        source = weft.files("parquet", str(incoming / name), schema=SCHEMA, max_files_per_batch=1)
        session.stream(name, source, event_time="ts")
    return session


def _group_option(task: GroupsTask) -> bool | dict[str, str]:
    return task.groups if task.contender == "known" else task.contender != "none"


def _arrive(task: GroupsTask, incoming: Path, which: slice) -> None:
    for name in task.streams:
        for file in sorted(Path(task.data, name).iterdir())[which]:
            os.link(file, incoming / name / file.name)


def _figures(task: GroupsTask, session: weft.Session) -> dict[str, Any]:
    """Rows and seconds of every batch, the bytes stored, and the groups at the end."""
    progress = {name: list(batches) for name, batches in session.progress.items()}
    rows: dict[int, dict[str, int]] = {}
    for batches in progress.values():
        for batch in batches:
            mine = rows.setdefault(batch.number, {})
            for alias, one in batch.inputs.items():
                mine[alias] = max(mine.get(alias, 0), one.rows)
    running: Any = session._last_run
    plan = running.loop.active_queries.plan
    timed = weft_batches(session)
    return {
        "rows": [sum(rows.get(number, {}).values()) for number, _, _ in timed],
        "seconds": [seconds for _, seconds, _ in timed],
        "changed_at": task.complete_at,
        "state": state_bytes(progress),
        "groups": len({plan.group_of(name) for name in task.queries}),
    }


SELECTED = "a5"  # the attribute by which tuples are of use to one part of the queries or to another
TARGET = 0.9  # what groups formed while running reach at least of the throughput of those of a plan that knew
TITLES = {
    "none": "one group for all",
    "placed": "placed as they arrive",
    "revised": "revised while running",
    "known": "known in advance",
}


@dataclass(frozen=True, slots=True)
class Share(Selections):
    """Selections of one part of the values of an attribute, from above or from below, with bounds that vary a little.

    Selections of the template are one comparison, so there are two kinds of queries: those that want the lower
    ``part`` of the values, and those that want the upper one.
    """

    upper: bool = False
    part: float = 0.5
    varies: float = 0.02

    def draw(self, rng: Random) -> Selection:
        """Draw a selection."""
        part = min(max(self.part + rng.uniform(-self.varies, self.varies), 0.0), 1.0)
        if self.upper:
            return Selection(SELECTED, ">=", round(ATR_MAX * (1 - part)))
        return Selection(SELECTED, "<", round(ATR_MAX * part))


@dataclass(frozen=True, slots=True)
class Run:
    """The figures of a contender."""

    rows: list[int]  # per batch
    seconds: list[float]
    changed_at: int  # the batch from which on all queries run
    state: int  # bytes
    groups: int  # at the end
    results: dict[str, int]

    @property
    def rate(self) -> float:
        """Input rows per second of the last half of the batches with all queries."""
        first = (self.changed_at + len(self.rows)) // 2
        return sum(self.rows[first:]) / sum(self.seconds[first:])

    @property
    def slowest(self) -> float:
        """The seconds of the slowest batch since all queries run."""
        return max(self.seconds[self.changed_at :])

    @property
    def points(self) -> list[tuple[float, float]]:
        """Seconds since the first batch, and input rows per second, of every batch but the first, which compiles."""
        times = list(accumulate(self.seconds))
        batches = zip(times, self.rows, self.seconds, strict=True)
        return [(time - times[0], rows / seconds) for time, rows, seconds in list(batches)[1:]]


def make_workload(
    count: int, streams: tuple[str, ...], ways: list[int], percent: float, shared: float, seed: int
) -> tuple[dict[str, str], dict[str, str]]:
    """So many queries as similar to the pattern of their size as asked, and the group of each by its selections."""
    rng = Random(seed)
    patterns = {n_way: draw(rng, n_way, streams=streams) for n_way in sorted(set(ways))}
    queries, groups = {}, {}
    for i in range(count):
        name, upper = f"q{i:03}", i % 2 == 1
        pattern = patterns[ways[i // 2 % len(ways)]]
        selections = Share(upper=upper, part=shared)
        queries[name] = str(similar(rng, pattern, percent, streams=streams, selections=selections))
        groups[name] = "group 2" if upper else ""
    return queries, groups


def measure(root: Path, options: argparse.Namespace) -> tuple[dict[str, Run], list[str]]:
    """The figures of all contenders, and what went wrong."""
    streams = stream_names(options.streams)
    say(f"writing {len(streams)} streams of {options.files} files")
    rows = options.files * options.file_rows
    write_streams(root / "in", streams, rows, options.file_rows, options.rate)
    found: dict[str, Run] = {}
    troubles = []
    for contender in options.contenders:
        try:
            answer = run_alone(run_groups, _task(root, options, contender), options.timeout)
            found[contender] = Run(**answer)
        except ContenderError as error:
            troubles.append(f"{TITLES[contender]}: {error}")
    return found, [*troubles, *differences(found)]


def _task(root: Path, options: argparse.Namespace, contender: str) -> dict[str, Any]:
    streams = stream_names(options.streams)
    queries, groups = make_workload(
        options.queries, streams, options.ways, options.similarity, options.shared / 100, options.seed
    )
    return asdict(
        GroupsTask(
            contender=contender,
            data=str(root / "in"),
            work=tempfile.mkdtemp(dir=root),
            streams=list(streams),
            queries=queries,
            groups=groups,
            first=options.first,
            first_files=options.first_files,
            each=options.each,
            epoch=options.epoch,
            rate=options.rate,
            cores=options.cores,
        )
    )


def differences(found: Mapping[str, Run]) -> list[str]:
    """The queries that ran from the start and do not have equally many results in all runs."""
    counts: dict[str, set[int]] = {}
    for run in found.values():
        for name, count in run.results.items():
            counts.setdefault(name, set()).add(count)
    return [f"{name} has {sorted(seen)} results" for name, seen in sorted(counts.items()) if len(seen) > 1]


def groups_table(found: Mapping[str, Run], options: argparse.Namespace) -> Table:
    """The table of figures, with one row per contender."""
    table = Table(
        title=f"{options.queries} queries, {options.similarity:g} % similar, tuples for {options.shared:g} % of them",
        caption="rows/s: of the last half of the batches with all queries; slowest: batch since all run",
    )
    table.add_column("groups")
    for head in ("at the end", "rows/s", "to none", "slowest s", "state kB"):
        table.add_column(head, justify="right")
    for contender, run in found.items():
        ratio = f"{run.rate / found['none'].rate:.2f} ×" if "none" in found else "–"
        figures = (
            str(run.groups),
            f"{run.rate:,.0f}",
            ratio,
            f"{run.slowest:.2f}",
            f"{run.state / 1000:,.0f}",
        )
        table.add_row(TITLES[contender], *figures)
    return table


def verdicts(found: Mapping[str, Run]) -> list[tuple[str, bool]]:
    """Each target with the figure that was measured, and whether it was reached."""
    formed = next((found[name] for name in ("revised", "placed") if name in found), None)
    reached = []
    if formed is not None and "known" in found:
        part = formed.rate / found["known"].rate
        what = f"groups formed while running: at least {TARGET:g} of those known in advance ({part:.2f})"
        reached.append((what, part >= TARGET))
    if formed is not None and "none" in found:
        ratio = formed.rate / found["none"].rate
        reached.append((f"and no slower than one group for all ({ratio:.2f} ×)", ratio >= 1.0))
    return reached


def main(arguments: list[str]) -> int:
    """Print the table and the verdicts; 1 if results differ or, with ``--strict``, a target is missed."""
    options = _options(arguments)
    with working_directory(options) as folder:
        found, troubles = measure(folder, options)
    console = make_console()
    console.print(groups_table(found, options))
    if options.plot:
        lines = {n: ([x for x, _ in run.points], [y for _, y in run.points]) for n, run in found.items()}
        draw_plots(Path(options.plot), [Plot("Groups of queries", "seconds", "input rows/s", lines)])
    return conclude(
        console,
        options,
        verdicts(found),
        troubles,
        {name: {**asdict(run), "rate": run.rate} for name, run in found.items()},
    )


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("groups", __doc__, "cores timeout directory json strict")
    add = parser.add_argument
    add("--contenders", nargs="+", choices=CONTENDERS, default=CONTENDERS, help="who takes part")
    add("--queries", type=int, default=40, help="how many run in the end")
    add("--first", type=int, default=10, help="how many of them run from the start")
    add("--ways", type=int, nargs="+", default=[2, 3], help="how many streams a query joins, in turns")
    add("--similarity", type=float, default=50, help="with the pattern of its size, in per cent")
    add(
        "--shared",
        type=float,
        default=50,
        help="the part of the queries that a tuple is of use to, in per cent",
    )
    add("--streams", type=int, default=3, help="how many there are")
    add("--each", type=int, default=2, help="how many of the others begin with each batch")
    add("--files", type=int, default=60, help="files of each stream; a batch is a file of each")
    add("--first-files", type=int, default=10, help="those joined before the other queries begin")
    add("--file-rows", type=int, default=20_000, help="rows of each file")
    add("--rate", type=int, default=2_000, help="rows a second of event time of each stream")
    add("--epoch", type=int, default=4, help="batches between two revisions")
    add("--seed", type=int, default=7, help="of the queries")
    add("--plot", metavar="FILE", help="draw throughput over time there, as PNG")
    options = parser.parse_args(arguments)
    if max(options.ways) > options.streams or min(options.ways) < 2:
        parser.error("--ways must be between 2 and --streams")
    if not 0 < options.first <= options.queries or options.each < 1 or options.first_files < 1:
        parser.error("--first, --each and --first-files must be 1 or more, and --first at most --queries")
    arriving = -(-(options.queries - options.first) // options.each)
    if options.files < options.first_files + arriving + 2:
        parser.error(f"--files must be {options.first_files + arriving + 2} or more")
    return options
