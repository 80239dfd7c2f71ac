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
    from weft.connectors.delta.sink import to_delta
    from weft.connectors.delta.table import delta
    from weft.connectors.files.parquet_sink import to_parquet
    from weft.connectors.files.source import files
    from weft.connectors.formats.dead_letters import DeadLetterLimit
    from weft.connectors.generate.drift import Dial, drifting
    from weft.connectors.generate.rate import choice, rate, sequence, timestamps, uniform, zipf
    from weft.connectors.iceberg.sink import to_iceberg
    from weft.connectors.kafka.sink import to_kafka
    from weft.connectors.kafka.source import kafka
    from weft.connectors.memory.console import to_console
    from weft.connectors.memory.count import to_count
    from weft.connectors.memory.foreach import foreach_batch
    from weft.connectors.memory.recent import to_recent
    from weft.connectors.memory.sink import to_memory
    from weft.connectors.postgres.sink import to_postgres
    from weft.errors import SuspendedError, WeftError
    from weft.logical.catalog import Catalog
    from weft.logical.query.limits import Limits
    from weft.logical.query.ordering import Punctuation
    from weft.logical.query.query import Query
    from weft.logical.schema import Schema, Stream
    from weft.optimizer.adaptation import Adaptation
    from weft.optimizer.cost import Weights
    from weft.optimizer.space import Options
    from weft.ports.punctuation import Punctuations
    from weft.session.planned_query import PlannedQuery
    from weft.session.session import Session
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
    "DeadLetterLimit": "weft.connectors.formats.dead_letters",
    "Dial": "weft.connectors.generate.drift",
    "Limits": "weft.logical.query.limits",
    "Adaptation": "weft.optimizer.adaptation",
    "Options": "weft.optimizer.space",
    "PlannedQuery": "weft.session.planned_query",
    "Punctuation": "weft.logical.query.ordering",
    "Punctuations": "weft.ports.punctuation",
    "Query": "weft.logical.query.query",
    "Schema": "weft.logical.schema",
    "Session": "weft.session.session",
    "Statistics": "weft.stats.statistics",
    "Stream": "weft.logical.schema",
    "StreamStatistics": "weft.stats.statistics",
    "SuspendedError": "weft.errors",
    "WeftError": "weft.errors",
    "Weights": "weft.optimizer.cost",
    "choice": "weft.connectors.generate.rate",
    "delta": "weft.connectors.delta.table",
    "drifting": "weft.connectors.generate.drift",
    "files": "weft.connectors.files.source",
    "foreach_batch": "weft.connectors.memory.foreach",
    "from_": "weft.sql.builder",
    "kafka": "weft.connectors.kafka.source",
    "rate": "weft.connectors.generate.rate",
    "select": "weft.sql.builder",
    "sequence": "weft.connectors.generate.rate",
    "timestamps": "weft.connectors.generate.rate",
    "to_console": "weft.connectors.memory.console",
    "to_count": "weft.connectors.memory.count",
    "to_delta": "weft.connectors.delta.sink",
    "to_iceberg": "weft.connectors.iceberg.sink",
    "to_kafka": "weft.connectors.kafka.sink",
    "to_memory": "weft.connectors.memory.sink",
    "to_parquet": "weft.connectors.files.parquet_sink",
    "to_postgres": "weft.connectors.postgres.sink",
    "to_recent": "weft.connectors.memory.recent",
    "uniform": "weft.connectors.generate.rate",
    "zipf": "weft.connectors.generate.rate",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
