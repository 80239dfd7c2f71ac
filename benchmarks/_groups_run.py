"""The process of one contender of `weft bench groups`: `python -m benchmarks._groups_run TASK ANSWER`, both JSON files.

Guarantees: all contenders see the same files and the same queries at the same moments: some queries run from the start,
the others begin with the next files, a few with each, and then come the remaining files. They differ in how queries are
grouped, and in nothing else.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

from benchmarks._ajoin import ATR_MAX, ATTRIBUTES, SCHEMA
from benchmarks._ajoin_run import make_sink, state_bytes
from benchmarks._process import say
from benchmarks._progress import weft_batches

import weft

__all__ = ["CONTENDERS", "GroupsTask", "run_groups"]

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
    with _grouped(task):
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
        options=weft.Options(partitions=task.cores),
        adapt="auto" if task.contender == "revised" else "off",
        adaptation=weft.Adaptation(epoch_batches=task.epoch, epoch_seconds=0.0),
    )
    for name in task.streams:
        source = weft.files("parquet", str(incoming / name), schema=SCHEMA, max_files_per_batch=1)
        session.stream(name, source, event_time="ts")
    return session


@contextmanager
def _grouped(task: GroupsTask) -> Iterator[None]:
    """Let the planner form the groups of a contender: those it forms by itself, or those it is told."""
    if task.contender in ("placed", "revised"):
        yield
        return
    told = task.groups if task.contender == "known" else {}

    def groups(queries: Mapping[str, object], *_: object, **__: object) -> dict[str, str]:
        return {name: told.get(name, "") for name in queries}

    with (
        mock.patch("weft.adapting.planner.assigned_groups", groups),
        mock.patch("weft.adapting.planner.separate_groups", groups),
    ):
        yield


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


def main(question: str, answer: str) -> None:
    """Run what the task says."""
    task = GroupsTask(**json.loads(Path(question).read_text(encoding="utf-8")))
    Path(answer).write_text(json.dumps(run_groups(task)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
