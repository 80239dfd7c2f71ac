"""When running queries are planned again, and when their plan gives way to a better one (CLASH 7.2.2, design D12).

Guarantees: pure, without a clock. A plan is given up only for one whose gain is above a threshold and pays for the
change before the windows have passed. Orders of probes over the same stores change at once; stores are laid out anew
before a batch if that holds it up for no longer than the user allows, and are filled side by side otherwise. A workload
whose best plan flips between two does not make the plan flip: each return to a plan that was left makes the next
change wait for twice as many epochs.

Since laying out stores anew reads all that is stored, heavy values are a reason to plan again only if a value has
clearly become heavy or has clearly ceased to be, only once for the same values, and not within a few batches after the
last time.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import timedelta
from types import UnionType

from weft.errors import ConfigError
from weft.logical.arguments import check_fields
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.workload import WorkloadPlan
from weft.stats.skew import HeavyShares, HeavyValue, key_column

__all__ = [
    "AT_ONCE",
    "EAGER",
    "SIDE_BY_SIDE",
    "Adaptation",
    "HeavyValueWatch",
    "Hysteresis",
    "LastingGain",
    "Prospect",
    "Verdict",
    "is_alike",
    "judge",
]


# The ways in which a plan changes: over the same stores; by a job before a batch that lays stores out anew; or by
# filling new stores while the old ones answer.
AT_ONCE, EAGER, SIDE_BY_SIDE = "at once", "eager", "side by side"


@dataclass(frozen=True, slots=True)
class Adaptation:
    """How plans follow the data.

    An epoch ends after at least ``epoch_batches`` and ``epoch_seconds``; then the plan is looked at. What was
    measured loses half of its weight in ``half_life_batches``, and in ``half_life_seconds``. A new plan must save
    ``threshold`` of the work, and pay for the change within ``horizon``; None: until the windows have passed. Laying
    out stores anew may hold up a batch for ``latency`` seconds; else they are filled side by side, unless ``migrate``
    names one way for all changes. A search for a better plan ends after ``planning_seconds``.
    """

    epoch_batches: int = 8
    epoch_seconds: float = 2.0
    half_life_batches: float = 16.0
    half_life_seconds: float = 60.0
    threshold: float = 0.1
    horizon: timedelta | None = None
    latency: float = 0.5
    migrate: str = "auto"
    planning_seconds: float = 30.0

    WAYS = ("auto", EAGER, SIDE_BY_SIDE)

    def __post_init__(self) -> None:
        check_fields(self, ConfigError)
        self._check_types()
        if self.epoch_batches < 1 or not self.epoch_seconds >= 0:
            raise ConfigError(
                f"an epoch of {self.epoch_batches} batches and {self.epoch_seconds} seconds cannot be",
                hint="use at least 1 batch, and 0 seconds or more",
            )
        if not (self.half_life_batches > 0 and self.half_life_seconds > 0):
            raise ConfigError("a half-life must be above 0", hint="use a number of batches, and of seconds")
        if not 0 <= self.threshold < 1:
            raise ConfigError(
                f"a threshold of {self.threshold} cannot be",
                hint="use the part of the work that a new plan must save, as 0.1",
            )
        if self.horizon is not None and self.horizon <= timedelta(0):
            raise ConfigError(f"a horizon of {self.horizon} makes no sense", hint="use a time above 0")
        if not self.latency >= 0 or not self.planning_seconds > 0:
            raise ConfigError("a latency or a time for planning is negative", hint="use seconds")
        if self.migrate not in self.WAYS:
            raise ConfigError(f"there is no way {self.migrate!r} to migrate", hint=", ".join(self.WAYS))

    def _check_types(self) -> None:
        for field_ in fields(self):
            value = getattr(self, field_.name)
            if not isinstance(value, _KINDS.get(field_.name, float | int)) or isinstance(value, bool):
                hint = "use a timedelta" if field_.name == "horizon" else f"as in {field_.default!r}"
                raise ConfigError(f"{field_.name} cannot be {value!r}", hint=hint)


# What settings are that are not just numbers.
_KINDS: dict[str, type | UnionType] = {"epoch_batches": int, "horizon": timedelta | None, "migrate": str}


@dataclass(frozen=True, slots=True)
class Prospect:
    """What a change of plan would bring and cost.

    ``gain`` is the part of the work that the new plan saves, and ``work`` how many seconds of work there are now per
    second of stream. The saving counts for ``horizon`` seconds of stream. ``pause`` is how many seconds it takes to lay
    out stores anew, None if that is not needed. ``extra`` is how much work filling side by side adds, as a part of that
    which there is now; None if new stores would never have all they need. Filling takes until the ``windows`` have
    passed, in seconds of stream; None: as long as the horizon. ``lasted`` says that the horizon is longer than that,
    because the gain has lasted for so long already.
    """

    gain: float
    work: float
    horizon: float
    pause: float | None = None
    extra: float | None = None
    windows: float | None = None
    lasted: bool = False

    @property
    def filling(self) -> float | None:
        """The seconds that it takes to fill stores side by side; None if that cannot be done."""
        if self.extra is None:
            return None
        return max(0.0, self.extra) * self.work * (self.horizon if self.windows is None else self.windows)

    @property
    def saving(self) -> float:
        """The seconds that the new plan saves within the horizon."""
        return self.gain * self.work * self.horizon


@dataclass(frozen=True, slots=True)
class Verdict:
    """The way in which a plan changes, or None: it stays; ``reason`` says why in words."""

    way: str | None
    reason: str


def judge(prospect: Prospect, adaptation: Adaptation, *, always: bool = False) -> Verdict:
    """Decide whether and how a plan changes; with ``always``, it changes whatever that costs."""
    gain = f"{prospect.gain:.0%} less work expected"
    if not always and prospect.gain < max(adaptation.threshold, 1e-9):
        return Verdict(None, f"{gain}, below the threshold of {adaptation.threshold:.0%}")
    if prospect.pause is None:
        return Verdict(AT_ONCE, f"{gain}, over the same stores")
    filling = prospect.filling
    span = "by the time the windows have passed" if adaptation.horizon is None else f"in {adaptation.horizon}"
    span = f"in {prospect.horizon:.0f} s, for which the gain has lasted" if prospect.lasted else span
    saved = f"{gain}: {prospect.saving:.2f} s saved {span}"
    eager = Verdict(EAGER, f"{saved}, {prospect.pause:.2f} s to lay out stores anew")
    side = Verdict(SIDE_BY_SIDE, f"{saved}, {filling or 0.0:.2f} s to fill stores side by side")
    if adaptation.migrate != "auto" or always:
        wants_side = adaptation.migrate == SIDE_BY_SIDE or (
            adaptation.migrate == "auto" and prospect.pause > adaptation.latency
        )
        chosen = side if wants_side and filling is not None else eager
        cost = filling if chosen is side and filling is not None else prospect.pause
        return chosen if always or prospect.saving > cost else Verdict(None, f"{chosen.reason}: not worth it")
    if prospect.saving > prospect.pause and prospect.pause <= adaptation.latency:
        return eager
    if filling is not None and prospect.saving > filling:
        return side
    if filling is None and prospect.saving > prospect.pause:
        return eager
    return Verdict(None, f"{eager.reason}: not worth it")


@dataclass
class LastingGain:
    """Since when a better plan has been known that would not have paid for itself, in seconds of stream.

    A gain that has lasted for some time is expected to last for as long again. So where data drifts slowly, a plan that
    takes longer to pay than the windows are long is taken in the end; where data flips, no gain lasts.
    """

    since: float | None = None

    def horizon(self, now: float, windows: float) -> float:
        """For how many seconds of stream a saving counts: until the windows have passed, or as long as it has lasted.

        >>> LastingGain(since=100.0).horizon(now=130.0, windows=5.0), LastingGain().horizon(130.0, windows=5.0)
        (30.0, 5.0)
        """
        return windows if self.since is None else max(windows, now - self.since)

    def goes_on(self, now: float) -> None:
        """Note that a better plan is known, and is not worth its change yet."""
        self.since = now if self.since is None else self.since

    def ends(self) -> None:
        """Note that no better plan is known, or that it was taken."""
        self.since = None


@dataclass
class Hysteresis:
    """Remembers plans that were left, and how often one came back, so that plans do not flip."""

    memory: int = 16  # so many epochs without a flip make up for one
    left: list[WorkloadPlan] = field(default_factory=list)
    flips: int = 0
    better: int = 0  # for how many epochs on end a better plan has been known
    quiet: int = 0

    @property
    def needed(self) -> int:
        """For how many epochs on end a better plan has to be known before it is taken."""
        return 1 << self.flips

    def allows(self) -> bool:
        """Count an epoch with a better plan, and say whether the plan may change now."""
        self.better += 1
        return self.better >= self.needed

    def stays(self) -> None:
        """Count an epoch without a better plan."""
        self.better = 0
        self.quiet += 1
        if self.quiet >= self.memory:
            self.flips, self.quiet = max(0, self.flips - 1), 0

    def changed(self, before: WorkloadPlan, after: WorkloadPlan) -> None:
        """Remember a change of plan."""
        self.better = self.quiet = 0
        if any(is_alike(after, plan) for plan in self.left):
            self.flips = min(6, self.flips + 1)
        known = [plan for plan in self.left if not is_alike(plan, before)]
        self.left = [*known[-7:], before]


def is_alike(one: WorkloadPlan, other: WorkloadPlan) -> bool:
    """Whether plans answer the same queries in the same way, whatever was known when they were made."""
    answers = [{answer.name: answer for answer in plan.answers} for plan in (one, other)]
    return answers[0] == answers[1] and set(one.upkeep) == set(other.upkeep)


# As (stream, column, value): heavy values that no store scatters, and scattered values that are no longer heavy.
_Surprises = frozenset[tuple[str, str, HeavyValue]]


@dataclass
class HeavyValueWatch:
    """Compares the heavy values that batches report with those that the running stores scatter.

    A value is clearly heavy if its share of a stream is ``enter`` times what a partition has on average, and clearly
    not heavy below ``leave`` times that, which is far less than the optimiser scatters; in between, the plan stays.
    """

    enter: float = 0.75
    leave: float = 0.05
    pause: int = 8  # the least number of batches between two plans
    last: int = 0
    considered: _Surprises = field(default_factory=frozenset)

    def should_replan(self, graph: PhysicalGraph, heavy: HeavyShares, number: int) -> bool:
        """Whether to plan again before the batch of that number; if so, the same values give no reason again."""
        if number < self.last + self.pause:
            return False
        found = self.surprises(graph, heavy)
        if not found or found <= self.considered:
            return False
        self.last, self.considered = number, found
        return True

    def surprises(self, graph: PhysicalGraph, heavy: HeavyShares) -> _Surprises:
        """The heavy values that the stores of a graph do not scatter, and scattered ones that are no longer heavy."""
        found = set()
        for store in graph.stores:
            by, partitions = key_column(store.layout.by), store.layout.partitions
            if by is None or partitions < 2:
                continue
            stream = graph.input(by.alias).stream.name
            shares = dict(heavy.get(stream, {}).get(by.name, ()))
            known = {literal.value for literal in store.layout.heavy if isinstance(literal.value, int | str)}
            new = {v for v, share in shares.items() if share * partitions > self.enter and v not in known}
            gone = {v for v in known if shares.get(v, 0.0) * partitions < self.leave}
            found |= {(stream, by.name, value) for value in (new | gone if shares else new)}
        return frozenset(found)
