"""Weft: optimised multi-way stream joins on Apache Spark, in Python.

>>> import weft
>>> session = weft.Session()
>>> session.stream("videos", "vid long, geo string, ts timestamp", event_time="ts")
>>> session.stream("views", "vid long, user long, ts timestamp", event_time="ts")
>>> query = session.query('''
...     SELECT v.vid, w.user FROM videos [RANGE 10 MINUTES] AS v, views [RANGE 1 MINUTE] AS w
...     WHERE v.vid = w.vid AND v.geo = 'US'
... ''', name="us_views")
>>> query.graph.hops
1
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from weft.version import __version__ as __version__

if TYPE_CHECKING:
    from weft.errors import SuspendedError, WeftError
    from weft.logical.catalog import Catalog
    from weft.logical.punctuation import Punctuation
    from weft.logical.query import Query
    from weft.logical.query_limits import Limits
    from weft.logical.schema import Schema, Stream
    from weft.optimizer.adaptation import Adaptation
    from weft.optimizer.cost import Weights
    from weft.optimizer.space import Options
    from weft.planned import PlannedQuery
    from weft.ports.punctuation import Punctuations
    from weft.session import Session
    from weft.sinks import (
        foreach_batch,
        to_console,
        to_count,
        to_delta,
        to_iceberg,
        to_kafka,
        to_memory,
        to_parquet,
        to_postgres,
        to_recent,
    )
    from weft.sources.dead_letter import DeadLetterLimit
    from weft.sources.delta import delta
    from weft.sources.drift import Dial, drifting
    from weft.sources.kafka import kafka
    from weft.sources.rate import choice, rate, sequence, timestamps, uniform, zipf
    from weft.sources.spec import files
    from weft.sql.builder import from_, select
    from weft.stats.statistics import Statistics, StreamStatistics

__all__ = [
    "Adaptation",
    "Catalog",
    "DeadLetterLimit",
    "Dial",
    "Limits",
    "Options",
    "PlannedQuery",
    "Punctuation",
    "Punctuations",
    "Query",
    "Schema",
    "Session",
    "Statistics",
    "Stream",
    "StreamStatistics",
    "SuspendedError",
    "WeftError",
    "Weights",
    "choice",
    "delta",
    "drifting",
    "files",
    "foreach_batch",
    "from_",
    "kafka",
    "rate",
    "select",
    "sequence",
    "timestamps",
    "to_console",
    "to_count",
    "to_delta",
    "to_iceberg",
    "to_kafka",
    "to_memory",
    "to_parquet",
    "to_postgres",
    "to_recent",
    "uniform",
    "zipf",
]

# Where names come from. They are looked up when they are asked for: Spark's workers need few of them, and start sooner.
_HOMES = {
    "Catalog": "weft.logical.catalog",
    "DeadLetterLimit": "weft.sources.dead_letter",
    "Dial": "weft.sources.drift",
    "Limits": "weft.logical.query_limits",
    "Adaptation": "weft.optimizer.adaptation",
    "Options": "weft.optimizer.space",
    "PlannedQuery": "weft.planned",
    "Punctuation": "weft.logical.punctuation",
    "Punctuations": "weft.ports.punctuation",
    "Query": "weft.logical.query",
    "Schema": "weft.logical.schema",
    "Session": "weft.session",
    "Statistics": "weft.stats.statistics",
    "Stream": "weft.logical.schema",
    "StreamStatistics": "weft.stats.statistics",
    "SuspendedError": "weft.errors",
    "WeftError": "weft.errors",
    "Weights": "weft.optimizer.cost",
    "choice": "weft.sources.rate",
    "delta": "weft.sources.delta",
    "drifting": "weft.sources.drift",
    "files": "weft.sources.spec",
    "foreach_batch": "weft.sinks",
    "from_": "weft.sql.builder",
    "kafka": "weft.sources.kafka",
    "rate": "weft.sources.rate",
    "select": "weft.sql.builder",
    "sequence": "weft.sources.rate",
    "timestamps": "weft.sources.rate",
    "to_console": "weft.sinks",
    "to_count": "weft.sinks",
    "to_delta": "weft.sinks",
    "to_iceberg": "weft.sinks",
    "to_kafka": "weft.sinks",
    "to_memory": "weft.sinks",
    "to_parquet": "weft.sinks",
    "to_postgres": "weft.sinks",
    "to_recent": "weft.sinks",
    "uniform": "weft.sources.rate",
    "zipf": "weft.sources.rate",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
