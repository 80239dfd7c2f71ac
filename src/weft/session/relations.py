"""What queries can name: a session's streams, tables and functions, and what is known of predicates over them.

Guarantees: what is refused leaves the session as it was. No stream or table has the name of a query that has not
stopped, so that a name in FROM means one thing. A function that is registered can be sent to Spark's workers, and is
taken as it is then: what happens later to the names it uses changes nothing.
"""

from __future__ import annotations

import inspect
import reprlib
import time
from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from weft.errors import CatalogError, ConfigError, FunctionError, StatisticsError
from weft.logical.arguments import checked
from weft.logical.catalog import Catalog
from weft.logical.expr.node import BOOLEAN
from weft.logical.expr.user_functions import UserFunction
from weft.logical.schema import AHEAD, DataType, Stream, parse_type
from weft.logical.times import moment_of, shown_time
from weft.runtime.wire.functions import PackedFunction
from weft.session.registry import Registered
from weft.session.settings import Settings
from weft.session.validation import check, stream_of, table_of, with_counted_rows, with_selectivity
from weft.sql.expressions import is_function_name
from weft.stats.statistics import Statistics
from weft.storage.storage import storage_at

if TYPE_CHECKING:
    from weft.runtime.loop.handle import Running
    from weft.session.validation import StreamSource, TableLike

__all__ = [
    "SessionRelations",
    "declare_function",
    "pack_function",
    "with_expectations",
]


_MICROSECOND = timedelta(microseconds=1)


