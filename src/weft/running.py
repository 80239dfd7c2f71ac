"""A session's queries begin to run: the log, the executor, the loop.

Guarantees: what cannot run is refused before anything has started.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from weft.errors import ConfigError
from weft.logical.catalog import Catalog
from weft.memory import batch_bytes, portion_bytes
from weft.optimizer.replanning import Lookout
from weft.optimizer.space import Options
from weft.planning import Planner
from weft.ports.source import Source
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.loop.config import RunConfig
from weft.runtime.loop.executor import Executor
from weft.runtime.loop.handle import Running, launch
from weft.runtime.loop.loop import Loop
from weft.runtime.queries.request import QueryRequest
from weft.runtime.task.functions import PackedFunction
from weft.settings import Settings
from weft.sinks.describe import made, portable
from weft.sources.dead_letter import DeadLetterBox
from weft.stats.statistics import Statistics

__all__ = ["executor_for", "resident_tasks", "run"]

_LOG = logging.getLogger("weft")


def run(
    spark: Any,
    settings: Settings,
    catalog: Catalog,
    sources: Mapping[str, Source],
    queries: Mapping[str, tuple[QueryRequest, Any]],
    measured: Callable[[], Statistics],
    options: Options,
    functions: Mapping[str, PackedFunction],
    *,
    available_now: bool = False,
) -> Running:
    """Start queries on Spark."""
    if settings.checkpoint is None:
        raise ConfigError("running needs a checkpoint", hint='make it Session(checkpoint="ck")')
    root = Path(settings.checkpoint)
    tasks = resident_tasks(options)
    config = RunConfig(
        {name: catalog.stream(name) for name in sorted(sources)},
        {name: sources[name] for name in sorted(sources)},
        Planner(measured, options, settings.joint),
        made,
        portable,
        options.partitions,
        settings.driver,
        DeadLetterBox(root / "dead_letters", settings.dead_letters).take,
        settings.state_limit,
        settings.key_limit,
        batch_bytes(settings.memory, tasks),
        portion_bytes(settings.memory, tasks),
        settings.result_limit,
        functions=functions,
        asks=Lookout().asks,
        spark=spark,
    )
    executor = executor_for(spark, settings.execution, options.partitions, tasks)
    return launch(Loop(config, Checkpoint.at(root), executor), queries, available_now=available_now)


def resident_tasks(options: Options) -> int:
    """How many tasks stay: one per core, but no more than there are partitions."""
    return min(options.partitions, options.tasks or os.cpu_count() or 1)


def executor_for(spark: Any, execution: str, partitions: int, tasks: int) -> Executor:
    """Who runs the tasks: those that stay, if they are asked for or there is room for them, else jobs."""
    from weft.runtime.spark.jobs import JobsExecutor  # loaded while Java starts, this module needs no Spark
    from weft.runtime.spark.resident import ResidentExecutor, fits
    from weft.runtime.spark.session import is_on_one_machine, own_session

    why = fits(spark, tasks) if is_on_one_machine(spark) else "Spark's tasks run on several machines"
    if execution == "resident" and why:
        raise ConfigError(f"batches cannot run in resident tasks: {why}", hint='use execution="jobs"')
    if execution == "jobs" or why:
        if execution == "auto":
            _LOG.info("batches run as jobs of Spark: %s", why)
        return JobsExecutor(own_session(spark), partitions)
    return ResidentExecutor(own_session(spark), partitions, tasks, portable)
