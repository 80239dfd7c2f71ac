"""What a task gives, as messages: parcels for later hops, answers, counts.

Guarantees: every parcel says who sent it, so that those who get it can sort by that. Results of a query that failed in
the task are not among its answers.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import NamedTuple

from weft.errors import FunctionError, WeftError
from weft.runtime.census import Census
from weft.runtime.job import Job
from weft.runtime.messages import NOTE, Message, note
from weft.runtime.outcome import Outcome

__all__ = ["Sender", "failures", "outgoing"]


class Sender(NamedTuple):
    """Who sent a parcel: the hop (0: a read task), the number of its task, and of what it is made."""

    hop: int
    task: int
    alias: str = ""
    part: str = ""
    number: int = 0


def outgoing(job: Job, graph: str, sender: Sender, outcome: Outcome) -> Iterator[Message]:
    """Parcels for later hops, results and counts of a hop."""
    at = sender.task if sender.hop else 0
    last, how, data = None, "", None  # what goes to all partitions is packed once
    for number, parcel in enumerate(outcome.sent):
        if last is not parcel.batch:
            last, (how, data) = parcel.batch, job.exchange.pack(parcel.batch)
        origin = json.dumps(sender._replace(number=number))
        yield Message(parcel.partition, f"{graph}\t{parcel.edge}\t{origin}\t{how}", data)
    for query, census in outcome.census.items():
        if census != Census():
            yield note(at, "census", graph=graph, query=query, **asdict(census))
    if outcome.steps:
        yield note(at, "steps", graph=graph, steps=[asdict(count) for count in outcome.steps])
    if outcome.calls:
        yield note(at, "calls", graph=graph, calls=asdict(outcome.calls))
    yield from _answers(job, at, sender, outcome)


def _answers(job: Job, at: int, sender: Sender, outcome: Outcome) -> Iterator[Message]:
    """Results: written here, where their sink can do that, else on their way to the driver; and how many they are."""
    parts, failed = {}, dict(outcome.failed)
    for query, batches in outcome.results.items():
        if query in failed:
            continue
        sink = job.sinks.get(query)
        if sink is None:
            how, data = job.exchange.pack(*batches)
            yield Message(at, f"{NOTE}result\t{query}\t{how}\t{json.dumps(sender)}", data)
            continue
        try:
            parts[query] = sink.write_part(job.number, at, batches)
        except WeftError as error:
            failed[query] = error
    if outcome.counts or parts:
        yield note(at, "answers", counts=outcome.counts, parts=parts, closed=outcome.closed)
    yield from failures(at, failed)


def failures(at: int, failed: Mapping[str, Exception]) -> Iterator[Message]:
    """Queries that cannot be answered."""
    for query, why in failed.items():
        called = {"function": why.message, "hint": why.hint} if isinstance(why, FunctionError) else {}
        yield note(at, "failed", query=query, message=f"{type(why).__name__}: {why}", **called)