class SessionRelations:
    """The part of a session that registers what queries can name; ``_current_run`` is None while nothing runs."""

    catalog: Catalog
    statistics: Statistics
    _registered: Registered
    _settings: Settings
    _current_run: Running | None
    _last_run: Running | None

    @checked(CatalogError)
    def stream(
        self,
        name: str,
        source: StreamSource,
        *,
        event_time: str | None = None,
        lateness: timedelta | str = timedelta(0),
        late: str = "drop",
        idle_after: timedelta | str | None = None,
        ahead: timedelta | str | None = AHEAD,
        shed: str = "none",
    ) -> None:
        """Register a stream that queries can call by its ``name``, and whose time is the column ``event_time``.

        ``source`` is what it is read from (`weft.files`, `weft.rate`, any streaming DataFrame) or, to plan only, its
        schema. Tuples more than ``lateness`` behind the newest of earlier batches are late: they are dropped, or
        joined with what is still there. A stream silent for longer than ``idle_after`` does not hold others back.
        A record whose event time is more than ``ahead`` after the clock is set aside as a dead letter, so that it moves
        no watermark; None permits any time, as replays of simulated time need it. With ``shed`` "sample", where
        a target of latency cannot be met otherwise, only a random part of the rows that wait is read, and progress
        counts the others as shed.
        """
        stream, readable = stream_of(name, source, event_time, lateness, late, idle_after, ahead, shed)
        catalog = self._with_stream(stream)
        if readable is not None and self._current_run is not None:
            self._current_run.loop.add_stream(stream, readable)
        self.catalog = catalog
        if readable is not None:
            self._registered.sources[name] = readable

    @checked(CatalogError)
    def remove_stream(self, name: str) -> None:
        """Read a stream no longer, which no query may read any more; its name stays taken in this checkpoint."""
        stream = self.catalog.stream(name)
        self._registered.check_unread(stream.name, self._stopped())
        self.catalog = self.catalog.remove(stream.name)
        self._registered.sources.pop(stream.name, None)
        self._registered.tables.pop(stream.name, None)
        if self._current_run is not None:
            self._current_run.loop.remove_stream(stream.name)

    def reset_watermark(self, stream: str, *, to: datetime | str) -> None:
        """Set the watermark of a stream that a record with a wrong time has moved, from the next batch on.

        ``to`` is a datetime or a text, in UTC if it has no zone. Rows from then on are on time again; what has been
        dropped or evicted does not come back. A session that is not running does it to its checkpoint, for the next
        start.
        """
        check(stream, str, CatalogError, "a stream's name", "use a text")
        moment, known = moment_of(to, "to"), self.catalog.stream(stream)
        if known.ahead is not None and moment > (latest := _now() + known.ahead // _MICROSECOND):
            raise CatalogError(
                f"stream {stream}: its watermark cannot be {shown_time(moment)}, which is ahead of the clock",
                hint=f"name a time up to {shown_time(latest)}, or register the stream with a longer ahead=",
            )
        if self._current_run is not None:
            self._current_run.loop.resets.ask(known.name, moment)
            return
        if self._settings.checkpoint is None:
            raise ConfigError("the session has no checkpoint", hint="a new session begins without watermarks")
        from weft.runtime.loop.intake.watermark_resets import reset_stopped  # planning needs no kernels

        reset_stopped(storage_at(str(self._settings.checkpoint)), known.name, moment)

    @checked(CatalogError)
    def table(self, name: str, source: TableLike, *, refresh: timedelta | str | None = None) -> None:
        """Register a table that queries can name: its rows are looked up by tuples of streams, and start no results.

        ``source`` is `weft.files`, `weft.delta`, a DataFrame that is no stream, a `pyarrow.Table` or, to plan only, its
        schema. It is read when the session starts and then looked at again as often as ``refresh`` says; another
        version is taken up between two batches, as a whole.
        """
        stream, given = table_of(name, source, refresh)
        catalog = self._with_stream(stream)
        if given is not None and self._current_run is not None:
            self._current_run.loop.add_table(stream, given)
        self.catalog = catalog
        if given is not None:
            self._registered.tables[name] = given
            self.statistics = with_counted_rows(self.statistics, name, given.reader)

    def function(
        self,
        name: str,
        function: Callable[..., Any],
        *,
        returns: str,
        selectivity: float | None = None,
        cost: float | None = None,
    ) -> None:
        """Register a function that queries can call by its ``name``: in conditions, and in what they give.

        It takes one Arrow array per argument, NULLs included, and gives one of the same length and of the type
        ``returns``. It must be deterministic: how often it is called is up to the plan. If it fails, the queries that
        call it stop. ``selectivity`` and ``cost``, in seconds per row, are what is expected until it is measured.

        >>> import pyarrow.compute as pc, weft
        >>> session = weft.Session()
        >>> session.stream("a", "x double")
        >>> session.function("large", lambda x: pc.greater(x, 10), returns="boolean", selectivity=0.1)
        >>> print(session.parse("SELECT a.x FROM a WHERE large(a.x)"))
        SELECT a.x AS x FROM a WHERE LARGE(a.x)
        """
        packed = pack_function(name, function, returns)
        catalog = self.catalog.define(packed.declared)
        self.statistics = with_expectations(self.statistics, packed.declared, selectivity, cost)
        self.catalog, self._registered.functions[packed.declared.name] = catalog, packed

    def selectivity(self, predicate: str, value: float) -> None:
        """Say what part of all pairs, or of a stream's tuples, a predicate lets through.

        The predicate is over the streams' own names and may be spelled in any way; it holds for all queries planned
        from now on, and replaces what was said of it before. Of several conditions (``BETWEEN``) each gets a part.

        >>> import weft
        >>> session = weft.Session()
        >>> session.stream("a", "k long")
        >>> session.stream("b", "k long")
        >>> session.selectivity("b.k = a.k", 0.5)
        >>> session.statistics.selectivities
        {'a.k = b.k': 0.5}
        """
        self.statistics = with_selectivity(self.statistics, self.catalog, predicate, value)

    def _with_stream(self, stream: Stream) -> Catalog:
        """The catalog with one more stream or table, whose name no query has."""
        if self._catalog_with_queries().find_query(stream.name) is not None:
            raise CatalogError(f"there is already a query {stream.name!r}", hint="choose another name")
        self._registered.check_undefined(stream.name)
        return self.catalog.add(stream)

    def _catalog_with_queries(self) -> Catalog:
        """The streams and functions, and the queries that have not stopped, which others can name."""
        return self.catalog.with_queries(self._registered.definitions(self._stopped()))

    def _stopped(self) -> Collection[str]:
        return self._last_run.loop.batch_planner.stopped() if self._last_run is not None else ()


def _now() -> int:
    """The time, in microseconds since 1970."""
    return time.time_ns() // 1000


_TAKES = "it takes one Arrow array per argument and gives one of the same length"


def declare_function(name: str, function: Callable[..., Any], returns: str | DataType) -> UserFunction:
    """The declaration of a function, from its name, its signature and the type that it gives."""
    check(name, str, FunctionError, "a function's name", 'use a text, as in "similar"')
    check(returns, str | DataType, FunctionError, "a function's type", 'use a text, as in "boolean"')
    if not callable(function):
        raise FunctionError(f"function {name} cannot be {reprlib.repr(function)}", hint=_TAKES)
    if not is_function_name(name):
        raise FunctionError(
            f"a function cannot be called {name!r}",
            hint="use letters, digits and underscores, and no word or function of SQL",
        )
    try:
        type_ = parse_type(returns) if isinstance(returns, str) else returns
        return UserFunction(name.lower(), type_, *_arguments(name, function))
    except CatalogError as error:
        raise FunctionError(f"function {name}: {error.message}", hint=error.hint) from None


def _arguments(name: str, function: Callable[..., Any]) -> tuple[int, int | None]:
    """The least and the largest number of arguments; any, if the function does not say."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return 1, None
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for parameter in parameters:
        if parameter.kind == parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise FunctionError(f"function {name} needs {parameter.name} by name", hint=_TAKES)
    endless = any(p.kind == p.VAR_POSITIONAL for p in parameters)
    if not places and not endless:
        raise FunctionError(f"function {name} takes no argument", hint=_TAKES)
    return max(1, sum(p.default is p.empty for p in places)), None if endless else len(places)


def with_expectations(
    known: Statistics, function: UserFunction, selectivity: float | None, cost: float | None
) -> Statistics:
    """The statistics with what is said of a function; what cannot be true of it is refused."""
    check(selectivity, int | float | None, StatisticsError, "a selectivity", "use a number between 0 and 1")
    check(cost, int | float | None, StatisticsError, "a cost", "use a number of seconds per row")
    if selectivity is not None and function.returns != BOOLEAN:
        raise StatisticsError(
            f"function {function.name} gives a {function.returns} and is no condition, so it has no selectivity",
            hint=f'session.selectivity("{function.name}(…) > 0.5", …) takes a condition',
        )
    costs = {} if cost is None else {function.name: cost}
    likely = {} if selectivity is None else {function.name: selectivity}
    return replace(known, costs={**known.costs, **costs}, likely={**known.likely, **likely})


def pack_function(name: str, function: Callable[..., Any], returns: str | DataType) -> PackedFunction:
    """A function's declaration, and the function as bytes from which another process can make it again."""
    declaration = declare_function(name, function, returns)
    from pyspark import cloudpickle  # functions travel as Spark's own; planning without them needs no Spark

    try:
        return PackedFunction(declaration, cloudpickle.dumps(function))  # type: ignore[no-untyped-call]
    except Exception as error:
        raise FunctionError(
            f"function {name} cannot be sent to Spark's workers: {error}",
            hint="it refers to what only this process has, such as a lock, an open file or a Spark session",
        ) from None
