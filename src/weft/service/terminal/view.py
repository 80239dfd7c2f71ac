"""A run on the terminal: a screen while it goes on, a line now and then where there is no screen, a summary at the end.

Guarantees: these functions turn figures into what Rich draws, and do nothing else: they use no clock and no session,
and print nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from weft.runtime.observe.metrics import Backlog
from weft.service.figures import Figures, StoreFigures
from weft.session.planned_query import PlannedQuery
from weft.stats.histogram import Histogram
from weft.stats.input_figures import REASONS, TupleCounts

__all__ = ["bytes_text", "counted", "duration_text", "line", "probe_orders", "screen", "sparkline", "summary"]

_BARS = "▁▂▃▄▅▆▇█"


def screen(
    title: str, planned: Sequence[PlannedQuery], found: Figures, elapsed: float, stopping: bool = False
) -> RenderableType:
    """All that is known at a moment."""
    hint = "stopping after this batch" if stopping else "Ctrl-C stops"
    return Group(
        Text.assemble(_heading(title, found, elapsed), (f"   {hint}", "bold yellow" if stopping else "dim")),
        _streams(found),
        _queries(found),
        _plans(planned, found),
    )


def line(found: Figures, elapsed: float) -> str:
    """The figures of a moment in one line."""
    if found.batch is None:
        return "Waiting for the first batch …"  # the same each time, and so said once
    rows = sum(stream.per_second for stream in found.streams)
    results = "  ".join(f"{query.name} {query.results:,}" for query in found.queries)
    parts = [
        f"{duration_text(elapsed):>7}  batch {found.batch} took {duration_text(found.last_seconds)}",
        f"{rows:,.0f} rows/s in",
        f"results: {results}",
        *_latencies(found),
        *_troubles(found),
        f"state: {_once(found.stores, 'rows'):,.0f} rows, {bytes_text(_once(found.stores, 'bytes'))}",
    ]
    return "  ".join(parts)


def _once(stores: Sequence[StoreFigures], what: str) -> float:
    """What stores hold together, those that several queries use counted once."""
    return float(sum(getattr(store, what) / store.users for store in stores))


def _troubles(found: Figures) -> list[str]:
    counts = sum((stream.counts for stream in found.streams), TupleCounts())
    late = [f"{count:,} {reason}" for reason, count in counts.set_aside.items() if count]
    waiting = [stream.backlog for stream in found.streams if stream.backlog and stream.backlog.parts]
    if not waiting:
        return late
    rows, behind = sum(one.rows for one in waiting), max(one.seconds for one in waiting)
    return [*late, f"backlog: {rows:,} rows, {duration_text(behind)}"]


def _latencies(found: Figures) -> list[str]:
    """The latency of the query whose results come latest; nothing if there was no result."""
    every = [query.latency.processing for query in found.queries if query.latency.count]
    return [f"latency: {_quantiles(max(every, key=lambda one: one.p95))}"] if every else []


def _quantiles(found: Histogram) -> str:
    """The median and the 95th percentile of latencies; empty if there are none.

    >>> _quantiles(Histogram.of([20_000, 20_000, 1_500_000]))
    '20 ms / 1.5 s'
    """
    return f"{duration_text(found.p50)} / {duration_text(found.p95)}" if found.count else ""


def summary(title: str, found: Figures, elapsed: float) -> RenderableType:
    """What a run did, over all of it."""
    if found.batch is None:
        return Text(f"{title}: nothing arrived in {duration_text(elapsed)}")
    batches = f"{found.batches:,} batch" + "es" * (found.batches != 1)
    heading = Text.assemble(
        (title, "bold"),
        f": {batches} in {duration_text(elapsed)}, {duration_text(found.mean_seconds)} each on average",
    )
    return Group(Text(), heading, _streams(found), _totals(found))


def _heading(title: str, found: Figures, elapsed: float) -> Text:
    parts = [f"  {duration_text(elapsed)}"]
    if found.batch is None:
        parts.append("waiting for the first batch, in which tasks load their code")
    else:
        rows = sum(stream.per_second for stream in found.streams)
        results = sum(query.per_second for query in found.queries)
        parts += [f"batch {found.batch} took {duration_text(found.last_seconds)}", f"{rows:,.0f} rows/s in"]
        parts += [f"{results:,.0f} results/s out"]
    return Text.assemble((title, "bold"), " · ".join(parts))


def _table(*heads: str) -> Table:
    """Columns of figures, the first of names; a head that begins with < is of texts."""
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1), header_style="dim")
    for place, head in enumerate(heads):
        left = place == 0 or head.startswith("<")
        table.add_column(
            head.removeprefix("<"), justify="left" if left else "right", no_wrap=not left or place == 0
        )
    return table


_USUAL = ("late", "malformed")  # of these reasons there are columns also where there are no such tuples


def _streams(found: Figures) -> Table:
    reasons = [r for r in REASONS if r in _USUAL or any(one.counts.set_aside[r] for one in found.streams)]
    backlog = any(stream.backlog is not None for stream in found.streams)
    heads = ["stream", "rows/s", "rows", *reasons, *["backlog"] * backlog]
    table = _table(*heads)
    for stream in found.streams:
        cells = [f"{stream.per_second:,.0f}", f"{stream.counts.rows:,}"]
        cells += [_bad(stream.counts.set_aside[reason]) for reason in reasons]
        cells += ["" if stream.backlog is None else _waiting(stream.backlog)] * backlog
        table.add_row(f"[cyan]{escape(stream.name)}[/]", *cells)
    return table


def _waiting(backlog: Backlog) -> str:
    """What waits: about how many rows, and how long the first of them has waited."""
    if not backlog.parts:
        return "0"
    return f"{backlog.rows:,} rows, {bytes_text(backlog.bytes)}, {duration_text(backlog.seconds)}"


def _bad(count: int) -> str:
    return f"[yellow]{count:,}[/]" if count else "0"


def _queries(found: Figures) -> Table:
    table = _table("query", "results/s", "results", "latency", "<per batch", "<last batch")
    for query in found.queries:
        table.add_row(
            f"[green]{escape(query.name)}[/]",
            f"{query.per_second:,.0f}",
            f"[bold]{query.results:,}[/]",
            _quantiles(query.latency.processing),
            f"[green]{sparkline(query.trend)}[/]",
            _hops(query.hops),
        )
    return table


def _hops(seconds: Sequence[float]) -> str:
    names = ("read" if hop == 0 else f"hop {hop}" for hop in range(len(seconds)))
    return " · ".join(f"{name} {duration_text(one)}" for name, one in zip(names, seconds, strict=True))


def _plans(planned: Sequence[PlannedQuery], found: Figures) -> Table:
    table = _table("plan", "<probe orders", "<store", "rows", "bytes", "<used by")
    for query in planned:
        stores = [store for store in found.stores if store.query == query.name]
        columns = [_column(stores, part) for part in range(4)]
        table.add_row(f"[green]{escape(query.name)}[/]", escape("\n".join(probe_orders(query))), *columns)
    return table


def _column(stores: Sequence[StoreFigures], part: int) -> str:
    rows = [
        (escape(store.name), f"{store.rows:,}", bytes_text(store.bytes), _users(store)) for store in stores
    ]
    return "\n".join(row[part] for row in rows)


def _users(store: StoreFigures) -> str:
    return "" if store.users == 1 else f"{store.users} queries"


def _totals(found: Figures) -> Table:
    shares = any(store.users > 1 for store in found.stores)
    heads = (
        ["state rows", "state bytes"]
        if not shares
        else ["own rows", "own bytes", "shared rows", "shared bytes"]
    )
    table = _table("query", "results/s", "results", "latency p50 / p95", *heads)
    for query in found.queries:
        mine = [store for store in found.stores if store.query == query.name]
        own, shared = ([s for s in mine if (s.users > 1) == is_shared] for is_shared in (False, True))
        table.add_row(
            f"[green]{escape(query.name)}[/]",
            f"{query.per_second:,.0f}",
            f"[bold]{query.results:,}[/]",
            _quantiles(query.latency.processing),
            *_state(own),
            *(_state(shared) if shares else ()),
        )
    return table


def _state(stores: Sequence[StoreFigures]) -> tuple[str, str]:
    """What stores hold, as texts: rows and bytes."""
    return f"{sum(store.rows for store in stores):,}", bytes_text(sum(store.bytes for store in stores))


def probe_orders(planned: PlannedQuery) -> list[str]:
    """For each input, the stores its tuples probe, in order."""
    graph = planned.graph
    found = {alias: [rule.store for rule in graph.probes(alias)] for alias in planned.query.aliases}
    return [" → ".join([alias, *stores]) for alias, stores in found.items()]


def sparkline(values: Sequence[int]) -> str:
    """Bars for figures, the highest full.

    >>> sparkline([0, 5, 10])
    '▁▅█'
    """
    most = max(values, default=0) or 1
    return "".join(_BARS[min(len(_BARS) - 1, value * len(_BARS) // most)] for value in values)


def counted(number: int, one: str, many: str | None = None) -> str:
    """A number of things, in words.

    >>> counted(1, "result"), counted(1200, "result"), counted(2, "batch", "batches")
    ('1 result', '1,200 results', '2 batches')
    """
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def duration_text(seconds: float) -> str:
    """A time as people read it.

    >>> duration_text(0.0423), duration_text(3.21), duration_text(75), duration_text(3700)
    ('42 ms', '3.2 s', '1:15', '1:01:40')
    """
    if seconds < 1:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def bytes_text(count: float) -> str:
    """A size as people read it.

    >>> bytes_text(999), bytes_text(1536), bytes_text(3.2e9)
    ('999 B', '1.5 kB', '3.2 GB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
