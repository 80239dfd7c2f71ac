"""What the tasks of a batch told the driver.

Guarantees: whatever the order in which notes come, they say the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from weft.errors import FunctionError, WeftError
from weft.kernels.expr.user_functions import CallCounts
from weft.plan.graph import PhysicalGraph
from weft.runtime.hop.census import Census, TooMany
from weft.runtime.hop.outcome import StepCount
from weft.runtime.log.values import RunFile
from weft.runtime.observe.metrics import (
    InputMetrics,
)
from weft.runtime.task.messages import NOTE, Message, error_of, unpacked
from weft.stats.heavy import Counted

__all__ = ["TaskReports"]


# Who sent results (`worker.Sender`), and what.
Sent = tuple[tuple[Any, ...], list[pa.RecordBatch]]


@dataclass
class TaskReports:
    """The notes of a batch, sorted."""

    inputs: list[dict[str, Any]] = field(default_factory=list)
    reads: list[dict[str, Any]] = field(default_factory=list)
    steps: dict[str, list[StepCount]] = field(default_factory=dict)  # by graph
    runs: list[tuple[str, str, int, tuple[RunFile, ...]]] = field(default_factory=list)
    census: list[tuple[str, Census]] = field(default_factory=list)  # by query
    parts: dict[str, list[str]] = field(default_factory=dict)  # what tasks wrote, by query
    counts: dict[str, int] = field(default_factory=dict)  # results, by query
    closed: dict[str, int] = field(default_factory=dict)  # those of them that miss something, by query
    sent: dict[str, list[Sent]] = field(default_factory=dict)  # results, by query
    read: dict[str, dict[int, int]] = field(
        default_factory=dict
    )  # tuples that are counted, by input and task
    failed: dict[str, str] = field(default_factory=dict)  # why, by query
    broken: dict[str, FunctionError] = field(
        default_factory=dict
    )  # those of them that a user's function failed
    calls: dict[str, list[CallCounts]] = field(default_factory=dict)  # of users' functions, by graph
    samples: dict[str, dict[int, float]] = field(
        default_factory=dict
    )  # query-sets and their number, by input
    heavy: list[Counted] = field(default_factory=list)  # common values of keys
    dealt: list[tuple[str, str, str, int]] = field(default_factory=list)  # graph, store, read task, tuples
    bad: list[bytes] = field(default_factory=list)
    times: dict[int, float] = field(default_factory=dict)  # of the slowest task, by hop
    work: dict[int, float] = field(default_factory=dict)  # of all tasks, by hop
    errors: list[WeftError] = field(default_factory=list)

    @classmethod
    def of(cls, messages: Iterable[Message]) -> TaskReports:
        """What messages say."""
        told = cls()
        for message in messages:
            kind, *about = message.target.removeprefix(NOTE).split("\t")
            if kind == "result":
                query, how, sender = about
                batches = unpacked(how, message.data, keep=True)
                told.sent.setdefault(query, []).append((tuple(json.loads(sender)), batches))
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
        elif kind == "count":
            self.read.setdefault(content["alias"], {})[content["task"]] = content["rows"]
        elif kind == "steps":
            self.steps.setdefault(content["graph"], []).extend(StepCount(**one) for one in content["steps"])
        elif kind == "runs":
            found = tuple(RunFile.from_dict(run) for run in content["runs"])
            self.runs.append((content["graph"], content["store"], content["partition"], found))
        elif kind == "census":
            told = tuple(TooMany(**each) for each in content["too_many"])
            figures = (content["seen"], content["complete"], content["aside"], told)
            self.census.append((content["query"], Census(*figures)))
        elif kind == "answers":
            self._answered(content)
        elif kind == "sample":
            sample = self.samples.setdefault(content["alias"], {})
            for bits, number in content["sets"].items():
                sample[int(bits, 16)] = sample.get(int(bits, 16), 0.0) + number
        elif kind == "heavy":
            self.heavy += [Counted.from_dict(one) for one in content["counted"]]
        elif kind == "dealt":
            self.dealt.append((content["graph"], content["store"], str(content["task"]), content["rows"]))
        elif kind == "failed":
            self.failed.setdefault(content["query"], content["message"])
            if "function" in content:
                error = FunctionError(content["function"], hint=content["hint"])
                self.broken.setdefault(content["query"], error)
        elif kind == "calls":
            self.calls.setdefault(content["graph"], []).append(CallCounts.from_dict(content["calls"]))
        elif kind == "seconds":
            self._worked(content["hop"], content["seconds"])
        elif kind == "error":
            self.errors.append(error_of(content))

    def _worked(self, hop: int, seconds: float) -> None:
        self.times[hop] = max(seconds, self.times.get(hop, 0.0))
        self.work[hop] = seconds + self.work.get(hop, 0.0)

    def _answered(self, content: dict[str, Any]) -> None:
        for query, rows in content["counts"].items():
            self.counts[query] = self.counts.get(query, 0) + rows
        for query, rows in content["closed"].items():
            self.closed[query] = self.closed.get(query, 0) + rows
        for query, name in content["parts"].items():
            self.parts.setdefault(query, []).append(name)

    def with_past(self, past: TaskReports) -> TaskReports:
        """What the job at the boundary answered is part of the batch's answers."""
        told = replace(self, parts={**self.parts}, counts={**self.counts}, sent={**self.sent})
        told.failed, told.broken = {**past.failed, **self.failed}, {**past.broken, **self.broken}
        for query, rows in past.counts.items():
            told.counts[query] = rows + told.counts.get(query, 0)
        for query, names in past.parts.items():
            told.parts[query] = [*names, *told.parts.get(query, [])]
        for query, sent in past.sent.items():
            told.sent[query] = [*sent, *told.sent.get(query, [])]
        return told

    def results(self, query: str) -> list[pa.RecordBatch]:
        """The results of a query that came to the driver; of one that failed, none."""
        if query in self.failed:
            return []
        return [batch for _, batches in self.sent.get(query, []) for batch in batches]

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
        return 0 if query in self.failed else self.counts.get(query, 0)

    def seconds(self) -> tuple[float, ...]:
        """The slowest task of every hop, the sources' first."""
        return tuple(self.times[hop] for hop in sorted(self.times))

    def busiest(self) -> tuple[float, ...]:
        """The part of every hop's work that its slowest task did, the sources' first."""
        return tuple(self.times[hop] / (self.work[hop] or 1.0) for hop in sorted(self.times))

    def brought(self, graph: PhysicalGraph, name: str) -> dict[str, InputMetrics]:
        """What the inputs of a graph brought."""
        found: dict[str, list[dict[str, Any]]] = {alias: [] for alias in graph.aliases}
        for one in self.inputs:
            if one["graph"] == name:
                found[one["alias"]].append(one)
        malformed = self.malformed
        return {
            alias: _input(notes, malformed.get(graph.input(alias).stream.name, 0))
            for alias, notes in found.items()
        }


def _input(notes: list[dict[str, Any]], malformed: int) -> InputMetrics:
    rows, late, untimed = (sum(one[key] for one in notes) for key in ("rows", "late", "untimed"))
    times = [one for one in notes if one["newest"] is not None]
    oldest = min((one["oldest"] for one in times), default=None)
    newest = max((one["newest"] for one in times), default=None)
    return InputMetrics(rows, late, untimed, malformed, oldest, newest)
