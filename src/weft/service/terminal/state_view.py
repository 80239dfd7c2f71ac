"""A checkpoint as people read it: the tables of `weft state`.

Guarantees: shows what `weft.runtime.observe.inspect` found and computes nothing; names from a checkpoint are shown as
they are, never read as markup.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from weft.logical.query.canonical import readable
from weft.plan.show.figures import number
from weft.session.show.statistics_report import HEADS, report_cells

if TYPE_CHECKING:
    from weft.runtime.observe.inspect import CheckpointState, QueryState, StoreState, StreamState
    from weft.runtime.observe.table_progress import TableProgress

__all__ = [
    "STORE_HEADS",
    "STREAM_HEADS",
    "query_line",
    "show_state",
    "state_json",
    "state_summary",
    "state_tables",
    "store_cells",
    "stream_cells",
]

_WIDTH = 10_000  # a narrow terminal breaks the lines; Rich would cut the figures off
_NAMED = 4  # how many users of a store are named; of more, only their number is shown
STREAM_HEADS = ("stream", "arrived", "watermark", "columns")
STORE_HEADS = ("store", "layout", "rows", "bytes", "runs", "partitions", "oldest", "newest", "used by")

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


def show_state(directory: Path | str, as_json: bool = False) -> None:
    """Show what a checkpoint directory holds on the standard output."""
    from weft.runtime.observe.inspect import inspect  # other commands need not load it

    state = inspect(directory)
    if as_json:
        print(state_json(state))
    else:
        state_tables(state, Console(highlight=False, width=_WIDTH))


def state_json(state: CheckpointState) -> str:
    """The checkpoint as JSON, times in microseconds since 1970."""
    return json.dumps(asdict(state), ensure_ascii=False, indent=2)


def state_tables(state: CheckpointState, console: Console) -> None:
    """Show a checkpoint: what it is, its streams and stores, then the queries that share them."""
    for line in state_summary(state):
        console.print(Text(line), soft_wrap=True)
    _show(console, "Streams", STREAM_HEADS, map(stream_cells, state.streams))
    _show(console, "Tables", ("table", "version", "rows", "read"), map(_lookup_table, state.tables))
    _show(console, "Stores", STORE_HEADS, map(store_cells, state.stores))
    if state.queries:
        console.print(Text(f"\nQueries ({len(state.queries)})", style="bold"))
    for query in state.queries:
        console.print(Text(f"  {query_line(query)}"), soft_wrap=True)
        console.print(Text(f"    {query.text}", style="dim"), soft_wrap=True)
    _show(console, "Suspended", ("query", "why"), state.suspended.items())
    _show(console, "Stopped", ("query", "why"), state.stopped.items())
    _show(console, "Statistics", HEADS, map(report_cells, state.statistics))


def _show(console: Console, title: str, heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> None:
    """A table under its title; nothing, if it has no rows."""
    table = _table(heads, rows)
    if table.row_count:
        console.print(Text(f"\n{title}", style="bold"))
        console.print(Padding(table, (0, 0, 0, 2), expand=False))


def state_summary(state: CheckpointState) -> list[str]:
    """What a checkpoint is, in two lines, and in a third one how caches served the last batch, if it used any."""
    batch = "no batch committed yet" if state.last_batch < 0 else f"last batch {state.last_batch}"
    parts = [f"Checkpoint {state.directory}", f"format {state.format}", batch]
    parts += [f"{state.partitions} partitions"] if state.partitions is not None else []
    files = [f"{state.live.count} bucket files, {_bytes(state.live.bytes)}"]
    files.append(f"{state.unnamed.count} that no manifest names, {_bytes(state.unnamed.bytes)}")
    files.append(f"{state.dead_letters} dead letters")
    cache, lines = state.cache, [" · ".join(parts), " · ".join(files)]
    if state.merge_debt:
        lines.append(f"{_bytes(state.merge_debt)} of stored runs wait to be merged")
    if cache:
        served = f"{cache.hits:,} of {cache.hits + cache.misses:,} segments that were opened"
        lines.append(f"cache in the last batch: {served}, {_bytes(cache.fetched)} fetched")
    return lines


def stream_cells(stream: StreamState) -> tuple[str, ...]:
    """A stream as texts, under `STREAM_HEADS`."""
    return stream.name, f"{stream.arrived:,}", _time(stream.watermark), stream.text


def _lookup_table(table: TableProgress) -> tuple[str, ...]:
    return table.name, table.version or "-", f"{table.rows:,}", _time(table.read_at)


def query_line(query: QueryState) -> str:
    """A query in a line."""
    held = f"{_bytes(query.own)} of its own"
    held += f", shares {_bytes(query.shared)}" if query.shared else ""
    return f"{query.name} · since batch {query.first} · {query.results:,} results · {held}"


def store_cells(store: StoreState) -> tuple[str, ...]:
    """A store as texts, under `STORE_HEADS`."""
    ends = (store.oldest, store.newest)
    shown = [("-" if end is None else f"tuple {end:,}") if store.counted else _time(end) for end in ends]
    return (
        readable(store.name),
        readable(store.layout or "-"),
        f"{store.rows:,}",
        _bytes(store.bytes),
        str(store.runs),
        str(store.partitions),
        *shown,
        _users(store.users),
    )


def _users(users: tuple[str, ...]) -> str:
    """The names of a few; of more, how many they are."""
    if len(users) > _NAMED:
        return f"{len(users)} queries"
    return ", ".join(users) or "-"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Table:
    table = Table(box=None, pad_edge=False, show_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head, justify="right" if head in _FIGURES else "left", no_wrap=True)
    for row in rows:
        table.add_row(*map(Text, row))
    return table


_FIGURES = (
    "arrived",
    "rows",
    "bytes",
    "runs",
    "partitions",
    "value",
    "batches ago",
    "seconds ago",
    "evidence",
)


def _time(micros: int | None) -> str:
    """A time in UTC; one that Python's calendar does not have, in microseconds."""
    if micros is None:
        return "-"
    try:
        return (_EPOCH + timedelta(microseconds=micros)).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
    except OverflowError:
        return f"{micros} µs"


def _bytes(count: int) -> str:
    return f"{number(count)}B" if count >= 1e4 else f"{count} B"
