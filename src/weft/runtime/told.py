"""What the tasks of a batch told the driver, and the manifest that follows from it.

Guarantees: `next_manifest` is a function of the manifest before, the plan and what was told, and of nothing else. It
names the files that tasks reported, so what a lost attempt wrote is nobody's.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from weft.errors import WeftError
from weft.logical.query import Query
from weft.runtime.checkpoint import Manifest, Plan, RunFile, Runs
from weft.runtime.interpret import StepCount
from weft.runtime.messages import NOTE, Message, batches_of, error_of
from weft.runtime.metrics import BatchMetrics, InputMetrics, sum_steps, sum_stores
from weft.runtime.watermark import Watermarks

__all__ = ["Told", "next_manifest"]


@dataclass
class Told:
    """The notes of a batch, sorted."""

    inputs: list[dict[str, Any]] = field(default_factory=list)
    reads: list[dict[str, Any]] = field(default_factory=list)
    steps: dict[str, list[StepCount]] = field(default_factory=dict)
    runs: list[tuple[str, str, int, tuple[RunFile, ...]]] = field(default_factory=list)
    parts: list[dict[str, Any]] = field(default_factory=list)
    results: dict[str, list[pa.RecordBatch]] = field(default_factory=dict)
    bad: list[bytes] = field(default_factory=list)
    times: dict[int, float] = field(default_factory=dict)
    errors: list[WeftError] = field(default_factory=list)

    @classmethod
    def of(cls, messages: Iterable[Message]) -> Told:
        """What messages say."""
        told = cls()
        for message in messages:
            kind, _, query = message.target.removeprefix(NOTE).partition("\t")
            if kind == "result":
                told.results.setdefault(query, []).extend(batches_of(message.data))
            elif kind == "bad":
                told.bad.append(message.data.to_pybytes())
            else:
                told._take(kind, message.content())
        return told

    def _take(self, kind: str, content: dict[str, Any]) -> None:
        if kind == "input":
            self.inputs.append(content)
        elif kind == "read":
            self.reads.append(content)
        elif kind == "step":
            self.steps.setdefault(content.pop("query"), []).append(StepCount(**content))
        elif kind == "runs":
            found = tuple(RunFile.from_dict(run) for run in content["runs"])
            self.runs.append((content["query"], content["store"], content["partition"], found))
        elif kind == "part":
            self.parts.append(content)
        elif kind == "seconds":
            self.times[content["hop"]] = max(content["seconds"], self.times.get(content["hop"], 0.0))
        elif kind == "error":
            self.errors.append(error_of(content))

    @property
    def malformed(self) -> dict[str, int]:
        """How many records were set aside, by stream."""
        found: dict[str, int] = {}
        for one in self.reads:
            found[one["stream"]] = found.get(one["stream"], 0) + one["malformed"]
        return found

    @property
    def seen(self) -> int:
        """How many records there were, good and bad."""
        return sum(one["rows"] + one["malformed"] for one in self.reads)

    def rows(self, query: str) -> int:
        """How many results a query had."""
        here = sum(batch.num_rows for batch in self.results.get(query, []))
        return int(here + sum(part["rows"] for part in self.parts if part["query"] == query))

    def part_names(self, query: str) -> list[str]:
        """The parts that tasks wrote of a query's results."""
        return [part["name"] for part in self.parts if part["query"] == query]

    def seconds(self) -> tuple[float, ...]:
        """The slowest task of every hop, the sources' first."""
        return tuple(self.times[hop] for hop in sorted(self.times))

    def input(self, query: Query, name: str, alias: str) -> InputMetrics:
        """What an input of a query brought."""
        mine = [one for one in self.inputs if (one["query"], one["alias"]) == (name, alias)]
        rows, late, untimed = (sum(one[key] for one in mine) for key in ("rows", "late", "untimed"))
        times = [one for one in mine if one["newest"] is not None]
        return InputMetrics(
            rows,
            late,
            untimed,
            self.malformed.get(query.input(alias).stream.name, 0),
            min((one["oldest"] for one in times), default=None),
            max((one["newest"] for one in times), default=None),
        )


def next_manifest(
    plan: Plan, before: Manifest, told: Told, queries: Mapping[str, Query], figures: Mapping[str, Any]
) -> Manifest:
    """What a batch leaves; ``figures`` are those of its metrics that are the same for every query."""
    runs = _next_runs(before.runs, told)
    marks, active, arrived, metrics = {}, {}, {}, {}
    for name, query in queries.items():
        inputs = {alias: told.input(query, name, alias) for alias in query.aliases}
        water = _water(
            query, Watermarks(before.marks.get(name, {}), before.active.get(name, {})), inputs, plan
        )
        marks[name], active[name] = dict(water.marks), dict(water.active)
        counted = before.arrived.get(name, {})
        arrived[name] = {alias: counted.get(alias, 0) + one.rows for alias, one in inputs.items()}
        held = [
            (s, run.bounds) for s, parts in runs.get(name, {}).items() for f in parts.values() for run in f
        ]
        metrics[name] = asdict(
            BatchMetrics(
                plan.number,
                tuple(plan.turns[name]["order"]),
                inputs,
                sum_steps(told.steps.get(name, [])),
                sum_stores(held),
                told.rows(name),
                marks[name],
                told.seconds(),
                **figures,
            )
        )
    results = {name: before.results.get(name, 0) + told.rows(name) for name in queries}
    records = {
        "seen": before.records.get("seen", 0) + told.seen,
        "bad": before.records.get("bad", 0) + len(told.bad),
    }
    return Manifest(plan.number, runs, marks, active, arrived, results, records, metrics)


def _next_runs(before: Runs, told: Told) -> Runs:
    """The live runs: a partition that reported has those it reported, any other the ones it had."""
    runs = {
        query: {store: dict(parts) for store, parts in stores.items()} for query, stores in before.items()
    }
    for query, store, partition, found in told.runs:
        parts = runs.setdefault(query, {}).setdefault(store, {})
        parts.pop(partition, None)
        if found:
            parts[partition] = found
    return runs


def _water(query: Query, old: Watermarks, inputs: Mapping[str, InputMetrics], plan: Plan) -> Watermarks:
    newest: dict[str, int] = {}
    for alias, one in inputs.items():
        stream = query.input(alias).stream.name
        if one.newest is not None:
            newest[stream] = max(one.newest, newest.get(stream, one.newest))
    return old.advance(query, newest, plan.now)
