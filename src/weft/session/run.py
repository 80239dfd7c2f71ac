"""How a session's queries begin to run: from its settings to the loop, with the log and the executor it needs.

Guarantees: what cannot run is refused before anything has started.

`result_frame` gives the results of a query as a streaming DataFrame of Spark's, for what Weft leaves to Spark:
aggregates, DISTINCT. The DataFrame has the columns of the query, with their types, and shows a batch of results as a
whole or not at all, and every result once. Spark knows files by their names: if a session is killed between the commit
of a batch's results and of the batch itself, the batch is run again, and the sink keeps the files that Spark may have
read, since they hold the same rows.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from weft.adapting.adapter import AdaptivePlan, SettledPlan
from weft.adapting.background import BackgroundPlanner, ForegroundPlanner, PlanFinder
from weft.adapting.planner import Planner
from weft.bucket.memory_limits import batch_bytes, portion_bytes
from weft.connectors.delta.sink import DeltaSink
from weft.connectors.derived.source import DerivedSource
from weft.connectors.files.parquet_sink import ParquetSink, to_parquet
from weft.connectors.files.source import FilesSource
from weft.connectors.formats.dead_letters import DeadLetterBox
from weft.connectors.frames.source import DataFrameSource
from weft.connectors.sink_descriptions import make_sink, portable_description, sink_for
from weft.errors import ConfigError
from weft.logical.catalog import Catalog
from weft.logical.names import identifier
from weft.logical.query.ordering import Ordering
from weft.logical.query.query import Query
from weft.logical.schema import Stream
from weft.optimizer.space import Options
from weft.ports.sink import Sink
from weft.ports.source import Source
from weft.runtime.local import LocalExecutor
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.loop.adapter import Adapter
from weft.runtime.loop.config import MACHINE, RunConfig
from weft.runtime.loop.executor import Executor
from weft.runtime.loop.handle import Running, launch
from weft.runtime.loop.loop import Loop
from weft.runtime.loop.scale_policy import LoadScale
from weft.runtime.loop.scaling import FixedScale, Scaler
from weft.runtime.observe.recent_statistics import RecentStatistics
from weft.runtime.queries.request import QueryRequest
from weft.session.registry import Registered
from weft.session.settings import Settings
from weft.session.validation import dead_letters_of
from weft.storage.objects import ObjectStorage
from weft.storage.storage import Storage, storage_at
from weft.storage.uris import is_object_uri, normal_place

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = [
    "adapter_for",
    "executor_for",
    "frame_sink",
    "resident_tasks",
    "result_frame",
    "run",
    "run_config",
    "scaler_for",
]


_LOG = logging.getLogger("weft")

Queries: TypeAlias = "Mapping[str, tuple[QueryRequest, Sink]]"


def run(config: RunConfig, settings: Settings, queries: Queries, *, available_now: bool = False) -> Running:
    """Start queries, each with its sink; what is done is kept in the checkpoint that the settings name."""
    tasks = resident_tasks(settings.options, config.spark)
    limit = None if settings.options.tasks else config.partitions  # else there are as many as the user says
    executor = executor_for(config.spark, settings.execution, config.partitions, tasks, limit)
    _check_frames(config, settings)
    if config.spark is not None and settings.execution != "local":
        from weft.runtime.spark.executor_setup import (
            check_stores,  # loaded while Java starts, this module needs no Spark
        )

        check_stores(config.spark, _object_places(config, settings, queries))
    log = Checkpoint(_storage(settings), flush=settings.durability == MACHINE)
    loop = Loop(config, log, executor)
    return launch(loop, queries, available_now=available_now)


def run_config(
    settings: Settings,
    spark: SparkSession | None,
    catalog: Catalog,
    registered: Registered,
    planner: Planner,
    measured: RecentStatistics,
) -> RunConfig:
    """What the loop is given of a session: its settings, streams, tables, functions, planner and statistics."""
    options, tasks = settings.options, resident_tasks(settings.options, spark)
    sources, tables = registered.sources, registered.tables
    return RunConfig(
        streams={name: catalog.stream(name) for name in sorted({*sources, *tables})},
        sources={name: sources[name] for name in sorted(sources)},
        decide=planner,
        restore=make_sink,
        describe=portable_description,
        partitions=options.partitions,
        driver=settings.driver,
        set_aside=_dead_letter_box(settings).take if settings.checkpoint is not None else None,
        state_limit=settings.state_limit,
        key_limit=settings.key_limit,
        batch_bytes=batch_bytes(settings.memory, tasks),
        portion_bytes=portion_bytes(settings.memory, tasks),
        result_limit=settings.result_limit,
        merge_seconds=settings.merge_seconds,
        functions=registered.functions,
        adapter=adapter_for(settings),
        spark=spark,
        durability=settings.durability,
        derive_source=_derive_source,
        tables=dict(tables),
        statistics=measured,
        latency=settings.target,
        every=settings.period,
        too_slow=settings.too_slow,
        scaler=scaler_for(settings),
    )


def scaler_for(settings: Settings) -> Scaler:
    """Who decides how many tasks there are."""
    if settings.scale == "off":
        return FixedScale()
    return LoadScale(settings.min_tasks, settings.max_tasks, settings.options.tasks)


def _derive_source(stream: Stream, places: tuple[str, ...]) -> Source:
    return DerivedSource(stream.schema, places)


def adapter_for(settings: Settings, *, foreground: bool = False) -> Adapter:
    """Who decides when queries go on by another plan; in the ``foreground``, batches wait until one is found."""
    if settings.adapt == "off":
        return SettledPlan()
    always, adaptation = settings.adapt == "always", settings.adaptation
    finder: PlanFinder = BackgroundPlanner(adaptation.planning_seconds)
    if always or foreground:
        finder = ForegroundPlanner()
    return AdaptivePlan(finder, settings.options, settings.joint, adaptation, always=always)


def _dead_letter_box(settings: Settings) -> DeadLetterBox:
    return DeadLetterBox(_place(settings, "dead_letters"), dead_letters_of(settings.dead_letter_limit))


def _check_frames(config: RunConfig, settings: Settings) -> None:
    """Refuse streaming DataFrames where their rows cannot be put down: Spark writes them into the checkpoint."""
    frames = [name for name, source in config.sources.items() if isinstance(source, DataFrameSource)]
    if frames and is_object_uri(_place(settings)):
        raise ConfigError(
            f"stream {frames[0]} is a DataFrame, whose rows are put down in the checkpoint, {settings.checkpoint}",
            hint="use a directory as the checkpoint, or another source than a DataFrame",
        )


def _object_places(config: RunConfig, settings: Settings, queries: Queries) -> list[str]:
    """The places in object stores that tasks read and write."""
    sources = [source.path for source in config.sources.values() if isinstance(source, FilesSource)]
    sinks = [str(sink.path) for _, sink in queries.values() if isinstance(sink, ParquetSink | DeltaSink)]
    return [normal_place(place) for place in (_place(settings), *sources, *sinks) if is_object_uri(place)]


def _storage(settings: Settings) -> Storage:
    """The storage of the checkpoint; an object store that cannot be used is refused."""
    storage = storage_at(_place(settings))
    if isinstance(storage, ObjectStorage):
        storage.check()
    return storage


def _place(settings: Settings, *names: str) -> str:
    if settings.checkpoint is None:
        raise ConfigError("running needs a checkpoint", hint='make it Session(checkpoint="ck")')
    return "/".join((str(settings.checkpoint), *names))


def resident_tasks(options: Options, spark: SparkSession | None = None) -> int:
    """How many tasks run hops: one per core, but no more than there are partitions; each has some of them."""
    return min(options.partitions, options.tasks or _cores(spark))


def _cores(spark: SparkSession | None) -> int:
    """How many cores tasks have: those of this machine, or those that executors of a cluster have now."""
    if spark is not None:
        from weft.runtime.spark.session import is_on_one_machine

        if not is_on_one_machine(spark):
            return int(spark.sparkContext.defaultParallelism)
    return os.cpu_count() or 1


def executor_for(
    spark: SparkSession | None, execution: str, partitions: int, tasks: int, limit: int | None = None
) -> Executor:
    """Who runs the tasks: this process, where there is no Spark; tasks that stay, if there is room; else jobs.

    On several machines there may be more tasks later, up to a ``limit``, when the cluster has got more cores.
    """
    if execution == "local" or spark is None:
        return LocalExecutor(partitions)
    from weft.runtime.spark.jobs import JobsExecutor  # loaded while Java starts, this module needs no Spark
    from weft.runtime.spark.resident import DriverAddress, ResidentExecutor, fits, place_on_cluster
    from weft.runtime.spark.session import is_on_one_machine, own_session

    alone, why = is_on_one_machine(spark), fits(spark, tasks)
    limit = None if alone else limit
    if execution == "auto" and not alone:
        why = "Spark's tasks run on several machines"
    if execution == "resident" and why:
        raise ConfigError(f"batches cannot run in resident tasks: {why}", hint='use execution="jobs"')
    if execution == "jobs" or why:
        if execution == "auto":
            _LOG.info("batches run as jobs of Spark: %s", why)
        return JobsExecutor(own_session(spark), tasks, limit)
    place = DriverAddress() if alone else place_on_cluster(spark)
    return ResidentExecutor(own_session(spark), tasks, portable_description, place, limit)


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
    if not isinstance(sink, ParquetSink) or (directory := sink.directory) is None:
        raise ConfigError(
            f"the results of query {name} are in no files that Spark could read",
            hint='use sink=weft.to_parquet("…"), or none before dataframe() is called',
        )
    directory.mkdir(parents=True, exist_ok=True)
    columns = [f"{identifier(output.name)} {output.expr.type}" for output in query.shown]
    reader = _spark(settings).readStream.schema(", ".join((*columns, f"{sink.batch_column} long")))
    return reader.parquet(str(directory.absolute())).drop(sink.batch_column)


def _spark(settings: Settings) -> SparkSession:
    from weft.runtime.spark.session import create_spark  # planning needs no Spark

    return settings.spark or create_spark(settings.master)
