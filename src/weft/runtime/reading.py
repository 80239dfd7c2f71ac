"""All sources of a session as one streaming DataFrame.

Guarantees: its rows are (stream, path, content), whatever the sources are. Sources have names wherever Spark can know
them by name, so that more can be added later.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.query import StreamingQuery

from weft.runtime.spark_session import own_session, sources_have_names

__all__ = ["TICK", "read_all", "session_for", "waiting_files"]

# What brings ticks, as a stream and as a source of Spark's; no user's stream is called so.
TICK, _TICKS = "$tick", "_weft_ticks"
_FILE = "path string, modificationTime timestamp, length long, content binary"


def session_for(spark: SparkSession, sources: Mapping[str, Any]) -> tuple[SparkSession, bool]:
    """The session that reads, and whether sources have names.

    A DataFrame belongs to the user's session; its sources have names only if the user gave them some.
    """
    if any(hasattr(source, "frame") for source in sources.values()):
        return spark, sources_have_names(spark)
    return own_session(spark), True


def read_all(spark: SparkSession, sources: Mapping[str, Any], named: bool, ticks: Path) -> DataFrame:
    """What all sources bring, and the files in a folder that make a batch begin without any of them."""
    frames = []
    for name, source in sources.items():
        reader = spark.readStream.name(_ascii(name)) if named else spark.readStream
        frames.append(source.load(reader).select(F.lit(name).alias("stream"), "path", "content"))
    reader = spark.readStream.name(_TICKS) if named else spark.readStream
    found = reader.format("binaryFile").schema(_FILE).load(str(ticks))
    frames.append(
        found.select(F.lit(TICK).alias("stream"), "path", F.lit(None).cast("binary").alias("content"))
    )
    union: DataFrame = reduce(DataFrame.union, frames)
    return union


def waiting_files(query: StreamingQuery | None, sources: Mapping[str, Any]) -> dict[str, int]:
    """The files that wait, by stream, as far as Spark has told."""
    progress = query.lastProgress if query else None
    found = progress.sources if progress else []
    waiting = {
        name: one.metrics.get("numFilesOutstanding") for name, one in zip(sources, found, strict=False)
    }
    return {name: int(count) for name, count in waiting.items() if count is not None}


def _ascii(name: str) -> str:
    """A stream's name as Spark wants the name of a source."""
    return "".join(char if char.isascii() else f"_u{ord(char):x}_" for char in name)
