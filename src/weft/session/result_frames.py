"""The results of a query as a streaming DataFrame of Spark's, for what Weft leaves to Spark: aggregates, DISTINCT.

Guarantees: the DataFrame has the columns of the query, with their types, and shows a batch of results as a whole or not
at all, and every result once. Spark knows files by their names: if a session is killed between the commit of a batch's
results and of the batch itself, the batch is run again, and the sink keeps the files that Spark may have read, since
they hold the same rows.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.connectors.files.parquet_sink import ParquetSink, to_parquet
from weft.connectors.sink_descriptions import sink_for
from weft.errors import ConfigError
from weft.logical.names import identifier
from weft.logical.query.ordering import Ordering
from weft.logical.query.query import Query
from weft.ports.sink import Sink
from weft.session.settings import Settings
from weft.storage.uris import is_object_uri

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["frame_sink", "result_frame"]


def frame_sink(settings: Settings, name: str, ordering: Ordering | None) -> Sink | None:
    """The sink of a query whose results are wanted as a DataFrame alone: files in the checkpoint."""
    if settings.checkpoint is None:
        raise ConfigError(
            "a query's results as a DataFrame need a checkpoint", hint='Session(checkpoint="ck")'
        )
    if is_object_uri(settings.checkpoint):
        raise ConfigError(
            f"a query's results as a DataFrame are files in the checkpoint, which is {settings.checkpoint}",
            hint="give the query a sink, or the session a directory as its checkpoint",
        )
    return sink_for(to_parquet(Path(settings.checkpoint) / "frames" / name), ordering)


def result_frame(settings: Settings, name: str, query: Query, sink: Sink | None) -> Any:
    """A streaming DataFrame over the results that a sink has and will have."""
    if not isinstance(sink, ParquetSink):
        raise ConfigError(
            f"the results of query {name} are in no files that Spark could read",
            hint='use sink=weft.to_parquet("…"), or none before dataframe() is called',
        )
    sink.path.mkdir(parents=True, exist_ok=True)
    columns = [f"{identifier(output.name)} {output.expr.type}" for output in query.projection]
    reader = _spark(settings).readStream.schema(", ".join((*columns, f"{sink.batch_column} long")))
    return reader.parquet(str(sink.path.absolute())).drop(sink.batch_column)


def _spark(settings: Settings) -> SparkSession:
    from weft.runtime.spark.session import create_spark  # planning needs no Spark

    return settings.spark or create_spark(settings.master)
