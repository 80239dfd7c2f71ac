"""What a batch did: the figures behind progress, `explain()` and the statistics of the optimiser.

Guarantees: plain data; sums over partitions. Times are measured by the loop and its tasks, and given to it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from weft.logical.expr import to_sql
from weft.plan.graph import PhysicalGraph
from weft.stats.skew import HeavyShares
from weft.stats.statistics import predicate_name

if TYPE_CHECKING:  # planning looks at metrics, and needs no kernels
    from weft.bucket.bounds import Bounds
    from weft.kernels.expr.user_functions import CallCounts
    from weft.runtime.hop.census import Census
    from weft.runtime.hop.outcome import StepCount

__all__ = [
    "BatchMetrics",
    "ConditionMetrics",
    "FunctionMetrics",
    "InputMetrics",
    "KeyMetrics",
    "StepMetrics",
    "StoreMetrics",
    "next_keys",
    "sum_conditions",
    "sum_functions",
    "sum_steps",
    "sum_stores",
]


@dataclass(frozen=True, slots=True)
class InputMetrics:
    """Tuples of an input that took part, and that were set aside: late, without a time, or not readable at all.

    ``rows`` counts before the query's filters; ``oldest`` and ``newest`` are the first and the last time among them,
    in microseconds.
    """

    rows: int
    late: int = 0
    untimed: int = 0
    malformed: int = 0
    oldest: int | None = None
    newest: int | None = None


@dataclass(frozen=True, slots=True)
class StepMetrics:
    """Tuples that probed over an edge, and what they found.

    ``copies`` of the probes are further ones of tuples with a heavy value, which probe everywhere.
    """

    probes: int
    matches: int
    copies: int = 0

    @property
    def tuples(self) -> int:
        """How many tuples probed, those with a heavy value once."""
        return self.probes - self.copies

    @property
    def matches_per_probe(self) -> float:
        """How many matches a tuple had on average."""
        return self.matches / self.tuples if self.tuples else 0.0


@dataclass(frozen=True, slots=True)
class StoreMetrics:
    """What a store holds after a batch, copies included."""

    rows: int
    bytes: int
    runs: int


@dataclass(frozen=True, slots=True)
class KeyMetrics:
    """The keys of a query on one key, of all batches so far, and the tuples set aside because of too many results.

    A key is ``dangling`` when it has been closed without a tuple of every input; until then it is open.
    """

    seen: int = 0
    complete: int = 0
    dangling: int = 0
    aside: int = 0
    too_many: tuple[
        Mapping[str, Any], ...
    ] = ()  # of this batch: some keys, and how many tuples each input has

    @property
    def open(self) -> int:
        """Keys that may still become complete."""
        return self.seen - self.complete - self.dangling

    def __str__(self) -> str:
        return f"{self.complete:,} complete, {self.open:,} open, {self.dangling:,} dangling"


@dataclass(frozen=True, slots=True)
class FunctionMetrics:
    """Rows that a user's function computed, and in how many seconds of all tasks together."""

    rows: int = 0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class ConditionMetrics:
    """Rows for which a condition that calls users' functions was checked, and those that fulfilled it."""

    rows: int = 0
    passed: int = 0


