"""Spark sessions with the settings that suit short jobs of few, large rows."""

from __future__ import annotations

import os
import sys

from pyspark.sql import SparkSession

__all__ = ["create_spark", "is_on_one_machine", "own_session", "sources_have_names"]

_EVOLUTION = "spark.sql.streaming.queryEvolution.enableSourceEvolution"
_QUERIES = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    # Spark would start a job to look at the files of a batch if they are more than 32: a second and more.
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "100000",
    # Our checkpoints are on a mounted file system and under our lock; the default manager starts a process per file.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_OWN = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Over TCP, a task's small writes to its worker wait 40 ms for each other's acknowledgement.
    "spark.python.unix.domain.socket.enabled": "true",
}
# Where the JVM shares its cores with the workers: it has little to do itself, so the quick compiler is enough.
_LOCAL = {"spark.shuffle.compress": "false", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1"}


def create_spark(master: str) -> SparkSession:
    """A Spark session for a master."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # tasks need the environment Weft is installed in
    builder = SparkSession.builder.master(master).appName("weft")
    in_one_process = master == "local" or master.startswith("local[")
    for name, value in {**_OWN, **_QUERIES, **(_LOCAL if in_one_process else {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def own_session(spark: SparkSession) -> SparkSession:
    """A session of our own beside a user's, whose settings stay as they are; its sources have names."""
    session = spark.newSession()
    for name, value in {**_QUERIES, _EVOLUTION: "true"}.items():
        session.conf.set(name, value)
    return session


def sources_have_names(spark: SparkSession) -> bool:
    """Whether a session's streaming sources are known by name, so that more can be added later."""
    return spark.conf.get(_EVOLUTION, "false") == "true"


def is_on_one_machine(spark: SparkSession) -> bool:
    """Whether all tasks see the same local files."""
    return str(spark.sparkContext.master).startswith("local")
