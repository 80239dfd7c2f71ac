"""Where results go: Parquet files, memory, the console, or a function."""

from weft.sinks.console import ConsoleSink, to_console
from weft.sinks.foreach import ForeachBatchSink, foreach_batch
from weft.sinks.memory import MemorySink, to_memory
from weft.sinks.parquet import ParquetSink, to_parquet
from weft.sinks.protocol import PartSink, Sink

__all__ = [
    "ConsoleSink",
    "ForeachBatchSink",
    "MemorySink",
    "ParquetSink",
    "PartSink",
    "Sink",
    "foreach_batch",
    "to_console",
    "to_memory",
    "to_parquet",
]
