"""Every public function, class and method of `weft` with arguments that are right, and things that are wrong.

A `Call` can be made with its right arguments, which must work, and with one or more of them replaced. What a call gives
is used as users use it, without running anything: a source is registered, a sink given to a query, options are used.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import weft
from weft.connectors.files.source import FilesSource
from weft.connectors.generate.rate import Kind, RateSource
from weft.connectors.kafka.source import KafkaSource
from weft.optimizer.single.strategies import STRATEGIES
from weft.ports.sink import Sink
from weft.sql.builder import Builder

__all__ = ["CALLS", "WRONG", "Call", "public_methods", "uncovered"]


class Hostile:
    """A thing that cannot be compared, hashed, shown or asked for anything."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        raise RuntimeError("this cannot be compared")

    def __repr__(self) -> str:
        return "<hostile>"


# Things that some parameter or other does not expect.
WRONG: dict[str, Any] = {
    "none": None,
    "true": True,
    "zero": 0,
    "minus one": -1,
    "huge": 10**400,
    "long": 2**63,
    "half": 0.5,
    "nan": math.nan,
    "infinity": math.inf,
    "minus infinity": -math.inf,
    "empty text": "",
    "blank": " ",
    "text": "no such thing",
    "zero byte": "a\0b",
    "surrogate": "a\udc80",
    "line": "a\nb",
    "long text": "x" * 300,
    "bytes": b"bytes",
    "list": [],
    "numbers": [1, 2],
    "texts": ["a", "a"],
    "nested": [[[]]],
    "dict": {},
    "keyed": {1: "a", None: 2},
    "named": {"a": {"b": 1}},
    "set": {1, 2},
    "tuple": (1, "a", None),
    "object": object(),
    "hostile": Hostile(),
    "class": int,
    "function": lambda: None,
    "decimal": Decimal("NaN"),
    "date": date(2024, 1, 1),
    "datetime": datetime(2024, 1, 1),
    "first datetime": datetime.min,
    "timedelta": timedelta(seconds=-1),
    "longest timedelta": timedelta.max,
    "path": Path("no/such/path"),
    "array": np.array([1, 2]),
    "frame-like": pa.table({"a": [1]}),
    "schema": pa.schema([("a", pa.int64())]),
    "session": weft.Session(),
    "sink": weft.to_count(),
    "source": weft.rate(1, k=weft.uniform(2)),
    "kind": weft.uniform(2),
    "error": ValueError("wrong"),
    "generator": (number for number in range(2)),
}


def session() -> weft.Session:
    """A session with streams, a table and a planned query."""
    made = weft.Session()
    made.stream("a", "k long, x string, ts timestamp", event_time="ts")
    made.stream("b", "k long, ts timestamp", event_time="ts")
    made.table("t", "k long, y double")
    made.query(JOIN, name="q")
    return made


JOIN = "SELECT a.k, b.ts FROM a [RANGE 1 HOUR], b [RANGE 1 HOUR] WHERE a.k = b.k"
_PLAIN = session()
_QUERY = _PLAIN.parse(JOIN)
_STREAM = _PLAIN.catalog.stream("a")


@dataclass(frozen=True)
class Call:
    """A function with right arguments: ``keywords`` by name, ``more`` for what it takes by any name or in a row."""

    name: str
    make: Callable[[], Callable[..., Any]]
    keywords: Mapping[str, Any] = field(default_factory=dict)
    more: tuple[Any, ...] = ()

    def run(self, wrong: Mapping[str, Any], *, more: tuple[Any, ...] | None = None) -> None:
        """Call it with some arguments replaced, and use what it gives."""
        found = self.make()(*(self.more if more is None else more), **{**self.keywords, **wrong})
        _use(found)

    def parameters(self) -> list[str]:
        """The names of the parameters that can be given by name."""
        kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        found = inspect.signature(self.make()).parameters.values()
        return [one.name for one in found if one.kind in kinds] or sorted(self.keywords)


