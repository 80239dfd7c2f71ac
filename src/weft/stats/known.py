"""What batches have told of the data, as sums in which older batches weigh less (design, D11; CLASH 7.2.1).

Guarantees: a plain value that goes through JSON unchanged. It says nothing of plans: what batches counted by one plan
is added to what they counted by another. Every sum is over batches, and a batch that has aged by one `HalfLife` weighs
half of what the newest one weighs. A figure is a quotient of two such sums, so that it is an average in which recent
batches count most, and the sum below the line is its *evidence*: it shrinks when no new batches add to it, and what has
less than `LEAST` is forgotten.

Predicates go by the texts of `weft.stats.statistics.predicate_name`, a set of them by the sorted tuple of the texts.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, TypeVar

from weft.errors import StatisticsError
from weft.logical.codec import decode, encode

__all__ = [
    "CallSums",
    "Checked",
    "HalfLife",
    "JointSums",
    "Known",
    "PredicateSet",
    "StreamSums",
    "bounded",
    "plus",
    "weights",
]

LEAST = 1.0  # tuples, pairs or rows; what rests on fewer is forgotten
LEAST_BATCHES = 2.0**-10  # the same of batches, by which the evidence of a rate is counted

PredicateSet = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class HalfLife:
    """After how many batches, or seconds, what a batch told weighs half as much; what passes first counts."""

    batches: float = 16.0
    seconds: float = 60.0

    def __post_init__(self) -> None:
        if not (self.batches > 0 and self.seconds > 0):
            raise StatisticsError(
                f"a half-life of {self.batches} batches and {self.seconds} seconds cannot be",
                hint="use more than 0; math.inf forgets nothing",
            )

    def passed(self, batches: int, seconds: float) -> float:
        """How many half-lives pass from one batch to one that comes so many batches and seconds later."""
        return max(batches / self.batches, seconds / self.seconds, 0.0)


@dataclass(frozen=True, slots=True)
class StreamSums:
    """What came of a stream.

    ``rows`` came in ``batches``, in which the event time advanced by ``advance`` seconds and the clock on the wall by
    ``wall``. ``newest`` is the newest event time so far, in microseconds. ``clocks`` are the streams whose event times
    tell how many seconds passed: those that queries join with this one, and itself; if there are none, the wall does.
    ``bytes`` is what ``held`` stored tuples took.
    """

    rows: float = 0.0
    batches: float = 0.0
    advance: float = 0.0
    wall: float = 0.0
    newest: int | None = None
    clocks: tuple[str, ...] = ()
    bytes: float = 0.0
    held: float = 0.0
    batch: int = -1
    moment: float = 0.0

    def faded(self, weight: float) -> StreamSums:
        """The same some time later."""
        return replace(
            self,
            rows=self.rows * weight,
            batches=self.batches * weight,
            advance=self.advance * weight,
            wall=self.wall * weight,
            bytes=self.bytes * weight,
            held=self.held * weight,
        )

    @property
    def matters(self) -> bool:
        """Whether there is enough evidence to say anything."""
        return self.batches >= LEAST_BATCHES


@dataclass(frozen=True, slots=True)
class Checked:
    """How many pairs, or tuples, some conditions were checked for together, and how many fulfilled them.

    ``there`` is how many pairs of a probe and a stored tuple there were, ``inside`` how many of them are within windows
    and time bounds by what is known of rates; for conditions on single tuples both are how many tuples there were.
    """

    there: float = 0.0
    inside: float = 0.0
    matched: float = 0.0
    batch: int = -1
    moment: float = 0.0

    @property
    def compared(self) -> float:
        """The pairs that count as compared: those inside of windows, and at most as many as there were."""
        return min(self.there, self.inside)

    @property
    def selectivity(self) -> float:
        """The part that fulfilled the conditions, above 0: if none did, as if half a tuple had."""
        return bounded(self.matched, self.compared)

    def faded(self, weight: float) -> Checked:
        """The same some time later."""
        return replace(
            self, there=self.there * weight, inside=self.inside * weight, matched=self.matched * weight
        )

    @property
    def matters(self) -> bool:
        """Whether there is enough evidence to say anything."""
        return self.compared >= LEAST


@dataclass(frozen=True, slots=True)
class JointSums:
    """What was checked where, in the end, a whole set of predicates is fulfilled, and another set had been before.

    ``passed`` is what part of all combinations of tuples fulfils that other set, and ``independent`` what part would
    fulfil the whole if its predicates were independent; both by what was known when the set was last observed.
    """

    checked: Checked
    passed: float
    independent: float

    def __post_init__(self) -> None:
        if not (0 < self.passed <= 1 and 0 < self.independent <= 1):
            raise StatisticsError(
                f"selectivities of {self.passed} and {self.independent} are not above 0 and at most 1"
            )

    @property
    def whole(self) -> Checked:
        """The combinations of tuples that were checked for the whole set, also those that failed before."""
        there, inside = self.checked.there / self.passed, self.checked.inside / self.passed
        return replace(self.checked, there=there, inside=inside)

    def faded(self, weight: float) -> JointSums:
        """The same some time later."""
        return replace(self, checked=self.checked.faded(weight))

    @property
    def matters(self) -> bool:
        """Whether there is enough evidence to say anything."""
        return self.checked.matters


@dataclass(frozen=True, slots=True)
class CallSums:
    """How many rows a user's function computed, and the seconds that took."""

    rows: float = 0.0
    seconds: float = 0.0
    batch: int = -1
    moment: float = 0.0

    def faded(self, weight: float) -> CallSums:
        """The same some time later."""
        return replace(self, rows=self.rows * weight, seconds=self.seconds * weight)

    @property
    def matters(self) -> bool:
        """Whether there is enough evidence to say anything."""
        return self.rows >= LEAST


