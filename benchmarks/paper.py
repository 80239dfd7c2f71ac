"""The papers' experiments, each by one command: theirs beside ours.

Name one or more figures, or `all`; without a name they are listed. Every figure is measured twice, each time in a
process of its own, and its results are written as JSON and, if it has plots, as PNG; with them, an HTML page for all
figures that were measured so far. `--page` writes docs/evidence.md from the results and measures nothing.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks._harness import ContenderError, conclude, make_console, make_parser, make_table, say
from benchmarks.papers.all_figures import FIGURES
from benchmarks.papers.figures import (
    RESULTS,
    RUNS,
    Figure,
    columns,
    means,
    measure,
    read_results,
    spread_text,
    verdicts,
    write,
)
from benchmarks.papers.page import draw_png, evidence, html_page, number
from rich.console import Console

from weft.errors import ConfigError, nearest

EVIDENCE = Path(__file__).parents[1] / "docs" / "evidence.md"
ALL = "all"


def shown(console: Console, figure: Figure, result: Mapping[str, Any]) -> None:
    """Print what was measured of a figure, next to what the paper says."""
    rows = means(figure, result["runs"])
    table = make_table(
        f"{figure.paper}, {figure.title}",
        columns(rows),
        len(figure.keys),
        caption=spread_text(figure, result["runs"]),
    )
    for row in rows:
        table.add_row(*(number(row.get(name, "")) for name in columns(rows)))
    console.print(table)
    for fact in figure.facts:
        console.print(f"there: {fact.where}: {fact.said}", highlight=False, markup=False)
    for verdict in verdicts(figure, result):
        console.print(f"here: {verdict.claim.text}: {verdict}", highlight=False, markup=False)


def asked(names: list[str]) -> list[Figure]:
    """The figures of these names."""
    if ALL in names:
        return list(FIGURES.values())
    for name in names:
        if name not in FIGURES:
            raise ConfigError(f"there is no figure {name!r}", hint=nearest(name, [*FIGURES, ALL]))
    return [FIGURES[name] for name in names]


def write_pages(folder: Path) -> Path:
    """Draw the plots of all results, and write the page that has them."""
    results, images = read_results(folder), dict[str, Path]()
    for name, result in results.items():
        file = folder / f"{name}.png"
        if name in FIGURES and draw_png(FIGURES[name], result, file):
            images[name] = file
    page = folder / "papers.html"
    page.write_text(html_page(list(FIGURES.values()), results, images), encoding="utf-8")
    return page


def main(arguments: list[str]) -> int:
    """Measure figures, show them and write their results; 1 if one could not be measured."""
    options = _options(arguments)
    console, troubles = make_console(160), []
    if options.page:
        EVIDENCE.write_text(evidence(list(FIGURES.values()), read_results(options.results)), encoding="utf-8")
        console.print(f"wrote {EVIDENCE}")
        return 0
    if options.list or not options.names:
        table = make_table("The papers' figures", ("name", "paper", "what"), 3)
        for figure in FIGURES.values():
            table.add_row(figure.name, figure.paper, figure.title)
        console.print(table)
        return 0
    for figure in asked(options.names):
        say(f"{figure.name}: measuring")
        began = time.perf_counter()
        try:
            result = measure(figure, options.small, options.runs, options.timeout)
        except ContenderError as error:
            troubles.append(f"{figure.name}: {error}")
            continue
        write(result, options.results)
        shown(console, figure, result)
        say(f"{figure.name}: {time.perf_counter() - began:.0f} s")
    if options.plots:
        console.print(f"wrote {write_pages(options.results)}", highlight=False)
    return conclude(console, options, (), troubles)


def _options(arguments: list[str]) -> argparse.Namespace:
    parser = make_parser("paper", __doc__, "timeout strict", timeout=1800.0)
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="figures, as in clash-5.8; all: every one")
    add("--list", action="store_true", help="list the figures")
    add("--small", action="store_true", help="less data: about a minute for each figure")
    add("--runs", type=int, default=RUNS, help="how often each figure is measured")
    add("--results", type=Path, default=RESULTS, help="the folder of the results")
    add("--no-plots", dest="plots", action="store_false", help="leave out PNG files and the HTML page")
    add("--page", action="store_true", help="only write docs/evidence.md from the results")
    return parser.parse_args(arguments)
