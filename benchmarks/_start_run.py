"""One start of Weft, from `import weft` to the first result.

Guarantees: only functions that users call are called. The ends of phases are recognised by words that Weft logs then,
and by the time at which Spark says that it began. With ``die``, the process kills itself after the first result.
"""

from __future__ import annotations

import time

BEGAN = time.time()  # before anything else is loaded

import logging  # noqa: E402
import os  # noqa: E402
import signal  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402


class Marks(logging.Handler):
    """When each word was logged first."""

    def __init__(self) -> None:
        super().__init__()
        self.times: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the time of the record's word, if it is the first."""
        self.times.setdefault(record.getMessage(), record.created)


def start(task: dict[str, Any]) -> dict[str, float]:
    """Join two streams of files, and give the time from the import to the end of each phase."""
    import weft

    marks = Marks()
    logger = logging.getLogger("weft.start")
    logger.setLevel(logging.DEBUG)
    logger.addHandler(marks)
    root = Path(task["root"])
    session = weft.Session(
        checkpoint=root / "checkpoint",
        master=f"local[{task['cores']}]",
        options=weft.Options(partitions=task["cores"]),
    )
    for name in "ab":
        source = weft.files("parquet", str(root / "in" / name), schema="k long, n long, ts timestamp")
        session.stream(name, source, event_time="ts")
    sql = "SELECT a.n AS x, b.n AS y FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k"
    session.query(sql, name="pair", sink=weft.to_parquet(root / "out"))
    marks.times["import"] = time.time()
    session.start()
    marks.times["start"] = time.time()
    session.process_all_available()
    marks.times["result"] = time.time()
    from pyspark.sql import SparkSession

    spark = SparkSession.getActiveSession()
    if spark is not None:
        marks.times["context"] = spark.sparkContext.startTime / 1000
    if task["die"]:
        os.kill(os.getpid(), signal.SIGKILL)
    session.stop()
    return {name: at - BEGAN for name, at in marks.times.items()}