@dataclass(frozen=True, slots=True)
class Known:
    """All sums, up to batch ``batch``, which began at ``moment`` (in seconds since 1970).

    ``exact`` has the conditions that were counted one by one. ``first`` has the sets of conditions that were checked
    together before any other: the filters of an input, and the predicates between two inputs. ``later`` has those that
    were checked for tuples that had fulfilled other predicates before. ``joint`` has whole sets over three inputs and
    more, each with the set that had been fulfilled before. ``guesses`` are the selectivities that were thought of
    conditions before any was observed; what several conditions let through together is shared out by them.
    """

    def __repr__(self) -> str:
        counted = len(self.exact) + len(self.first) + len(self.later) + len(self.joint)
        return f"<Known up to batch {self.batch}: {len(self.streams)} streams, {counted} conditions>"

    batch: int = -1
    moment: float = 0.0
    streams: Mapping[str, StreamSums] = field(default_factory=dict)
    exact: Mapping[str, Checked] = field(default_factory=dict)
    first: Mapping[PredicateSet, Checked] = field(default_factory=dict)
    later: Mapping[PredicateSet, Checked] = field(default_factory=dict)
    joint: Mapping[tuple[PredicateSet, PredicateSet], JointSums] = field(default_factory=dict)
    calls: Mapping[str, CallSums] = field(default_factory=dict)
    guesses: Mapping[str, float] = field(default_factory=dict)

    def faded(self, weight: float) -> Known:
        """What is left of it when a newer batch weighs 1 and the newest one so far ``weight``."""
        exact, first, later = (_faded(part, weight) for part in (self.exact, self.first, self.later))
        used = {name for names in (*first, *later) for name in names}
        return replace(
            self,
            streams=_faded(self.streams, weight),
            exact=exact,
            first=first,
            later=later,
            joint=_faded(self.joint, weight),
            calls=_faded(self.calls, weight),
            guesses={name: guess for name, guess in self.guesses.items() if name in used},
        )

    def seconds_per_batch(self, stream: str) -> float:
        """The seconds by which rates of a stream are counted, for each batch; 0 if none passed.

        It is how far the event times of this stream and of those it is joined with advanced, whichever did most; so a
        stream that pauses does not slow down time. If none advanced, it is the time on the wall.
        """
        mine = self.streams[stream]
        timed = [self.streams[name] for name in mine.clocks if name in self.streams]
        advanced = max((one.advance / one.batches for one in timed if one.batches), default=0.0)
        return advanced if advanced > 0 or not mine.batches else mine.wall / mine.batches

    def rate(self, stream: str) -> float | None:
        """The tuples per second of a stream, before any filter; None if it is not known.

        It is 0 only if others brought tuples while this stream brought none.
        """
        found = self.streams.get(stream)
        if found is None:
            return None
        others = [self.streams[name] for name in found.clocks if name in self.streams]
        seconds, rows = self.seconds_per_batch(stream), max(one.rows for one in (found, *others))
        return found.rows / found.batches / seconds if seconds > 0 and rows >= LEAST else None

    def to_json(self) -> str:
        """As JSON on one line."""
        return json.dumps(encode(self), ensure_ascii=False, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Known:
        """What `to_json` made; a `StatisticsError` if it is anything else."""
        try:
            data = json.loads(text)
            found = decode(cls, {one.name: data[one.name] for one in fields(cls)})
            _check_sums(asdict(found))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise StatisticsError(f"these are no statistics: {error}") from None
        return found


def _check_sums(data: Any) -> None:
    """Refuse sums that are no finite numbers."""
    if isinstance(data, Mapping):
        for name, value in data.items():
            if name not in ("clocks", "newest"):
                _check_sums(value)
    elif not math.isfinite(data):
        raise ValueError(f"{data} is no finite sum")


_Sums = TypeVar("_Sums", StreamSums, Checked, JointSums, CallSums)
_Key = TypeVar("_Key")


def bounded(matched: float, compared: float) -> float:
    """Matched by compared, at most 1; if nothing matched, as if half a tuple had, and 1 if nothing was compared."""
    return min(1.0, max(matched, min(0.5, compared)) / compared) if compared > 0 else 1.0


def plus(old: Checked | None, new: Checked) -> Checked:
    """The sums of both; the second is the newer one."""
    if old is None:
        return new
    return replace(
        new, there=old.there + new.there, inside=old.inside + new.inside, matched=old.matched + new.matched
    )


def weights(
    half_life: HalfLife, before: tuple[int, float], batches: Iterable[tuple[int, float]]
) -> list[float]:
    """How much each of some batches weighs when the last of them weighs 1, and first, what came ``before`` them.

    A batch is its number and when it began. From batch to batch, age grows by the half-lives that pass between them, by
    their numbers or by their times, whichever are more. Where nothing came before (batch -1), it weighs nothing.
    """
    ages, last = [0.0], before
    for number, moment in batches:
        seconds = moment - last[1] if last[0] >= 0 else 0.0
        ages.append(ages[-1] + half_life.passed(max(1, number - last[0]), seconds))
        last = number, moment
    return [2.0 ** (age - ages[-1]) for age in ages]


def _faded(sums: Mapping[_Key, _Sums], weight: float) -> dict[_Key, _Sums]:
    return {key: faded for key, one in sums.items() if (faded := one.faded(weight)).matters}


def _plain(sums: Mapping[str, Any]) -> dict[str, Any]:
    return {name: asdict(one) for name, one in sums.items()}


def _names(names: Any) -> PredicateSet:
    return tuple(map(str, names))


def _floats(data: Mapping[str, Any], *others: str) -> dict[str, float]:
    """The fields of sums that are finite numbers, all but the number of the batch and ``others``."""
    found = {name: float(value) for name, value in data.items() if name not in ("batch", *others)}
    if not all(map(math.isfinite, found.values())):
        raise ValueError(f"{data} has no finite sums")
    return found


def _checked(data: Mapping[str, Any]) -> Checked:
    return Checked(**_floats(data), batch=int(data["batch"]))


def _stream_sums(data: Mapping[str, Any]) -> StreamSums:
    newest = None if data["newest"] is None else int(data["newest"])
    rest = {"newest": newest, "clocks": _names(data["clocks"]), "batch": int(data["batch"])}
    sums: dict[str, Any] = {**_floats(data, "newest", "clocks"), **rest}
    return StreamSums(**sums)


def _joint_sums(data: Mapping[str, Any]) -> JointSums:
    return JointSums(_checked(data["checked"]), float(data["passed"]), float(data["independent"]))
