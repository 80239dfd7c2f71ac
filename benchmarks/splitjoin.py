"""SplitJoin's benchmark: a band join in two dimensions over large windows of time and count.

R(x int, y float, z char[20]) and S(a int, b float, c double, d bool), uniform over 1 to 10,000, are joined where
r.x BETWEEN s.a - 10 AND s.a + 10 AND r.y BETWEEN s.b - 10 AND s.b + 10 (section 7.1). Windows of time are 15 minutes.

  throughput   tuples a second of both streams with full windows, from Parquet files to a sink (Figures 12 and 16)
  peers        the new tuples of one of these batches, joined with its windows by others: compiled nested loops over
               the same buckets, DuckDB, Polars; counts that differ give the exit code 1
  selectivity  the same with values spread over larger and smaller domains (Figure 17)
  precision    what ordered output costs (Figure 19)
  latency      from a tuple's arrival to its results at the sink, below saturation (Figures 13 and 15)

Windows are filled with large files; then every batch is a file of each stream. A batch lasts until the next one begins,
so Spark's bookkeeping is in its time. Every run has a process of its own. Peers have their tuples in memory, as Arrow,
and only count; Weft's rate is end to end. Slow peers take only some of a batch's tuples. All sections together take a
quarter of an hour on two cores; --sections takes some of them.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks._harness import ContenderError, conclude, make_console, run_alone, say
from benchmarks._splitjoin import Shape, kept_data
from benchmarks._splitjoin_peers import PEERS, PeerTask, is_installed, run_peer
from benchmarks._splitjoin_report import (
    Case,
    Latency,
    Peer,
    Report,
    Steady,
    latency_cases,
    latency_table,
    parse,
    peer_cases,
    peers_table,
    precision_cases,
    precision_table,
    selectivity_cases,
    selectivity_table,
    throughput_cases,
    throughput_table,
    verdicts,
)
from benchmarks._splitjoin_run import LatencyTask, WeftTask, can_order, run_latency, run_steady
from rich.console import Console
from rich.table import Table

ROUGHLY = 5  # seconds of input that warm up the run for the latency


@dataclass(frozen=True, slots=True)
class Track:
    """The directory of the runs, the options, and the report of what they found."""

    root: Path
    options: argparse.Namespace
    report: Report = field(default_factory=Report)

    def steady(self, case: Case) -> Steady | None:
        """Run Weft; None if that fails, and the report says why."""
        options = self.options
        shape = self._shape(case, options.batch_rows, options.warm_up + options.batches + 1)
        found = self._run(str(case), run_steady, lambda work: self._task(case, shape, work))
        return None if found is None else Steady(skip=shape.filling + options.warm_up, **found)

    def peer(self, name: str, case: Case, weft: Steady) -> Peer:
        """Have a peer join the last of Weft's measured batches."""
        options = self.options
        if not is_installed(name):
            return Peer(note="not installed: pip install 'weft[bench]'")
        shape = self._shape(case, options.batch_rows, options.warm_up + options.batches + 1)
        batch, rows = weft.measured.stop - 1, options.batch_rows
        most = min(rows, {"loops": options.loop_rows, "cells": rows}.get(name, options.peer_rows))

        def task(_: Path) -> PeerTask:
            where = (name, str(self._data(shape)), case.kind, case.size, case.domain, case.cores)
            first, second = weft.orders[batch]
            return PeerTask(*where, sum(shape.files[:batch]), rows, (first, second), most)

        found = self._run(f"{PEERS[name][0]}, {case.kind}", run_peer, task)
        if found is None:
            return Peer(note="it failed: see below")
        return Peer(**(found | {"expected": weft.results[batch]} if most == rows else found))

    def latency(self, case: Case) -> Latency | None:
        """Run Weft at a rate, and see how long tuples wait for their results."""
        options = self.options
        rows = max(1, round(options.latency_rate * options.interval / 2))
        warm_up = round(min(ROUGHLY, options.latency_seconds) / options.interval)
        files = warm_up + max(1, round(options.latency_seconds / options.interval))
        shape = self._shape(case, rows, files)

        def task(work: Path) -> LatencyTask:
            return LatencyTask(
                asdict(self._task(case, shape, work)), shape.filling, warm_up, options.interval
            )

        found = self._run(f"latency, {case}", run_latency, task)
        if found is None:
            return None
        return Latency(case, 2 * rows / options.interval, options.interval, found["visits"])

    def _run(
        self, what: str, contender: Callable[[Any], dict[str, Any]], task: Callable[[Path], Any]
    ) -> dict[str, Any] | None:
        """The answer of a run, in a process of its own unless all run together; its files are removed."""
        began, work = time.perf_counter(), Path(tempfile.mkdtemp(dir=self.root))
        say(what)
        try:
            made = task(work)
            if self.options.together:
                found: dict[str, Any] = json.loads(json.dumps(contender(made)))
                return found
            return run_alone(contender, made, self.options.timeout)
        except ContenderError as error:
            self.report.troubles.append(f"{what}: {error}")
            return None
        finally:
            shutil.rmtree(work)
            say(f"{what}: done in {time.perf_counter() - began:.0f} s")

    def _shape(self, case: Case, batch_rows: int, batches: int) -> Shape:
        fill = self.options.fill_rows
        return Shape(case.size, fill, batch_rows, batches, case.domain, self.options.seed)

    def _data(self, shape: Shape) -> Path:
        root = Path(self.options.cache).absolute() if self.options.cache else self.root
        if not (root / shape.name).exists():
            say(f"writing 2 streams of {sum(shape.files):,} tuples")
        return kept_data(root, shape)

    def _task(self, case: Case, shape: Shape, work: Path) -> WeftTask:
        return WeftTask(data=str(self._data(shape)), work=str(work), **asdict(case))


