"""The tables of SplitJoin's benchmark.

Guarantees: a figure that was not measured is shown as such.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from benchmarks._report import percentile
from benchmarks._splitjoin import matches_per_tuple, window_text
from benchmarks._splitjoin_figures import Case, Latency, Peer, Steady, cores_text, order_text, without_order
from benchmarks._splitjoin_latency import PARTS
from benchmarks._splitjoin_peers import PEERS
from rich.table import Table

__all__ = ["latency_table", "peers_table", "precision_table", "selectivity_table", "throughput_table"]


def _table(title: str, caption: str, left: Sequence[str], right: Sequence[str]) -> Table:
    table = Table(title=title, caption=caption)
    for head in left:
        table.add_column(head)
    for head in right:
        table.add_column(head, justify="right")
    return table


def throughput_table(found: Mapping[Case, Steady], batch_rows: int) -> Table:
    """One row per run."""
    table = _table(
        f"Throughput with full windows, batches of 2 × {batch_rows:,} tuples",
        "tuples/s: of both streams; a batch lasts until the next begins; reading and routing, probing and storing: the "
        "slowest task; results: for each tuple",
        ("window", "size"),
        ("cores", "parts", "tuples/s", "p50 s", "p95 s", "reading s", "probing s", "state MB", "results"),
    )
    for case, one in found.items():
        table.add_row(
            "15 minutes" if case.kind == "time" else "count",
            window_text(case.size),
            str(case.cores),
            str(case.partitions),
            f"{one.rate:,.0f}",
            *(f"{percentile(one.cycles, share):.2f}" for share in (0.5, 0.95)),
            *(f"{one.share(place):.2f}" for place in (0, 1)),
            f"{one.state / 1e6:,.0f}",
            f"{one.matches:.2f}",
        )
    return table


def peers_table(case: Case, weft: Steady, found: Mapping[str, Peer]) -> Table:
    """Weft's throughput, and what every peer made of its last measured batch."""
    table = _table(
        f"Peers: {case.kind} window of {window_text(case.size)} tuples, {cores_text(case.cores)}",
        "peers: the new tuples of one batch against its windows, from memory, counted; Weft: end to end",
        ("", "agrees"),
        ("tuples", "seconds", "tuples/s", "Weft is faster by"),
    )
    rows, seconds = sum(weft.rows[weft.measured]), sum(weft.cycles)
    table.add_row("Weft, from files to the sink", "", f"{rows:,}", f"{seconds:.2f}", f"{weft.rate:,.0f}", "–")
    for name, one in found.items():
        if one.rate is None or one.seconds is None:
            table.add_row(PEERS[name][0], one.note)
            continue
        agrees = "–" if one.expected is None else "no" if one.differs else "yes"
        figures = (
            f"{one.tuples:,}",
            f"{one.seconds:.2f}",
            f"{one.rate:,.0f}",
            f"{weft.rate / one.rate:,.1f} ×",
        )
        table.add_row(PEERS[name][0], agrees, *figures)
    return table


def selectivity_table(found: Mapping[Case, Steady]) -> Table:
    """One row per domain (Figure 17)."""
    size = next(iter(found)).size
    table = _table(
        f"Selectivity: windows of {window_text(size)} tuples",
        "partners: in a full window, for each tuple, from the width of the bands",
        (),
        ("values up to", "partners", "results/tuple", "tuples/s", "results/s", "p50 s"),
    )
    for case, one in found.items():
        table.add_row(
            f"{case.domain:,}",
            f"{matches_per_tuple(case.size, case.domain):.2f}",
            f"{one.matches:.2f}",
            f"{one.rate:,.0f}",
            f"{one.rate * one.matches:,.0f}",
            f"{percentile(one.cycles, 0.5):.2f}",
        )
    return table


def precision_table(found: Mapping[Case, Steady]) -> Table:
    """One row per order (Figure 19)."""
    first = next(iter(found))
    table = _table(
        f"Order: {first.kind} windows of {window_text(first.size)} tuples, to {first.sink}",
        "relative to the same join without order",
        ("order",),
        ("tuples/s", "relative", "p50 s", "p95 s"),
    )
    plain = without_order(found)
    for case, one in found.items():
        table.add_row(
            order_text(case),
            f"{one.rate:,.0f}",
            f"{one.rate / plain.rate:.1%}" if plain else "–",
            *(f"{percentile(one.cycles, share):.2f}" for share in (0.5, 0.95)),
        )
    return table


def latency_table(found: Sequence[Latency]) -> Table:
    """One row per run."""
    table = _table(
        "Visiting latency: from a tuple's arrival to its results at the sink (seconds)",
        "the parts are means; waiting: for the batch before, and for Spark to see the file",
        ("window",),
        ("tuples/s", "mean", "p50", "p95", *PARTS),
    )
    for one in found:
        table.add_row(
            f"{one.case.kind} {window_text(one.case.size)}",
            f"{one.rate:,.0f}" + ("" if one.kept_up else " (too many)"),
            *(f"{figure:.2f}" for figure in (one.latency.mean, one.latency.p50, one.latency.p95)),
            *(f"{part:.2f}" for part in one.parts),
        )
    return table
