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

from weft.errors import WeftError
from weft.logical.catalog import Catalog
from weft.logical.query import Query
from weft.logical.schema import Schema, Stream
from weft.optimizer.cost import Weights
from weft.optimizer.space import Options
from weft.planned import PlannedQuery
from weft.session import Session
from weft.sinks import foreach_batch, to_console, to_count, to_memory, to_parquet
from weft.sources.dead_letter import DeadLetterLimit
from weft.sources.rate import choice, rate, sequence, timestamps, uniform, zipf
from weft.sources.spec import files
from weft.sql.builder import from_, select
from weft.stats.statistics import Statistics, StreamStatistics

__all__ = [
    "Catalog",
    "DeadLetterLimit",
    "Options",
    "PlannedQuery",
    "Query",
    "Schema",
    "Session",
    "Statistics",
    "Stream",
    "StreamStatistics",
    "WeftError",
    "Weights",
    "choice",
    "files",
    "foreach_batch",
    "from_",
    "rate",
    "select",
    "sequence",
    "timestamps",
    "to_console",
    "to_count",
    "to_memory",
    "to_parquet",
    "uniform",
    "zipf",
]

__version__ = "0.1.0.dev0"
