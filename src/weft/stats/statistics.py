"""What is known of the data: rates, distinct counts, selectivities.

Guarantees: every question has an answer. What was neither given nor measured is answered by the documented
defaults, so a query can be planned before its first tuple arrives; `origin` says where the figures come from.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta

from weft.errors import StatisticsError
from weft.logical.arguments import check_fields, checked
from weft.logical.expr.bounds import ValueRange
from weft.logical.expr.expression import (
    Call,
    Column,
    Expr,
    Literal,
    aliases,
    columns,
    conjuncts,
    rename,
    to_sql,
)
from weft.logical.html_table import html_table
from weft.logical.query.query import Query
from weft.stats.known import PredicateSet
from weft.stats.skew import Distribution, Heavy, HeavyValue, agreement, check_heavy, fits

__all__ = ["DEFAULTS", "Defaults", "Statistics", "StreamStatistics", "predicate_name"]


@dataclass(frozen=True, slots=True)
class Defaults:
    """The figures that are assumed where none are known."""

    rate: float = 1_000.0  # tuples per second of a stream
    distinct: float = 10_000.0  # values of a column
    rows: float = 10_000.0  # of a table
    horizon: timedelta = timedelta(hours=1)  # how long an unbounded window is expected to grow
    equal: float = 0.1  # selectivity of column = constant, where the distinct count is unknown
    compare: float = 1 / 3  # of <, ≤
    band: float = 0.01  # of two bounds at a fixed distance
    like: float = 0.1
    null: float = 0.05
    other: float = 0.5  # of any other condition
    call: float = 1e-6  # seconds that a user's function takes for a row


DEFAULTS = Defaults()


@dataclass(frozen=True, slots=True)
class StreamStatistics:
    """The arrival rate of a stream in tuples per second, and its columns' numbers of distinct values.

    ``heavy`` says which values of a column are far more frequent than others, as the part of tuples that have them:
    ``{"user": {42: 0.18}}``. A table has no rate, but a number of ``rows``.
    """

    rate: float = DEFAULTS.rate
    distinct: Mapping[str, float] = field(default_factory=dict)
    heavy: Heavy = field(default_factory=dict)
    rows: float | None = None

    def __post_init__(self) -> None:
        check_fields(self, StatisticsError)
        if self.rows is not None and not (self.rows >= 0 and math.isfinite(self.rows)):
            raise StatisticsError(f"a table cannot have {self.rows} rows")
        if not (self.rate >= 0 and math.isfinite(self.rate)):
            raise StatisticsError(f"a rate of {self.rate} tuples per second cannot be")
        for name, count in self.distinct.items():
            if not (count >= 1 and math.isfinite(count)):
                raise StatisticsError(f"column {name} cannot have {count} distinct values")
        check_heavy(self.heavy)


@dataclass(frozen=True, slots=True)
class Statistics:
    """Figures per stream and per predicate; predicates go by the text of `predicate_name`.

    Of users' functions, ``costs`` are the seconds that they take for a row, and ``likely`` the part of rows for which
    those that are conditions are thought to be true; both by name. ``joint`` has the sets of predicates that are known
    not to be independent, each as the sorted tuple of their names, and how many times as many combinations fulfil all
    of them as would if they were independent.
    """

    streams: Mapping[str, StreamStatistics] = field(default_factory=dict)
    selectivities: Mapping[str, float] = field(default_factory=dict)
    horizon: timedelta = DEFAULTS.horizon
    origin: str = "default"
    costs: Mapping[str, float] = field(default_factory=dict)
    likely: Mapping[str, float] = field(default_factory=dict)
    joint: Mapping[PredicateSet, float] = field(default_factory=dict)

    def __repr__(self) -> str:
        counts = {
            "streams": len(self.streams),
            "selectivities": len(self.selectivities),
            "costs of functions": len(self.costs),
            "correlated sets": len(self.joint),
        }
        parts = [f"{count} {what}" for what, count in counts.items() if count]
        return f"<Statistics ({self.origin}): {', '.join(parts) or 'nothing is known'}>"

    def _repr_html_(self) -> str:
        rows = [(name, "rate", f"{one.rate:g}") for name, one in self.streams.items()]
        for name, one in self.streams.items():
            rows += [(f"{name}.{column}", "distinct", f"{count:g}") for column, count in one.distinct.items()]
        rows += [(name, "selectivity", f"{value:g}") for name, value in self.selectivities.items()]
        rows += [(name, "cost", f"{value:g}") for name, value in self.costs.items()]
        return html_table(("of", "what", "value"), rows, f"Statistics ({self.origin})")

    def __post_init__(self) -> None:
        check_fields(self, StatisticsError)
        for name, seconds in self.costs.items():
            if not (seconds >= 0 and math.isfinite(seconds)):
                raise StatisticsError(
                    f"function {name} cannot take {seconds} seconds a row", hint="use 0 or more"
                )
        for name, selectivity in (*self.selectivities.items(), *self.likely.items()):
            if not 0 <= selectivity <= 1:
                raise StatisticsError(
                    f"the selectivity {selectivity} of {name} is not between 0 and 1",
                    hint="it is the part of all pairs that match",
                )
        for names, factor in self.joint.items():
            if not (factor > 0 and math.isfinite(factor)):
                raise StatisticsError(
                    f"{' and '.join(names)} cannot match {factor} times as often together",
                    hint="use 1 for independent predicates, and more than 0 for others",
                )
        if self.horizon <= timedelta(0):
            raise StatisticsError(f"a horizon of {self.horizon} makes no sense")

    @checked(StatisticsError)
    def stream(self, name: str) -> StreamStatistics:
        """What is known of a stream."""
        return self.streams.get(name) or StreamStatistics()

    @checked(StatisticsError)
    def given(self, predicate: Expr, value: float) -> Statistics:
        """These figures with the selectivity that a user gives for a predicate over streams.

        If it consists of n conditions, as the two bounds of a band, each gets the n-th root of the value.
        """
        parts = conjuncts(predicate) or (predicate,)
        each = value ** (1 / len(parts)) if 0 <= value <= 1 else value
        found = {**self.selectivities, **{to_sql(part): each for part in parts}}
        return replace(self, selectivities=found, origin="given")

    def measured(
        self, seconds: float, rows: Mapping[str, int], pairs: Mapping[str, tuple[float, float]]
    ) -> Statistics:
        """These figures with measured ones in their place: rates from rows per stream, selectivities from pairs.

        ``pairs`` says, by `predicate_name`, how many pairs were compared and how many of them matched.
        """
        if seconds <= 0:
            raise StatisticsError(f"nothing can be measured in {seconds} seconds")
        streams = {name: replace(self.stream(name), rate=count / seconds) for name, count in rows.items()}
        found = {name: matched / compared for name, (compared, matched) in pairs.items() if compared}
        selectivities = {**self.selectivities, **found}
        return replace(
            self, streams={**self.streams, **streams}, selectivities=selectivities, origin="measured"
        )

    @checked(StatisticsError)
    def rows(self, table: str) -> float:
        """How many rows a table has."""
        known = self.stream(table).rows
        return DEFAULTS.rows if known is None else known

    @checked(StatisticsError)
    def with_rows(self, rows: Mapping[str, int]) -> Statistics:
        """These figures with the numbers of rows that tables were found to have."""
        found = {name: replace(self.stream(name), rows=float(count)) for name, count in rows.items()}
        return replace(self, streams={**self.streams, **found}) if found else self

    @checked(StatisticsError)
    def function_cost(self, name: str) -> float:
        """The seconds that a user's function takes for a row."""
        return self.costs.get(name, DEFAULTS.call)

    @checked(StatisticsError)
    def with_heavy(self, heavy: Mapping[str, Heavy]) -> Statistics:
        """These figures with measured heavy values, by stream, in place of those known of the same columns."""
        found = {
            name: replace(self.stream(name), heavy={**self.stream(name).heavy, **columns})
            for name, columns in heavy.items()
        }
        return replace(self, streams={**self.streams, **found}, origin="measured") if found else self

    def distribution(self, query: Query, column: Column) -> Distribution:
        """How the values of a column are spread."""
        stream = self.stream(query.input(column.alias).stream.name)
        distinct = stream.distinct.get(column.name, DEFAULTS.distinct)
        heavy = {v: share for v, share in stream.heavy.get(column.name, {}).items() if fits(v, column.type)}
        return Distribution(heavy, max(1.0, distinct - len(heavy)))

    def _distinct_column(self, query: Query, column: Column) -> float | None:
        return self.stream(query.input(column.alias).stream.name).distinct.get(column.name)

    @checked(StatisticsError)
    def selectivity(self, query: Query, predicate: Expr) -> float:
        """The part of tuples, or of pairs, that a predicate lets through."""
        known = self.selectivities  # if there are none, no name need be made
        given = known.get(predicate_name(query, predicate)) if known else None
        return self._guess(query, predicate) if given is None else given

    def band(self, query: Query, band: ValueRange) -> float:
        """The part of pairs that two bounds let through together."""
        bounds = [bound.predicate for bound in (band.low, band.high)]
        if any(predicate_name(query, predicate) in self.selectivities for predicate in bounds):
            return math.prod(self.selectivity(query, predicate) for predicate in bounds)
        return DEFAULTS.band

    def _guess(self, query: Query, predicate: Expr) -> float:
        if not isinstance(predicate, Call):
            return DEFAULTS.other
        parts = (
            [self.selectivity(query, arg) for arg in predicate.args] if predicate.function in _LOGIC else []
        )
        match predicate.function:
            case "and":
                return math.prod(parts)
            case "or":
                return 1 - math.prod(1 - part for part in parts)
            case "not":
                return 1 - parts[0]
            case "=":
                return self._equality(query, predicate)
            case "<>":
                return 1 - self._equality(query, predicate)
            case "in":
                return min(0.5, (len(predicate.args) - 1) * self._equality(query, predicate))
            case "<" | "<=":
                return DEFAULTS.compare
            case "like" | "startswith" | "endswith" | "contains":
                return DEFAULTS.like
            case "is null":
                return DEFAULTS.null
        return self.likely.get(predicate.function, DEFAULTS.other)

    def _equality(self, query: Query, predicate: Call) -> float:
        """1 / the larger distinct count; the default for a comparison with a constant of an unknown column."""
        skewed = self._skewed(query, predicate)
        if skewed is not None:
            return skewed
        sides = [arg for arg in predicate.args if not isinstance(arg, Literal)]
        constant = len(sides) < len(predicate.args) and len(aliases(predicate)) == 1
        counts = [self._distinct_column(query, column) for side in sides for column in columns(side)]
        known = [count for count in counts if count is not None]
        if known:
            return 1 / max(known)
        return DEFAULTS.equal if constant else 1 / DEFAULTS.distinct

    def _skewed(self, query: Query, predicate: Call) -> float | None:
        """The selectivity of an equality with a column whose heavy values are known; None if there are none."""
        if predicate.function == "in":
            return None
        found = [self.distribution(query, arg) for arg in predicate.args if isinstance(arg, Column)]
        if not any(one.heavy for one in found):
            return None
        if len(found) == 2:
            return agreement(found)
        constants = [arg.value for arg in predicate.args if isinstance(arg, Literal)]
        if len(constants) == 1 and isinstance(constants[0], HeavyValue):
            return found[0].share(constants[0])
        return None


_LOGIC = ("and", "or", "not")


def predicate_name(query: Query, predicate: Expr) -> str:
    """A predicate's text with streams instead of aliases, under which its selectivity is kept."""
    return to_sql(rename(predicate, {input_.alias: input_.stream.name for input_ in query.inputs}))
