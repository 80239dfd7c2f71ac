"""How a session runs: where, in which order, and within which limits.

Guarantees: checked when made, so that a session with wrong settings does not exist.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from weft.arguments import check, check_one_of, checkpoint_path
from weft.errors import ConfigError
from weft.memory import task_memory
from weft.optimizer.joint.methods import METHODS
from weft.runtime.loop.driver import DEFAULT, POLICIES
from weft.sources.dead_letter import DeadLetterLimit

__all__ = ["EXECUTIONS", "Settings"]

# How batches run on Spark: in tasks that stay, as jobs, or in tasks that stay wherever there is room for them.
EXECUTIONS = ("auto", "resident", "jobs")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a session; ``spark`` is a session of Spark's, else one is made for ``master``.

    The path of a checkpoint is made absolute: it stays where it was when the process goes elsewhere.
    """

    checkpoint: str | Path | None = None
    master: str = "local[*]"
    spark: Any = None
    driver: str = DEFAULT
    dead_letters: DeadLetterLimit = field(default_factory=DeadLetterLimit)
    joint: str = "auto"
    query_limit: int = 1_000
    state_limit: int | None = None  # bytes per query
    key_limit: int = 10_000_000  # results of one key
    execution: str = "auto"
    memory: str | int | None = None  # of a task; None: by what the machine has
    result_limit: int | None = None  # results of one query in one batch

    def __post_init__(self) -> None:
        check(self.checkpoint, str | Path | None, ConfigError, "a checkpoint", "name a directory")
        if self.checkpoint is not None:
            object.__setattr__(self, "checkpoint", checkpoint_path(self.checkpoint))
        check(self.query_limit, int, ConfigError, "a limit of queries", "use a number")
        check(
            self.state_limit, int | None, ConfigError, "a limit of state", "use a number of bytes per query"
        )
        check(self.key_limit, int, ConfigError, "a limit of results of a key", "use a number")
        if self.key_limit < 1:
            raise ConfigError(
                f"with a limit of {self.key_limit} results, no key has any", hint="use a number above 0"
            )
        check_one_of(self.execution, EXECUTIONS, "execution")
        if self.memory is not None:
            task_memory(self.memory, 1)
        check(self.result_limit, int | None, ConfigError, "a limit of results", "use a number")
        if self.result_limit is not None and self.result_limit < 1:
            raise ConfigError(
                f"with a limit of {self.result_limit} results, no query has any", hint="use a number above 0"
            )
        check_one_of(self.joint, METHODS, "joint optimiser")
        check_one_of(self.driver, POLICIES, "driver policy")
