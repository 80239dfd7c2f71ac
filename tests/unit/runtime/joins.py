"""Small queries and tables for the tests of the runtime."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from weft.plan.physical.graph import PhysicalGraph
from weft.session.session import Session

SECOND = 1_000_000


def session(late: str = "drop", idle_after: str | None = None, **lateness: str) -> Session:
    """Streams v, w and c with event times, and u without."""
    made = Session()
    columns = {
        "v": "vid long, x long, ts timestamp",
        "w": "vid long, uid long, s string, ts timestamp",
        "c": "uid long, t string, ts timestamp",
    }
    for name, schema in columns.items():
        late_by = lateness.get(name, "0 seconds")
        made.stream(name, schema, event_time="ts", lateness=late_by, late=late, idle_after=idle_after)
    made.stream("u", "vid long, x long", idle_after=idle_after)
    return made


def graph(sql: str, strategy: str = "flat", **given: str) -> PhysicalGraph:
    """The graph of a query over those streams."""
    return session(**given).query(sql, strategy=strategy).graph


def times(seconds: Sequence[float | None]) -> Any:
    """A column of times."""
    micros = [None if second is None else int(second * SECOND) for second in seconds]
    return pa.array(micros, pa.int64()).cast(pa.timestamp("us", "UTC"))


def v(*rows: tuple[int | None, int | None, float | None]) -> pa.Table:
    """Tuples of v: vid, x, seconds."""
    vid, x, ts = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table({"vid": pa.array(vid, pa.int64()), "x": pa.array(x, pa.int64()), "ts": times(ts)})


def w(*rows: tuple[int | None, int | None, str | None, float | None]) -> pa.Table:
    """Tuples of w: vid, uid, s, seconds."""
    vid, uid, s, ts = zip(*rows, strict=True) if rows else ((), (), (), ())
    ids = {"vid": pa.array(vid, pa.int64()), "uid": pa.array(uid, pa.int64())}
    return pa.table({**ids, "s": pa.array(s, pa.string()), "ts": times(ts)})


def c(*rows: tuple[int | None, str | None, float | None]) -> pa.Table:
    """Tuples of c: uid, t, seconds."""
    uid, t, ts = zip(*rows, strict=True) if rows else ((), (), ())
    return pa.table({"uid": pa.array(uid, pa.int64()), "t": pa.array(t, pa.string()), "ts": times(ts)})


def sorted_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """The rows of a table, sorted."""
    return sorted(tuple(row.values()) for row in table.to_pylist())
