"""Random lives of a sink: batches, crashes at every step of a commit, restarts and replays, and what readers then see.

The sink is used as the loop uses it: the checkpoint's last batch moves on only after a commit, and a batch that was
interrupted is committed again with the same rows, perhaps cut into other parts.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

from weft.ports.sink import PartSink, Sink

SCHEMA = pa.schema([("k", pa.int64()), ("c", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
OWNER = "checkpoint-1"


class CrashError(BaseException):
    """The process ends here, whatever a sink does about errors."""


def rows(keys: list[int]) -> pa.Table:
    """A batch: texts with quotes, line breaks and NULLs among the values."""
    texts = [(None, "é\"'", "a,\nb", "US")[key % 4] for key in keys]
    times = pa.array([key * 1_000_003 for key in keys], pa.int64()).cast(pa.timestamp("us", "UTC"))
    return pa.table([pa.array(keys, pa.int64()), pa.array(texts, pa.string()), times], schema=SCHEMA)


def expected(keys: list[int]) -> list[tuple[Any, ...]]:
    """What a reader is to see, in the order of the keys."""
    return [tuple(row.values()) for row in rows(sorted(keys)).to_pylist()]


def started(make: Callable[[], Sink], last: int, owner: str | None = OWNER) -> Any:
    """A sink after a restart."""
    sink = make()
    sink.open(SCHEMA, owner)
    sink.recover(last)
    return sink


def commit(sink: Sink, batch: int, keys: list[int], rng: random.Random) -> None:
    """Commit a batch as rows of the driver or, if the sink can take them, as parts of tasks."""
    sink.begin(batch)
    if not isinstance(sink, PartSink) or rng.random() < 0.3:
        sink.commit(batch, rows(keys))
        return
    cut = rng.randrange(len(keys) + 1)
    names = [
        sink.write_part(batch, number, rows(part)) for number, part in enumerate((keys[:cut], keys[cut:]))
    ]
    sink.write_part(batch, 0, rows([-1]))  # a task that was run twice
    sink.commit_parts(batch, names)


def live(make: Callable[[], Sink], crash: Callable[[int | None], None], rng: random.Random) -> list[int]:
    """Let a sink live through batches and crashes; returns the keys that were given to it, once each.

    ``crash`` makes the given half-step of the commit that follows fail: even numbers before the step, odd ones after.
    """
    given: list[int] = []
    last, sink = -1, started(make, -1)
    while last < 5:
        batch = last + 1
        keys = [batch * 100 + number for number in range(rng.choice((0, 1, 9)))]
        given += keys
        while True:
            crash(rng.choice((None, 0, 1, 2, 3, 4, 5)))
            try:
                commit(sink, batch, keys, rng)
                lost = rng.random() < 0.3  # the manifest was not written
            except CrashError:
                lost = True
            finally:
                crash(None)
            if not lost:
                break
            sink = started(make, last)
        last = batch
    return given


def crash_at(monkeypatch: pytest.MonkeyPatch, steps: list[tuple[Any, str]]) -> Callable[[int | None], None]:
    """What makes half-steps fail: the steps are functions, each with the object that has it."""
    done, limit = 0, None

    def wrapped(step: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any, **options: Any) -> Any:
            nonlocal done
            here, done = done, done + 1
            if limit == 2 * here:
                raise CrashError
            found = step(*args, **options)
            if limit == 2 * here + 1:
                raise CrashError
            return found

        return run

    def arm(at: int | None) -> None:
        nonlocal done, limit
        done, limit = 0, at

    for place, name in steps:
        monkeypatch.setattr(place, name, wrapped(getattr(place, name)))
    return arm


GROUPS = pa.schema([("a b", pa.string()), ("k", pa.float64()), ("n", pa.int64())])


def groups_live(
    make: Callable[[], Sink], crash: Callable[[int | None], None], rng: random.Random
) -> list[Any]:
    """Batches of groups that change, with NULL and NaN as keys, through crashes and replays; gives the last rows."""

    def started_at(batch: int) -> Sink:
        sink = make()
        sink.open(GROUPS, OWNER)
        sink.recover(batch - 1)
        return sink

    last: dict[str, tuple[Any, ...]] = {}
    for batch in range(5):
        keys = {(rng.choice(("x", "", None)), str(rng.choice((1.0, float("nan"), None)))) for _ in range(3)}
        changed = {
            str(key): (key[0], None if key[1] == "None" else float(key[1]), rng.randrange(99)) for key in keys
        }
        sink, table = started_at(batch), _groups(list(changed.values()))
        crash(rng.randrange(5))
        with suppress(CrashError):
            sink.commit(batch, table)
        crash(None)
        started_at(batch).commit(batch, table)  # whether or not it was complete
        last |= changed
    return sorted(map(str, last.values()))


def _groups(found: list[tuple[Any, ...]]) -> pa.Table:
    columns = zip(*found, strict=True)
    return pa.table(
        [pa.array(values, field.type) for values, field in zip(columns, GROUPS, strict=True)], schema=GROUPS
    )
