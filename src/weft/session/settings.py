"""How a session runs: where, in which order, and within which limits.

Guarantees: `Settings` are checked when they are made, so that a session with wrong settings does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from weft.bucket.memory_limits import task_memory
from weft.connectors.formats.dead_letters import DeadLetterLimit
from weft.errors import ConfigError
from weft.logical.query.limits import DEFAULT_LIMITS, Limits
from weft.optimizer.adaptation import Adaptation
from weft.optimizer.joint.methods import METHODS
from weft.optimizer.space import Options
from weft.runtime.loop.config import DURABILITIES, PROCESS
from weft.runtime.loop.driver import DEFAULT, POLICIES
from weft.session.validation import (
    check,
    check_one_of,
    checkpoint_path,
    dead_letters_of,
    refuse_connect,
    tasks_of,
)

if TYPE_CHECKING:  # only running needs Spark
    from pyspark.sql import SparkSession

__all__ = ["ADAPT", "EXECUTIONS", "Settings"]

# Whether plans follow the data: where it pays, never, or whenever another plan seems better.
ADAPT = ("auto", "off", "always")

# How batches run: on Spark in tasks that stay, as jobs, or in tasks that stay wherever there is room for them ("auto");
# or in this process, without Spark ("local").
EXECUTIONS = ("auto", "resident", "jobs", "local")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a session, as its keywords have them; ``spark`` is a Spark session, else ``master`` makes one.

    The path of a checkpoint is made absolute: it stays where it was when the process goes elsewhere. The number of
    tasks that run at once is put into the options as soon as it is known.
    """

    checkpoint: str | Path | None = None
    master: str = "local[*]"
    spark: SparkSession | None = None
    options: Options = field(default_factory=Options)
    driver: str = DEFAULT
    dead_letter_limit: DeadLetterLimit | int | None = None
    joint: str = "auto"
    query_limit: int = 1_000
    state_limit: int | None = None  # bytes per query
    key_limit: int = 10_000_000  # results of one key
    execution: str = "auto"
    limits: Limits = DEFAULT_LIMITS  # of the size of a query
    memory: str | int | None = None  # of a task; None: by what the machine has
    result_limit: int | None = None  # results of one query in one batch
    adapt: str = "auto"
    adaptation: Adaptation = field(default_factory=Adaptation)
    ship: bool = False  # whether Weft is sent to the executors
    durability: str = PROCESS  # what a committed batch survives

    def __post_init__(self) -> None:
        check(self.checkpoint, str | Path | None, ConfigError, "a checkpoint", "name a directory")
        check(self.options, Options, ConfigError, "options", "use weft.Options")
        check(self.limits, Limits, ConfigError, "limits", "use weft.Limits")
        object.__setattr__(self, "dead_letter_limit", dead_letters_of(self.dead_letter_limit))
        if self.checkpoint is not None:
            object.__setattr__(self, "checkpoint", checkpoint_path(self.checkpoint))
        check(self.master, str, ConfigError, "a master", 'use a text, as in "local[*]"')
        refuse_connect(self.master, self.spark)
        if self.options.tasks is None:
            tasks = tasks_of(self.master, self.spark)
            object.__setattr__(self, "options", replace(self.options, tasks=tasks))
        self._check_limits()
        if not isinstance(self.ship, bool):
            raise ConfigError(f"ship cannot be {self.ship!r}", hint="use True or False")
        check_one_of(self.execution, EXECUTIONS, "execution")
        if self.memory is not None:
            task_memory(self.memory, 1)
        check_one_of(self.joint, METHODS, "joint optimiser")
        check_one_of(self.driver, POLICIES, "driver policy")
        check_one_of(self.adapt, ADAPT, "way to adapt")
        check_one_of(self.durability, DURABILITIES, "durability")
        check(self.adaptation, Adaptation, ConfigError, "adaptation", "use weft.Adaptation")

    def _check_limits(self) -> None:
        check(self.query_limit, int, ConfigError, "a limit of queries", "use a number")
        check(
            self.state_limit, int | None, ConfigError, "a limit of state", "use a number of bytes per query"
        )
        check(self.key_limit, int, ConfigError, "a limit of results of a key", "use a number")
        if self.key_limit < 1:
            raise ConfigError(
                f"with a limit of {self.key_limit} results, no key has any", hint="use a number above 0"
            )
        check(self.result_limit, int | None, ConfigError, "a limit of results", "use a number")
        if self.result_limit is not None and self.result_limit < 1:
            raise ConfigError(
                f"with a limit of {self.result_limit} results, no query has any", hint="use a number above 0"
            )
