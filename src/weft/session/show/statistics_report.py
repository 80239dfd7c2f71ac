"""What a session knows of its data, figure by figure, as people read it.

Guarantees: it shows the figures that queries are planned by: each from the source that wins, with its age and evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations

from weft.logical.expr.expression import BOOLEAN, Expr, columns, make_call
from weft.logical.html_table import html_table
from weft.logical.query.horizon import is_time_bound
from weft.logical.query.query import Query
from weft.plan.show.figures import number, table
from weft.stats.combine import Sampled, combined, sampled_enough
from weft.stats.figure import SOURCES, Figure
from weft.stats.known import Known
from weft.stats.report import StatisticsRow, observed_rows, row_of
from weft.stats.skew import HeavyShares
from weft.stats.statistics import DEFAULTS, Statistics, predicate_name

__all__ = ["HEADS", "StatisticsReport", "report_cells", "statistics_report"]

HEADS = ("of", "what", "value", "source", "batches ago", "seconds ago", "evidence")

_ORDER = ("rate", "bytes", "distinct", "heavy", "cost", "selectivity", "joint")


@dataclass(frozen=True, slots=True)
class StatisticsReport:
    """All figures; as text, a table."""

    rows: tuple[StatisticsRow, ...]

    def __repr__(self) -> str:
        return f"<StatisticsReport of {len(self.rows)} figures; print shows them>"

    def _repr_html_(self) -> str:
        return html_table(HEADS, [report_cells(row) for row in self.rows], "Statistics")

    def __str__(self) -> str:
        return "\n".join(["Statistics", *table(HEADS, [report_cells(row) for row in self.rows])])


def report_cells(row: StatisticsRow) -> tuple[str, ...]:
    """A row as texts, under `HEADS`."""
    return (
        row.of,
        row.what,
        number(row.value),
        row.source,
        "-" if row.batches is None else str(row.batches),
        "-" if row.seconds is None else f"{row.seconds:.1f}",
        number(row.evidence) if row.evidence else "-",
    )


def statistics_report(
    given: Statistics,
    known: Known,
    streams: Iterable[str],
    queries: Sequence[Query],
    *,
    sampled: Sampled | None = None,
    heavy: HeavyShares | None = None,
) -> StatisticsReport:
    """All figures of some streams and of what queries ask of them.

    ``given`` are the statistics of the session, ``known`` is what its batches told, ``sampled`` what its samples, and
    ``heavy`` the common values that its batches found.
    """
    every = [
        *observed_rows(known, sampled),
        *_sampled_rows(known, sampled, heavy or {}),
        *_given_rows(given, known),
        *_default_rows(combined(given, known, sampled), known, streams, queries),
    ]
    best: dict[tuple[str, str], StatisticsRow] = {}
    for row in every:
        old = best.get((row.what, row.of))
        if old is None or SOURCES.index(row.source) < SOURCES.index(old.source):
            best[row.what, row.of] = row
    return StatisticsReport(tuple(sorted(best.values(), key=lambda row: (_ORDER.index(row.what), row.of))))


def _sampled_rows(known: Known, sampled: Sampled | None, heavy: HeavyShares) -> Iterator[StatisticsRow]:
    shares = {**heavy, **(sampled.heavy if sampled is not None else {})}
    for stream, by_column in shares.items():
        for column, values in by_column.items():
            for value, share in values:
                yield row_of(f"{stream}.{column} = {value!r}", "heavy", Figure(share, "sampled"), known)
    if sampled is None:
        return
    for stream, counts in sampled.distinct.items():
        for column, figure in sampled_enough(counts).items():
            yield row_of(f"{stream}.{column}", "distinct", figure, known)
    for name, figure in sampled_enough(sampled.selectivities).items():
        yield row_of(name, "selectivity", figure, known)


def _given_rows(given: Statistics, known: Known) -> Iterator[StatisticsRow]:
    for name, stream in given.streams.items():
        yield row_of(name, "rate", Figure(stream.rate, "given"), known)
        for column, count in stream.distinct.items():
            yield row_of(f"{name}.{column}", "distinct", Figure(count, "given"), known)
        for column, values in stream.heavy.items():
            for value, share in values.items():
                yield row_of(f"{name}.{column} = {value!r}", "heavy", Figure(share, "given"), known)
    for name, selectivity in given.selectivities.items():
        yield row_of(name, "selectivity", Figure(selectivity, "given"), known)
    for name, cost in given.costs.items():
        yield row_of(name, "cost", Figure(cost, "given"), known)


def _default_rows(
    statistics: Statistics, known: Known, streams: Iterable[str], queries: Sequence[Query]
) -> Iterator[StatisticsRow]:
    """What is assumed of that which neither anybody said nor a batch showed."""
    for name in streams:
        yield row_of(name, "rate", Figure(DEFAULTS.rate), known)
    for query in queries:
        for member in (member for key in query.keys for member in key.members):
            for column in columns(member):
                name = f"{query.input(column.alias).stream.name}.{column.name}"
                yield row_of(name, "distinct", Figure(DEFAULTS.distinct), known)
        for predicate in _predicates(query):
            figure = Figure(statistics.selectivity(query, predicate))
            yield row_of(predicate_name(query, predicate), "selectivity", figure, known)


def _predicates(query: Query) -> Iterator[Expr]:
    """All conditions of a query but bounds on event times; of an equality class, every equality."""
    for key in query.keys:
        for left, right in combinations(key.members, 2):
            yield make_call("=", (left, right), BOOLEAN)
    yield from (p for p in query.predicates if not is_time_bound(query, p))
    yield from (*query.filters, *query.residuals)
