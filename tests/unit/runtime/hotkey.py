"""One hot key in a task of its own process: how much memory joining it took, beyond what was there before.

Run by `python -m tests.unit.runtime.hotkey SINK ROWS PORTION FOLDER`; prints bytes and results as JSON.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.unit.runtime.held_state import HeldState
from weft.connectors.files.parquet_sink import to_parquet
from weft.logical.codec import encode
from weft.optimizer.cost import DEFAULT_WEIGHTS
from weft.optimizer.space import Options
from weft.runtime.hop.admission import admit, route_input
from weft.runtime.hop.interpret import run_hop
from weft.runtime.hop.outcome import HopOptions, Outcome
from weft.runtime.log.values import BatchPlan, Manifest
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.model.limits import TaskLimits
from weft.runtime.output.batch_files import read_file
from weft.runtime.output.outlet import TaskOutlet
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.wire.exchange import Exchange, Sender, SentParcel
from weft.runtime.wire.messages import Message
from weft.runtime.wire.reports import HopReport, ResultsReport
from weft.runtime.wire.task_input import Job, Setup
from weft.session.session import Session
from weft.storage.storage import LocalDisk

PAIR = "SELECT a.x AS x, b.x AS y FROM a, b WHERE a.k = b.k"
CHAIN = "SELECT a.x AS x, b.x AS y FROM a, b, c WHERE a.k = b.k AND b.x = c.x"


def own_memory() -> int:
    """The bytes of this process that are in no file."""
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("RssAnon"))


class Peak:
    """The most own memory while it is entered."""

    def __enter__(self) -> Peak:
        self.bytes, self._done = own_memory(), threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(0.002):
            self.bytes = max(self.bytes, own_memory())


def said_of(outlet: TaskOutlet, outcome: Outcome) -> Iterator[Message]:
    """All that a task says of a hop: what it sends, and its report."""
    report = yield from outlet.messages(outcome)
    yield report.to_message()


def hop(kind: str, rows: int, portion: int, folder: Path) -> list[Message]:
    """What a task says of a batch in which two streams bring so many rows of one key.

    A third finds little in their matches: where it is in the same task (``local``), or in another hop (``chain``).
    """
    weights = replace(DEFAULT_WEIGHTS, keep=1e-4, hop=1e-9) if kind == "chain" else DEFAULT_WEIGHTS
    session = Session(options=Options(weights=weights))
    for name in "abc":
        session.stream(name, "k long, x long")
    text = CHAIN if kind in ("chain", "local") else PAIR
    program = ExecutableGraph(session.query(text, name="q", strategy="flat").graph)
    batch_order, state = BatchOrder(0, ("c", "a", "b"), 1), HeldState()
    tables = {name: pa.table({"k": np.zeros(rows, np.int64), "x": np.arange(rows)}) for name in "ab"}
    tables["c"] = pa.table({"k": [0], "x": [0]})
    arrived: dict[str, list[pa.RecordBatch]] = {}  # by edge; a hop takes what is for it
    for alias in program.graph.aliases:
        for parcel in route_input(
            program, alias, admit(program, alias, tables[alias]).batch, batch_order
        ).sent:
            arrived.setdefault(parcel.edge, []).append(parcel.batch)
    sinks: dict[str, Any] = {"q": to_parquet(folder / "out")} if kind == "parquet" else {}
    for sink in sinks.values():
        sink.open(pa.schema([("x", pa.int64())]))
    counting = frozenset("q" if kind == "count" else "")
    limits = TaskLimits(portion_bytes=portion)
    exchange, plan = Exchange(str(folder)), BatchPlan(0, 0, "", encode(batch_order))
    setup = Setup(LocalDisk(folder), "", {}, {})
    job = Job(setup, plan, Manifest(), sinks, counting, exchange=exchange, limits=limits)
    said: list[Message] = []
    for number in range(1, len(program.hops)):
        with TaskOutlet(job, Sender(number, 0)) as outlet:
            outcome = run_hop(
                program, number, arrived, state, batch_order, HopOptions(counting, outlet, limits)
            )
            said += said_of(outlet, outcome)
        arrived = {}
        for message in said:
            if not message.is_report:
                edge = SentParcel.from_message(message).edge
                arrived.setdefault(edge, []).extend(_batches(message, folder))
    return said


def main(kind: str, rows: str, portion: str, folder: str) -> None:
    """Once with little, so that all is loaded; then with all."""
    hop(kind, 10, int(portion), Path(folder))
    before = own_memory()
    with Peak() as peak:
        told = hop(kind, int(rows), int(portion), Path(folder))
    reports = [HopReport.from_message(message) for message in told if HopReport.is_in(message)]
    counts = [report.counts for report in reports if report.counts]
    sent = [message for message in told if ResultsReport.is_in(message) or not message.is_report]
    given = sum(batch.num_rows for message in sent for batch in _batches(message, Path(folder)))
    print(json.dumps({"bytes": peak.bytes - before, "counts": counts, "given": given}))


def _batches(message: Message, folder: Path) -> list[pa.RecordBatch]:
    """The batches of a parcel, or of results, which are mapped if they are many."""
    if not message.is_report:
        return SentParcel.from_message(message).packed.batches()
    found = ResultsReport.from_message(message)
    read = (batch for name in found.files for batch in read_file(LocalDisk(folder), name))
    return [*found.packed.batches(), *read]


if __name__ == "__main__":
    main(*sys.argv[1:])