def steady(track: Track, console: Console, section: str, table: Callable[[Any], Table]) -> None:
    """Run the cases of a section that have not run yet, and print its table."""
    report = track.report
    found = getattr(report, section)
    cases = CASES[section](track.options)
    if section == "precision" and not can_order():
        report.notes.append(
            "order: this version of Weft has no ordered output, so there is nothing to compare"
        )
        cases = [case for case in cases if case.order == "none"]
    for case in cases:
        run = report.throughput.get(case) or track.steady(case)
        if run is not None:
            found[case] = run
    if found:
        console.print(table(found))


def peers(track: Track, console: Console) -> None:
    """Compare the peers with runs of Weft, which are those of the throughput if there are such."""
    report = track.report
    for case in peer_cases(track.options):
        weft = report.throughput.get(case) or track.steady(case)
        if weft is None:
            continue
        report.throughput[case] = weft
        found = report.peers[case] = {name: track.peer(name, case, weft) for name in track.options.peers}
        console.print(peers_table(case, weft, found))
        for name, peer in found.items():
            if peer.differs:
                text = f"{peer.results} results instead of {peer.expected}"
                report.troubles.append(f"{PEERS[name][0]}, {case}: {text}")


def latency(track: Track, console: Console) -> None:
    """Measure the visiting latency, and print it."""
    found = [run for case in latency_cases(track.options) if (run := track.latency(case)) is not None]
    track.report.latency.extend(found)
    if found:
        console.print(latency_table(found))


CASES = {"throughput": throughput_cases, "selectivity": selectivity_cases, "precision": precision_cases}
RUNS: dict[str, Callable[[Track, Console], None]] = {
    "throughput": lambda track, console: steady(
        track, console, "throughput", partial(throughput_table, batch_rows=track.options.batch_rows)
    ),
    "peers": peers,
    "selectivity": lambda track, console: steady(track, console, "selectivity", selectivity_table),
    "precision": lambda track, console: steady(track, console, "precision", precision_table),
    "latency": latency,
}


def main(arguments: list[str]) -> int:
    """Print tables and verdicts; 1 if results differ, a run fails or, with ``--strict``, a target is missed."""
    options = parse(__doc__ or "", arguments)
    console = make_console()
    with tempfile.TemporaryDirectory(prefix="weft-bench-", dir=options.directory) as folder:
        track = Track(Path(folder), options)
        for section in options.sections:
            RUNS[section](track, console)
    report = track.report
    for note in report.notes:
        console.print(note, highlight=False, markup=False)
    return conclude(console, options, verdicts(report), report.troubles, report.to_dict())
