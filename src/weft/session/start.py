"""How a session starts to run: what it lacks is said first, then Spark is started, then the loop.

Guarantees: a session that cannot run is refused before anything has started. While Java starts, another thread loads
what a run will need of Weft, and nothing of Spark's, which the caller loads at the same time; when the caller goes on,
no import is under way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from threading import Thread
from typing import TYPE_CHECKING

from weft.adapting.planner import Planner
from weft.errors import ConfigError
from weft.logical.catalog import Catalog
from weft.runtime.observe.recent_statistics import RecentStatistics
from weft.session.registry import Registered
from weft.session.settings import Settings

if TYPE_CHECKING:  # only running needs Spark, and kernels
    from pyspark.sql import SparkSession

    from weft.runtime.loop.handle import Running

__all__ = ["start_run"]

# The kernels and their compiler; the solver and the loop.
_MODULES = ("weft.runtime.task.worker", "weft.session.run")


# What sinks and sources need besides Weft: a module, and the extra that installs it.
_EXTRAS = {
    "DeltaSink": ("deltalake", "delta"),
    "IcebergSink": ("pyiceberg", "iceberg"),
    "PostgresSink": ("psycopg", "postgres"),
    "KafkaSink": ("confluent_kafka", "kafka"),
    "KafkaSource": ("confluent_kafka", "kafka"),
}


def start_run(
    settings: Settings,
    catalog: Catalog,
    registered: Registered,
    planner: Planner,
    measured: RecentStatistics,
    *,
    available_now: bool,
    idle: bool = False,
) -> Running:
    """Start all queries that have a sink; if a session may be ``idle``, there may be none."""
    if settings.checkpoint is None:
        raise ConfigError("running needs a checkpoint", hint='make it Session(checkpoint="ck")')
    if not registered.sinks and not idle:
        raise ConfigError("no query has a sink", hint="as in session.query(…, sink=weft.to_memory())")
    _check_extras([*registered.sinks.values(), *registered.sources.values()])
    spark = _spark_for(settings)
    from weft.session.run import run, run_config  # loaded by now

    config = replace(run_config(settings, spark, catalog, registered, planner, measured), idle=idle)
    return run(config, settings, registered.runnable, available_now=available_now)


def _check_extras(used: Iterable[object]) -> None:
    """Refuse sinks and sources whose libraries are not installed, before Java is waited for."""
    for kind in (type(connector).__name__ for connector in used):
        module, extra = _EXTRAS.get(kind, ("", ""))
        if module and find_spec(module) is None:
            raise ConfigError(
                f"{kind} needs {module}, which is not installed",
                hint=f'pip install "weft[{extra}]"',
            )


def _spark_for(settings: Settings) -> SparkSession | None:
    """The Spark session that batches run on, its Python workers on their way; None: batches run in this process."""
    if settings.execution == "local":
        return None
    from weft.runtime.spark.executor_setup import ship_weft
    from weft.runtime.spark.session import (
        create_spark,  # only running needs Spark
        naming_java_death,
    )
    from weft.runtime.spark.workers import check_workers, start_workers

    with _loading_modules(), naming_java_death(settings.spark):
        spark = settings.spark or create_spark(settings.master, preload=not settings.ship)
    shipped = ship_weft(spark) if settings.ship else ""
    start_workers(spark)  # which takes as long as all that follows
    check_workers(spark, shipped)
    return spark


@contextmanager
def _loading_modules() -> Iterator[None]:
    """Load modules in a thread while the caller waits for something else."""
    thread = Thread(target=_load, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _load() -> None:
    with suppress(Exception):  # whoever imports them next will be told
        for name in _MODULES:
            import_module(name)
