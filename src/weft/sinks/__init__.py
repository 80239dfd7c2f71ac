"""Where results go: files, topics of Kafka, tables of lakes and databases, memory, a count, the console, a function."""

from weft.ports.sink import OrderedSink, PartOpener, PartSink, PartWriter, Sink
from weft.sinks.console import ConsoleSink, to_console
from weft.sinks.count import CountSink, to_count
from weft.sinks.delta import DeltaSink, to_delta
from weft.sinks.foreach import ForeachBatchSink, foreach_batch
from weft.sinks.iceberg import IcebergSink, to_iceberg
from weft.sinks.kafka import KafkaSink, to_kafka
from weft.sinks.memory import MemorySink, to_memory
from weft.sinks.parquet import ParquetSink, to_parquet
from weft.sinks.postgres import PostgresSink, to_postgres
from weft.sinks.recent import RecentPage, RecentSink, to_recent

__all__ = [
    "ConsoleSink",
    "CountSink",
    "DeltaSink",
    "ForeachBatchSink",
    "IcebergSink",
    "KafkaSink",
    "MemorySink",
    "OrderedSink",
    "ParquetSink",
    "PartOpener",
    "PartSink",
    "PartWriter",
    "PostgresSink",
    "RecentPage",
    "RecentSink",
    "Sink",
    "foreach_batch",
    "to_console",
    "to_count",
    "to_delta",
    "to_iceberg",
    "to_kafka",
    "to_memory",
    "to_parquet",
    "to_postgres",
    "to_recent",
]
