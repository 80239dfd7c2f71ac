"""Where results go: Parquet files, topics of Kafka, memory, a count, the console, or a function."""

from weft.ports.sink import OrderedSink, PartOpener, PartSink, PartWriter, Sink
from weft.sinks.console import ConsoleSink, to_console
from weft.sinks.count import CountSink, to_count
from weft.sinks.foreach import ForeachBatchSink, foreach_batch
from weft.sinks.kafka import KafkaSink, to_kafka
from weft.sinks.memory import MemorySink, to_memory
from weft.sinks.parquet import ParquetSink, to_parquet

__all__ = [
    "ConsoleSink",
    "CountSink",
    "ForeachBatchSink",
    "KafkaSink",
    "MemorySink",
    "OrderedSink",
    "ParquetSink",
    "PartOpener",
    "PartSink",
    "PartWriter",
    "Sink",
    "foreach_batch",
    "to_console",
    "to_count",
    "to_kafka",
    "to_memory",
    "to_parquet",
]
