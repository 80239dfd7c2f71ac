"""How a session runs: where, in which order, and within which limits.

Guarantees: `Settings` are checked when they are made, so that a session with wrong settings does not exist. Every
option stands here once: the keywords of `weft.Session` and the entries of pipeline files are the fields of `Settings`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from datetime import timedelta
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from weft.bucket.memory_limits import task_memory
from weft.connectors.formats.dead_letters import DeadLetterLimit
from weft.errors import ConfigError, WeftError, nearest
from weft.logical.query.limits import DEFAULT_LIMITS, Limits
from weft.optimizer.adaptation import Adaptation
from weft.optimizer.joint.methods import METHODS
from weft.optimizer.space import Options
from weft.runtime.loop.config import DURABILITIES, PROCESS
from weft.runtime.loop.driver_order import DEFAULT, POLICIES
from weft.session.validation import (
    check,
    check_one_of,
    checkpoint_path,
    dead_letters_of,
    duration_of,
    refuse_connect,
    tasks_of,
)
from weft.stats.statistics import Statistics

if TYPE_CHECKING:  # only running needs Spark
    from pyspark.sql import SparkSession

__all__ = [
    "ADAPT",
    "EXECUTIONS",
    "RULE",
    "SCALE",
    "TOO_SLOW",
    "AtLeastOne",
    "OneOf",
    "Settings",
    "TimeSpan",
    "takes_settings",
]

# Whether plans follow the data: where it pays, never, or whenever another plan seems better.
ADAPT = ("auto", "off", "always")

# How batches run: on Spark in tasks that stay, as jobs, or in tasks that stay wherever there is room for them ("auto");
# or in this process, without Spark ("local").
EXECUTIONS = ("auto", "resident", "jobs", "local")

# What becomes of a query that cannot meet its target of latency, or keeps others from meeting theirs.
TOO_SLOW = ("report", "stop")

# Whether the number of tasks follows the load.
SCALE = ("auto", "off")


RULE = "rule"  # under which the metadata of a field says what its value has to be


@dataclass(frozen=True, slots=True)
class OneOf:
    """A setting that is one of some names; ``what`` is what an error calls it."""

    what: str
    names: tuple[str, ...]

    def check(self, value: object) -> None:
        """Refuse another name."""
        check_one_of(value, self.names, self.what)


@dataclass(frozen=True, slots=True)
class AtLeastOne:
    """A limit that is a number above 0; ``consequence`` is what any smaller one would mean, as an error says it.

    If it is ``optional``, None stands for no limit.
    """

    what: str
    consequence: str
    optional: bool = False

    def check(self, value: object) -> None:
        """Refuse what is no number, or too small a one."""
        if value is None and self.optional:
            return
        check(value, int, ConfigError, self.what, "use a number")
        if isinstance(value, int) and value < 1:
            raise ConfigError(self.consequence.format(value), hint="use a number above 0")


@dataclass(frozen=True, slots=True)
class TimeSpan:
    """A time that is longer than none, given as such or as a text; None where nothing is said. ``what`` names it."""

    what: str

    def check(self, value: object) -> None:
        """Refuse what is no time, and one that is not longer than none."""
        if value is not None:
            self.span(value)

    def span(self, value: object) -> timedelta:
        """The time that a text or a timedelta names."""
        check(value, str | timedelta, ConfigError, self.what, 'use a text, as in "500 ms"')
        try:
            span = duration_of(value, self.what)  # type: ignore[arg-type]
        except WeftError as error:
            raise ConfigError(f"{self.what}: {error.message}", hint='use a text, as in "500 ms"') from None
        if span <= timedelta(0):
            raise ConfigError(f"{self.what} cannot be {value!r}", hint='use a longer time, as in "500 ms"')
        return span


def _ruled(default: Any, rule: OneOf | AtLeastOne | TimeSpan) -> Any:
    return field(default=default, metadata={RULE: rule})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The settings of a session, which are the keywords of `weft.Session`.

    ``spark`` is a Spark session, else ``master`` makes one. The path of a checkpoint is made absolute: it stays where
    it was when the process goes elsewhere. The number of tasks that run at once is put into the options as soon as it
    is known. ``statistics`` is what is known of the data at the beginning. Where None is given for an option that is a
    value of its own, its default is meant.
    """

    checkpoint: str | Path | None = None
    master: str = "local[*]"
    spark: SparkSession | None = None
    statistics: Statistics = field(default_factory=Statistics)
    options: Options = field(default_factory=Options)
    driver: str = _ruled(DEFAULT, OneOf("driver policy", tuple(POLICIES)))
    dead_letter_limit: DeadLetterLimit | int | None = None
    joint: str = _ruled("auto", OneOf("joint optimiser", tuple(METHODS)))
    query_limit: int = _ruled(
        1_000, AtLeastOne("a limit of queries", "with a limit of {} queries, none runs")
    )
    state_limit: int | None = None  # bytes per query
    key_limit: int = _ruled(
        10_000_000, AtLeastOne("a limit of results of a key", "with a limit of {} results, no key has any")
    )
    execution: str = _ruled("auto", OneOf("execution", EXECUTIONS))
    limits: Limits = DEFAULT_LIMITS  # of the size of a query
    memory: str | int | None = None  # of a task; None: by what the machine has
    result_limit: int | None = _ruled(  # results of one query in one batch
        None, AtLeastOne("a limit of results", "with a limit of {} results, no query has any", optional=True)
    )
    adapt: str = _ruled("auto", OneOf("way to adapt", ADAPT))
    adaptation: Adaptation = field(default_factory=Adaptation)
    ship: bool = False  # whether Weft is sent to the executors
    durability: str = _ruled(PROCESS, OneOf("durability", DURABILITIES))  # what a committed batch survives
    latency: timedelta | str | None = _ruled(None, TimeSpan("latency"))  # noqa: RUF009
    every: timedelta | str | None = _ruled(None, TimeSpan("every"))  # noqa: RUF009
    merging: timedelta | str = _ruled("100 ms", TimeSpan("merging"))  # noqa: RUF009
    too_slow: str = _ruled("report", OneOf("way with queries that are too slow", TOO_SLOW))
    scale: str = _ruled("auto", OneOf("way to scale", SCALE))
    min_tasks: int = _ruled(1, AtLeastOne("the least number of tasks", "{} tasks run nothing"))
    max_tasks: int | None = _ruled(
        None, AtLeastOne("the largest number of tasks", "{} tasks run nothing", optional=True)
    )

    def __post_init__(self) -> None:
        defaults = {"statistics": Statistics, "options": Options, "limits": Limits, "adaptation": Adaptation}
        for name, kind in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, kind())
            check(getattr(self, name), kind, ConfigError, name, f"use weft.{kind.__name__}")
        for setting in fields(self):
            if RULE in setting.metadata:
                setting.metadata[RULE].check(getattr(self, setting.name))
        for name in ("latency", "every", "merging"):
            if (given := getattr(self, name)) is not None:
                object.__setattr__(self, name, TimeSpan(name).span(given))
        self._check_others()
        object.__setattr__(self, "dead_letter_limit", dead_letters_of(self.dead_letter_limit))
        if self.checkpoint is not None:
            object.__setattr__(self, "checkpoint", checkpoint_path(self.checkpoint))
        if self.options.tasks is None:
            tasks = tasks_of(self.master, self.spark)
            object.__setattr__(self, "options", replace(self.options, tasks=tasks))

    def _check_others(self) -> None:
        """Refuse what no rule of a field is about."""
        check(self.checkpoint, str | Path | None, ConfigError, "a checkpoint", "name a directory")
        check(self.master, str, ConfigError, "a master", 'use a text, as in "local[*]"')
        refuse_connect(self.master, self.spark)
        limit = (self.state_limit, int | None, ConfigError, "a limit of state")
        check(*limit, "use a number of bytes per query")
        if not isinstance(self.ship, bool):
            raise ConfigError(f"ship cannot be {self.ship!r}", hint="use True or False")
        if self.memory is not None:
            task_memory(self.memory, 1)
        if self.max_tasks is not None and self.max_tasks < self.min_tasks:
            raise ConfigError(
                f"there cannot be at least {self.min_tasks} and at most {self.max_tasks} tasks",
                hint="make max_tasks larger than min_tasks, or leave one of them out",
            )
        if self.target is not None and self.period is not None and self.period > self.target:
            raise ConfigError(
                f"with a batch every {self.period:g} s, no result can be expected within {self.target:g} s",
                hint="make every shorter than latency, or leave one of them out",
            )

    @property
    def target(self) -> float | None:
        """Within how many seconds results are wanted, at the latest; None: as soon as it goes."""
        return self.latency.total_seconds() if isinstance(self.latency, timedelta) else None

    @property
    def merge_seconds(self) -> float:
        """How many seconds of a batch a task may spend on merging what is stored."""
        return TimeSpan("merging").span(self.merging).total_seconds()

    @property
    def period(self) -> float | None:
        """How many seconds lie between the beginnings of two batches; None: the next one begins when it can."""
        return self.every.total_seconds() if isinstance(self.every, timedelta) else None


_P = ParamSpec("_P")
_S = TypeVar("_S")


def takes_settings(
    kind: Callable[_P, Settings],
) -> Callable[[Callable[[_S, Settings], None]], Callable[Concatenate[_S, _P], None]]:
    """A decorator by which an ``__init__`` that is given settings takes their fields as keywords instead."""

    def decorate(init: Callable[[_S, Settings], None]) -> Callable[Concatenate[_S, _P], None]:
        keywords = dict(signature(kind).parameters)

        @wraps(init)
        def call(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> None:
            for name in kwargs:
                if name not in keywords:
                    raise TypeError(
                        f"{type(self).__name__} has no option {name!r}: {nearest(name, keywords)}"
                    )
            init(self, kind(*args, **kwargs))

        first = Parameter("self", Parameter.POSITIONAL_ONLY)
        call.__signature__ = signature(init).replace(parameters=[first, *keywords.values()])  # type: ignore[attr-defined]
        return call

    return decorate