@dataclass(frozen=True, slots=True)
class BatchMetrics:
    """One batch.

    ``started`` is its time of arrival in seconds since 1970, ``elapsed`` how many seconds it took in all, ``backlog``
    how much of each stream was left waiting, ``closed`` how many results had no partner, or were not found by probes.
    """

    number: int
    order: tuple[str, ...]
    inputs: Mapping[str, InputMetrics]
    steps: Mapping[str, StepMetrics]
    stores: Mapping[str, StoreMetrics]
    results: int
    answers: Mapping[str, int] = field(default_factory=dict)  # results by query, where there are many
    watermarks: Mapping[str, int] = field(default_factory=dict)
    seconds: tuple[float, ...] = ()  # per hop; the first is the sources', the last the settling of state
    started: float = 0.0
    elapsed: float = 0.0
    backlog: Mapping[str, int] = field(default_factory=dict)
    closed: Mapping[str, int] = field(default_factory=dict)  # results that were closed, by query
    files: int = 0  # that were read
    keys: Mapping[str, KeyMetrics] = field(default_factory=dict)  # of queries on one key
    functions: Mapping[str, FunctionMetrics] = field(default_factory=dict)  # of users
    conditions: Mapping[str, ConditionMetrics] = field(
        default_factory=dict
    )  # that call them, by `predicate_name`
    busiest: tuple[float, ...] = ()  # per hop: the part of the work that its slowest task did
    heavy: HeavyShares = field(default_factory=dict)  # common values of keys, as far as they are known by now
    punctuated: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict
    )  # the last punctuation, by query
    held: Mapping[str, int] = field(default_factory=dict)  # results that wait to leave in order, by query

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> BatchMetrics:
        """What `to_dict` stands for, also after a way through JSON; what an older version left out is as by default."""
        parts = {
            "order": tuple(data["order"]),
            "inputs": {alias: InputMetrics(**one) for alias, one in data["inputs"].items()},
            "steps": {edge: StepMetrics(**one) for edge, one in data["steps"].items()},
            "stores": {store: StoreMetrics(**one) for store, one in data["stores"].items()},
            "seconds": tuple(data.get("seconds", ())),
            "functions": {name: FunctionMetrics(**one) for name, one in data.get("functions", {}).items()},
            "conditions": {n: ConditionMetrics(**one) for n, one in data.get("conditions", {}).items()},
            "busiest": tuple(data.get("busiest", ())),
            "heavy": {
                stream: {name: tuple(map(tuple, shares)) for name, shares in columns.items()}
                for stream, columns in data.get("heavy", {}).items()
            },
            "keys": {
                name: KeyMetrics(**{**one, "too_many": tuple(one["too_many"])})
                for name, one in data.get("keys", {}).items()
            },
        }
        return cls(**{**data, **parts})


def next_keys(
    before: Mapping[str, KeyMetrics], counted: Iterable[tuple[str, Census]], ended: Iterable[str]
) -> dict[str, KeyMetrics]:
    """The keys of queries after a batch, from what was counted in its partitions; the rows of some have ended."""
    found = {name: replace(one, too_many=()) for name, one in before.items()}
    for name, one in counted:
        old = found.get(name, KeyMetrics())
        too_many = (*old.too_many, *({"key": each.key, **each.counts} for each in one.too_many))
        sums = (old.seen + one.seen, old.complete + one.complete, old.dangling, old.aside + one.aside)
        found[name] = KeyMetrics(*sums, too_many)
    for name in ended:
        if name in found:
            found[name] = replace(found[name], dangling=found[name].seen - found[name].complete)
    return found


def sum_steps(counts: Iterable[StepCount]) -> dict[str, StepMetrics]:
    """The probes of all partitions, by edge."""
    found: dict[str, StepMetrics] = {}
    for count in counts:
        old = found.get(count.edge, StepMetrics(0, 0))
        sums = (old.probes + count.probes, old.matches + count.matches, old.copies + count.copies)
        found[count.edge] = StepMetrics(*sums)
    return found


def sum_functions(counts: Iterable[CallCounts]) -> dict[str, FunctionMetrics]:
    """The calls of users' functions in all partitions, by name."""
    found: dict[str, FunctionMetrics] = {}
    for one in counts:
        for name, spent in one.functions.items():
            old = found.get(name, FunctionMetrics())
            found[name] = FunctionMetrics(old.rows + spent.rows, old.seconds + spent.seconds)
    return dict(sorted(found.items()))


def sum_conditions(counts: Iterable[CallCounts], graph: PhysicalGraph) -> dict[str, ConditionMetrics]:
    """The conditions that call users' functions, checked in all partitions, by `predicate_name`."""
    named = {to_sql(p): predicate_name(m.query, p) for m in graph.members for p in m.query.conditions}
    found: dict[str, ConditionMetrics] = {}
    for one in counts:
        for text, checked in one.conditions.items():
            if text in named:
                old = found.get(named[text], ConditionMetrics())
                found[named[text]] = ConditionMetrics(old.rows + checked.rows, old.passed + checked.passed)
    return dict(sorted(found.items()))


def sum_stores(bounds: Iterable[tuple[str, Bounds]]) -> dict[str, StoreMetrics]:
    """The runs of all partitions, by store."""
    found: dict[str, StoreMetrics] = {}
    for store, run in bounds:
        old = found.get(store, StoreMetrics(0, 0, 0))
        found[store] = StoreMetrics(old.rows + run.rows, old.bytes + run.bytes, old.runs + 1)
    return found
