"""Plans that follow the data (CLASH 7.3.2, Figure 7.7): static plans, the plan known in advance, and the adaptive one.

The four-way chain R ⋈ S ⋈ T ⋈ U over windows of 5 seconds, a second of every stream a batch. Static plans are made
from what is true at the beginning, and from what is true at the end; the adaptive session begins with the former. Where
data flips every epoch, the plan of neither phase is right for long. Results are only counted; they must be as many for
every contender, else the exit code is 1.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks._drift import COLUMNS, FLIP, SCENARIOS, SQL, described, write_batches
from benchmarks._harness import make_console, make_parser, say
from benchmarks._plot import Plot, draw
from benchmarks._progress import wait_for_weft, weft_batches
from rich.table import Table

import weft
from weft.runtime.observe.plan_changes import PlanChange

FIRST, LAST, ADAPTIVE = "static, plan of the beginning", "static, plan of the end", "adaptive"
EPOCH = FLIP  # batches


@dataclass(frozen=True, slots=True)
class Run:
    """The batches of a contender: rows, seconds since the commit before, and results; and how its plan changed."""

    rows: list[int]
    seconds: list[float]
    results: int
    changes: tuple[PlanChange, ...]

    def rate(self, first: int = 0, last: int | None = None) -> float:
        """Input rows per second of some batches."""
        return sum(self.rows[first:last]) / sum(self.seconds[first:last])

    def smooth(self, width: int) -> list[float]:
        """Input rows per second, each over so many batches."""
        return [self.rate(max(0, n - width + 1), n + 1) for n in range(len(self.rows))]


def run(root: Path, work: Path, contender: str, scenario: str, options: argparse.Namespace) -> Run:
    """Run one contender over the files of a scenario."""
    session = weft.Session(
        checkpoint=work / "checkpoint",
        master=f"local[{options.cores}]",
        options=weft.Options(partitions=options.cores),
        adapt="auto" if contender == ADAPTIVE else "off",
        adaptation=weft.Adaptation(
            epoch_batches=EPOCH, epoch_seconds=0.0, half_life_batches=EPOCH, migrate=options.migrate
        ),
    )
    for name, columns in COLUMNS.items():
        schema = ", ".join([*(f"{column} long" for column in columns), "ts timestamp"])
        source = weft.files("parquet", str(root / name), schema=schema, max_files_per_batch=1)
        session.stream(name, source, event_time="ts")
    known = SCENARIOS[scenario]
    at = options.batches - 1 if contender == LAST else 0
    phase = known.phase(FLIP if contender == LAST and scenario == "flip" else at, options.batches)
    described(session, phase, options.rows, known.rates(at, options.batches))
    session.query(SQL, name="chain", sink=weft.to_count())
    session.start(available_now=True)
    wait_for_weft(session, f"{scenario}, {contender}")
    done = weft_batches(session)
    by_number = {batch.number: batch for batch in session.progress["chain"]}
    batches = [by_number[number] for number, _, _ in done]
    found = Run(
        [sum(one.rows for one in batch.inputs.values()) for batch in batches],
        [alone for _, alone, _ in done],
        sum(batch.results for batch in by_number.values()),
        session.plan_history,
    )
    if options.explain and contender == ADAPTIVE:
        print(session.explain())
    session.stop()
    return found


def pauses(one: Run) -> Iterator[tuple[PlanChange, float]]:
    """Every change of plan, and how many times the usual batch the longest one at the change took.

    The usual batch is the median of the ten before; a transition lasts from where stores begin to be filled until they
    take over.
    """
    ends = {c.batch: c.batch + 1 for c in one.changes}
    for before, after in itertools.pairwise(one.changes):
        if before.way == "side by side":
            ends[before.batch] = after.batch + 1
    for change in one.changes:
        first, last = change.batch, ends[change.batch]
        usual = one.seconds[max(1, first - 10) : first]
        if usual and first < len(one.seconds):
            yield change, max(one.seconds[first:last]) / statistics.median(usual)


def verdicts(scenario: str, runs: Mapping[str, Run], batches: int) -> Iterator[tuple[bool, str]]:
    """The targets of a scenario, and whether they were reached."""
    adaptive = runs[ADAPTIVE]
    for change, times in pauses(adaptive):
        what = f"{change.way} before batch {change.batch}: the longest batch took {times:.1f} × the usual one"
        yield change.way == "eager" or times <= 2, what
    if scenario in ("swap", "drift"):
        first = batches // 2 + 10 * EPOCH if scenario == "swap" else batches - 2 * EPOCH
        ratio = adaptive.rate(first) / runs[LAST].rate(first)
        yield ratio >= 0.9, f"≥ 90 % of the plan known in advance after 10 epochs ({ratio:.0%})"
    elif scenario == "steady":
        ratio = adaptive.rate(2 * EPOCH) / runs[FIRST].rate(2 * EPOCH)
        yield ratio >= 0.97, f'≤ 3 % slower than adapt="off" where nothing changes ({ratio:.1%} of its rate)'
    else:
        best = max(runs[name].rate(2 * EPOCH) for name in (FIRST, LAST))
        ratio = adaptive.rate(2 * EPOCH) / best
        yield ratio >= 0.85, f"≥ 85 % of the better static plan where data flips ({ratio:.0%})"


def report(scenario: str, runs: Mapping[str, Run], batches: int) -> Table:
    """Throughput by quarters of the run."""
    table = Table(title=f"{scenario}: {SCENARIOS[scenario].title} ({batches} batches), 1,000 input rows/s")
    table.add_column("")
    quarters = [(batches * i // 4, batches * (i + 1) // 4) for i in range(4)]
    for first, last in quarters:
        table.add_column(f"batches {first}–{last - 1}", justify="right")
    table.add_column("whole", justify="right")
    table.add_column("slowest batch", justify="right")
    for name, one in runs.items():
        rates = [f"{one.rate(first, last) / 1e3:,.0f}" for first, last in quarters]
        table.add_row(name, *rates, f"{one.rate() / 1e3:,.0f}", f"{max(one.seconds[1:]):.2f} s")
    return table


def plotted(scenario: str, runs: Mapping[str, Run]) -> Plot:
    """Throughput over the batches."""
    lines = {name: (list(range(len(one.rows))), one.smooth(3)) for name, one in runs.items()}
    known = {f"{change.way} ({change.batch})": float(change.batch) for change in runs[ADAPTIVE].changes}
    title = f"{scenario}: {SCENARIOS[scenario].title}"
    return Plot(title, "batch", "input rows/s", lines, known, log_y=True)


def main(arguments: list[str]) -> int:
    """Print tables and verdicts; 1 if contenders have other results or, with ``--strict``, a target is missed."""
    parser = make_parser("adaptive", __doc__, "cores strict")
    parser.add_argument("--scenarios", nargs="+", choices=sorted(SCENARIOS), default=list(SCENARIOS))
    parser.add_argument(
        "--rows", type=int, default=20_000, help="rows of each stream in a batch, a second of it"
    )
    parser.add_argument("--batches", type=int, default=160)
    parser.add_argument("--migrate", choices=weft.Adaptation.WAYS, default="auto", help="how plans change")
    parser.add_argument("--png", type=Path, help="a file for the plots")
    parser.add_argument("--explain", action="store_true", help="print the plan at the end")
    options = parser.parse_args(arguments)
    console, wrong, missed, plots = make_console(140), False, False, []
    for scenario in options.scenarios:
        runs: dict[str, Run] = {}
        with tempfile.TemporaryDirectory(prefix="weft-bench-") as folder:
            say(f"{scenario}: writing {options.batches} batches")
            write_batches(Path(folder, "in"), SCENARIOS[scenario], options.batches, options.rows)
            contenders = (FIRST, ADAPTIVE) if scenario == "steady" else (FIRST, LAST, ADAPTIVE)
            for contender in contenders:
                work = Path(folder, contender.replace(" ", "_"))
                runs[contender] = run(Path(folder, "in"), work, contender, scenario, options)
        console.print(report(scenario, runs, options.batches))
        for change in runs[ADAPTIVE].changes:
            console.print(f"  {change}", highlight=False)
        for reached, what in verdicts(scenario, runs, options.batches):
            console.print(f"verdict: {'reached' if reached else 'missed '}  {what}", highlight=False)
            missed |= not reached
        if len({one.results for one in runs.values()}) > 1:
            console.print(f"results differ: {[one.results for one in runs.values()]}")
            wrong = True
        plots.append(plotted(scenario, runs))
    if options.png:
        draw(options.png, plots)
    return int(wrong or (options.strict and missed))
