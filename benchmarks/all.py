"""Every benchmark, one after the other, as one page with tables and plots, next to the last committed results.

Each runs in a process of its own, at the size that is stated: "small", whose arguments are listed in
`benchmarks/_sizes.py`, takes minutes; "full" is what each takes by itself, and takes hours. With --report the page goes
to a file, as HTML without anything outside it. With --save the ratios go to benchmarks/results/, one file for each
benchmark, with the machine and the versions, to be committed. Absolute figures of other machines say nothing, but
ratios to a peer in the same run do: one that is more than a tenth worse than the committed one of the same size is
named, and gives the exit code 1, as does a benchmark that fails.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from benchmarks._all_page import write_page
from benchmarks._all_run import BenchmarkTask, run_benchmark
from benchmarks._committed import RESULTS, Result, committed, machine, save, versions, worse
from benchmarks._harness import ContenderError, make_console, make_parser, make_table, run_alone, say, some_of
from benchmarks._sizes import NOT_MEASURED, SIZES
from rich.console import Console

from weft.service.bench import benchmark_titles

HOUR = 3600.0


def main(arguments: list[str]) -> int:
    """Run the benchmarks; 1 if one fails, or a ratio is worse than the committed one."""
    titles = {name: title for name, title in benchmark_titles().items() if name not in NOT_MEASURED}
    options = _options(arguments, titles)
    console, results = make_console(), []
    for name in options.only:
        say(f"{name}: {titles[name]}")
        results.append(_run(name, options))
    before = {one.name: known for one in results if (known := committed(options.results, one))}
    _show(console, results, before)
    if options.report:
        write_page(Path(options.report), results, titles, before)
    if options.save:
        for one in results:
            save(options.results, one)
    bad = [f"{one.name}: {trouble}" for one in results for trouble in one.troubles]
    bad += [line for one in results for line in worse(one, before.get(one.name))]
    for line in bad:
        console.print(line, highlight=False, markup=False)
    return int(bool(bad))


def _run(name: str, options: argparse.Namespace) -> Result:
    """What a benchmark gives; one that fails or takes too long gives what went wrong."""
    arguments = SIZES[options.size].get(name, [])
    began = time.perf_counter()
    try:
        answer = run_alone(run_benchmark, BenchmarkTask(name, arguments), options.timeout)
    except ContenderError as error:
        answer = {"output": "", "troubles": [str(error)]}
    return Result(
        name,
        options.size,
        tuple(arguments),
        round(time.perf_counter() - began, 1),
        answer["output"],
        answer.get("ratios", {}),
        tuple((target, reached) for target, reached in answer.get("judged", ())),
        tuple(answer["troubles"]),
        machine(),
        versions(),
    )


def _show(console: Console, results: list[Result], before: dict[str, Result]) -> None:
    """The table of all ratios."""
    table = make_table("ratios to peers; more is better", ("benchmark", "ratio", "now", "committed"), left=2)
    for one in results:
        known = before[one.name].ratios if one.name in before else {}
        for what, ratio in one.ratios.items():
            then = f"{known[what]:.2f} ×" if what in known else "–"
            table.add_row(one.name, what, f"{ratio:.2f} ×", then)
    console.print(table)


def _options(arguments: list[str], titles: dict[str, str]) -> argparse.Namespace:
    parser = make_parser("all", __doc__, "timeout", timeout=2 * HOUR)
    add, names = parser.add_argument, tuple(titles)
    add("--size", choices=sorted(SIZES), default="small", help="of every benchmark")
    add("--only", type=some_of(names), default=list(names), help=f"some of {','.join(names)}")
    add("--report", metavar="FILE", help="write the page there")
    add("--save", action="store_true", help="keep the ratios as those to compare with")
    add("--results", type=Path, default=RESULTS, help="where the committed results are")
    return parser.parse_args(arguments)