def _use(found: object) -> None:
    """Use what a call gave, as users do."""
    if isinstance(found, weft.Session):
        found.stream("a", "k long")
        found.query("SELECT a.k FROM a")
        found.explain()
    elif isinstance(found, Kind):
        _use(weft.rate(1, k=found))
    elif isinstance(found, Sink):
        session().query(JOIN, sink=found)
    elif isinstance(found, Builder):
        session().query(found.from_("a").from_("b").where("a.k = b.k") if not found.relations else found)
    elif isinstance(found, weft.Options):
        _use(weft.Session(options=found))
    elif isinstance(found, weft.Weights):
        _use(weft.Options(weights=found))
    elif isinstance(found, weft.Adaptation):
        _use(weft.Session(adaptation=found))
    elif isinstance(found, weft.Limits):
        _use(weft.Session(limits=found))
    elif isinstance(found, weft.DeadLetterLimit):
        _use(weft.Session(dead_letter_limit=found))
    elif isinstance(found, weft.StreamStatistics):
        _use(weft.Statistics(streams={"a": found, "b": found}))
    elif isinstance(found, weft.Statistics):
        _use(weft.Session(statistics=found))
    elif isinstance(found, weft.Schema | FilesSource | RateSource | KafkaSource):
        weft.Session().stream("s", found)
    elif isinstance(found, Iterator):
        list(found)
    str(found)


def of(name: str, /, **keywords: Any) -> Call:
    """A public function or class."""
    return Call(name, lambda: getattr(weft, name), keywords)


def method(owner: Callable[[], Any], name: str, /, *more: Any, **keywords: Any) -> Call:
    """A method of what ``owner`` makes."""
    kind = type(owner()).__name__
    return Call(f"{kind}.{name}", lambda: getattr(owner(), name), keywords, more)


def catalog() -> weft.Catalog:
    """Some streams and a query."""
    return session().catalog.with_queries({"q": _QUERY})


def builder() -> Builder:
    """The beginning of a query."""
    return weft.select("a.k").from_("a", window="1 hour")


def statistics() -> weft.Statistics:
    """Something of the streams is known."""
    return weft.Statistics(streams={"a": weft.StreamStatistics(rate=5.0)})


def planned() -> weft.PlannedQuery:
    """A query that was planned."""
    made = session()
    return next(one for one in made.queries if one.name == "q")


_PREDICATE = next(iter(_QUERY.expressions()))


def _registering() -> Callable[..., Any]:
    """What registers a strategy, and takes it back at once: other tests look at all there are."""

    @functools.wraps(weft.register_strategy)
    def register(*args: Any, **keywords: Any) -> None:
        known = dict(STRATEGIES)
        try:
            weft.register_strategy(*args, **keywords)
        finally:
            STRATEGIES.clear()
            STRATEGIES.update(known)

    return register


