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

from functools import cache
from typing import TYPE_CHECKING, Any

from weft.version import __version__ as __version__

# The public names. Type checkers follow these imports; at run time they are read as a table (`_homes`), and a name is
# imported when somebody asks for it: Spark's workers need few of them, and start sooner.
if TYPE_CHECKING:
    from weft.connectors.delta.sink import to_delta as to_delta
    from weft.connectors.delta.table import delta as delta
    from weft.connectors.files.parquet_sink import to_parquet as to_parquet
    from weft.connectors.files.source import files as files
    from weft.connectors.formats.dead_letters import DeadLetterLimit as DeadLetterLimit
    from weft.connectors.generate.drift import Dial as Dial
    from weft.connectors.generate.drift import drifting as drifting
    from weft.connectors.generate.rate import choice as choice
    from weft.connectors.generate.rate import rate as rate
    from weft.connectors.generate.rate import sequence as sequence
    from weft.connectors.generate.rate import timestamps as timestamps
    from weft.connectors.generate.rate import uniform as uniform
    from weft.connectors.generate.rate import zipf as zipf
    from weft.connectors.iceberg.sink import to_iceberg as to_iceberg
    from weft.connectors.kafka.sink import to_kafka as to_kafka
    from weft.connectors.kafka.source import kafka as kafka
    from weft.connectors.memory.console import to_console as to_console
    from weft.connectors.memory.count import to_count as to_count
    from weft.connectors.memory.foreach import foreach_batch as foreach_batch
    from weft.connectors.memory.recent import to_recent as to_recent
    from weft.connectors.memory.sink import to_memory as to_memory
    from weft.connectors.postgres.sink import to_postgres as to_postgres
    from weft.errors import SuspendedError as SuspendedError
    from weft.errors import WeftError as WeftError
    from weft.logical.catalog import Catalog as Catalog
    from weft.logical.query.limits import Limits as Limits
    from weft.logical.query.ordering import Punctuation as Punctuation
    from weft.logical.query.query import Query as Query
    from weft.logical.schema import Schema as Schema
    from weft.logical.schema import Stream as Stream
    from weft.optimizer.adaptation import Adaptation as Adaptation
    from weft.optimizer.cost import Weights as Weights
    from weft.optimizer.single.strategies import JoinProblem as JoinProblem
    from weft.optimizer.single.strategies import register_strategy as register_strategy
    from weft.optimizer.space import Options as Options
    from weft.ports.punctuation import Punctuations as Punctuations
    from weft.session.planned_query import PlannedQuery as PlannedQuery
    from weft.session.session import Session as Session
    from weft.session.show.notebook import load_ipython_extension as load_ipython_extension
    from weft.sql.builder import from_ as from_
    from weft.sql.builder import select as select
    from weft.stats.statistics import Statistics as Statistics
    from weft.stats.statistics import StreamStatistics as StreamStatistics

    __all__: list[str]
else:

    def __getattr__(name: str) -> Any:
        from importlib import import_module

        homes = _homes() if name == "__all__" or not name.startswith("__") else {}
        if name == "__all__":
            value = sorted(homes)
        elif name in homes:
            value = getattr(import_module(homes[name]), name)
        else:
            raise AttributeError(f"module 'weft' has no attribute {name!r}")
        globals()[name] = value
        return value


@cache
def _homes() -> dict[str, str]:
    """The module that each public name comes from, as the imports above say, which nobody runs."""
    import ast
    import pkgutil  # which also reads from the archive that is shipped to executors

    tree = ast.parse(pkgutil.get_data(__name__, "__init__.py") or b"")
    imports = next(node.body for node in tree.body if isinstance(node, ast.If))
    return {
        alias.name: str(node.module)
        for node in imports
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def __dir__() -> list[str]:
    return sorted({*globals(), *_homes()})