CALLS = (
    Call("register_strategy", _registering, {"name": "mine", "strategy": lambda problem: [problem.aliases]}),
    of("Adaptation"),
    of("Catalog", streams=(_STREAM,)),
    of("DeadLetterLimit", records=3),
    of("Dial"),
    of("Limits"),
    of("Options"),
    of("Punctuation", rows=1, tuples=2),
    of("Schema", fields=_STREAM.schema.fields),
    of("Session"),
    of("Statistics"),
    of("Stream", name="s", schema=_STREAM.schema, event_time="ts"),
    of("StreamStatistics"),
    of("SuspendedError", message="wrong"),
    of("WeftError", message="wrong"),
    of("Weights"),
    of("choice", values=["a", "b"]),
    of("delta", path="no/such/table", schema="k long"),
    of("drifting", first=weft.uniform(2), second=weft.uniform(3)),
    of(
        "files",
        format="csv",
        path="in",
        schema="k long",
        glob="*.csv",
        recursive=True,
        unfinished_after="1 second",
    ),
    of(
        "files",
        format="csv",
        path="in",
        schema="k long",
        delimiter=";",
        quote='"',
        encoding="utf-8",
        null="-",
    ),
    of("files", format="json", path="in", schema="k long", missing="skip", clean="archive", archive="done"),
    of("foreach_batch", function=print),
    of("from_", stream="a"),
    of("kafka", servers="localhost:9092", topic="t", schema="k long"),
    of("rate", rows_per_second=1, k=weft.uniform(2)),
    Call("select", lambda: weft.select, {}, ("a.k",)),
    of("sequence"),
    of("timestamps"),
    of("to_console"),
    of("to_count"),
    of("to_delta", path="out"),
    of("to_iceberg", catalog={"type": "sql", "uri": "sqlite://"}, table="a.b"),
    of("to_kafka", servers="localhost:9092", topic="t"),
    of("to_memory"),
    of("to_parquet", path="out"),
    of("to_postgres", dsn="postgresql://localhost/x", table="t"),
    of("to_recent"),
    of("uniform", count=3),
    of("zipf", count=3),
    method(session, "analysis"),
    method(session, "await_termination"),
    method(session, "backlog"),
    method(session, "batches_after", number=0),
    method(session, "compare", query=_QUERY),
    method(session, "end"),
    method(session, "expected_of", name="q"),
    method(session, "explain"),
    method(session, "frame_of", name="q"),
    method(session, "function", name="f", function=pc.abs, returns="long"),
    method(session, "graph_of", name="q"),
    method(session, "measured"),
    method(session, "parse", text=JOIN),
    method(session, "preview", text=JOIN),
    method(session, "process_all_available"),
    method(session, "query", text=JOIN),
    method(session, "query_progress", name="q"),
    method(session, "failure_of", name="q"),
    method(session, "check_suspended"),
    method(session, "remove_stream", name="t"),
    method(session, "run_available"),
    method(session, "scale", tasks=2, partitions=2),
    method(session, "selectivity", predicate="a.k = b.k", value=0.5),
    method(session, "start"),
    method(session, "statistics_report"),
    method(session, "stop"),
    method(session, "stop_query", name="q"),
    method(session, "stream", name="c", source="k long, ts timestamp"),
    method(session, "table", name="u", source="k long"),
    method(session, "watch", every=1.0, seconds=0.0),
    method(planned, "dataframe"),
    method(planned, "diagram"),
    method(planned, "explain"),
    method(planned, "head", rows=3),
    method(planned, "punctuations"),
    method(planned, "results"),
    method(planned, "stop"),
    method(planned, "to_pandas"),
    method(planned, "to_polars"),
    method(catalog, "add", stream=weft.Stream("new", _STREAM.schema)),
    method(catalog, "find", name="a"),
    method(catalog, "find_query", name="q"),
    method(catalog, "remove", name="a"),
    method(catalog, "stream", name="a"),
    method(catalog, "with_queries", queries={"r": _QUERY}),
    method(lambda: _STREAM.schema, "find", name="k"),
    Call("Schema.parse", lambda: weft.Schema.parse, {"text": "k long"}),
    method(statistics, "function_cost", name="f"),
    method(statistics, "given", predicate=_PREDICATE, value=0.5),
    method(statistics, "rows", table="a"),
    method(statistics, "selectivity", query=_QUERY, predicate=_PREDICATE),
    method(statistics, "stream", name="a"),
    method(statistics, "with_heavy", heavy={"a": {"k": {1: 0.5}}}),
    method(statistics, "with_rows", rows={"t": 5}),
    method(lambda: _QUERY, "columns_of", alias="a"),
    method(lambda: _QUERY, "component", start="a"),
    method(lambda: _QUERY, "expressions"),
    method(lambda: _QUERY, "input", alias="a"),
    method(lambda: _QUERY, "renamed", names={"a": "z"}),
    method(lambda: _QUERY, "terms"),
    method(weft.Dial, "turn", position=0.5),
    method(weft.to_memory, "results"),
    method(builder, "from_", stream="b", window="1 hour"),
    method(builder, "join", stream="b", on="a.k = b.k"),
    Call("Builder.where", lambda: builder().from_("b").where, {}, ("a.k = b.k",)),
    method(builder, "union_all", other=builder()),
)


def public_methods(kind: type) -> list[str]:
    """The names of a class's methods that users may call."""
    return sorted(
        name
        for name, value in inspect.getmembers(kind, callable)
        if not name.startswith("_") and not isinstance(value, type)
    )


def uncovered() -> list[str]:
    """The public names, and methods of sessions and queries, of which there is no call."""
    known = {call.name for call in CALLS}
    methods = [
        f"{kind.__name__}.{name}"
        for kind in (weft.Session, weft.PlannedQuery)
        for name in public_methods(kind)
    ]
    made_by_weft = {"JoinProblem", "PlannedQuery", "Query", "Punctuations"}
    questions = ("compare_question", "preview_question", "prepare_question", "expect")
    for_the_service = {f"Session.{name}" for name in questions} | {"load_ipython_extension"}  # and IPython
    elsewhere = {"Session.reset_watermark"}  # in tests of clocks, since it needs a checkpoint
    passed = known | made_by_weft | for_the_service | elsewhere
    return [name for name in (*weft._homes(), *methods) if name not in passed]
