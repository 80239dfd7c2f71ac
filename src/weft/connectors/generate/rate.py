"""A generator of rows, for demos and benchmarks.

Guarantees: a row is a function of the seed, its column and its number, and of where the dial stood, if it has one: the
same (seed, start, count, position) gives the same batch, on any machine and however the rows are cut into batches.
Whole columns are computed at once. Rows come in the order of their numbers, each once, as fast as the rate says,
counted from the first look after the start or a restart: the time between two runs brings no rows. Rows that were not
taken in time wait.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from typing import Any, Protocol, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from weft.connectors.formats.parquet import decode_table
from weft.connectors.formats.records import Decoded, SourceFile, Target
from weft.connectors.generate.drift import Dial, Drifting
from weft.errors import SourceError
from weft.kernels.expr.arrow import TIMESTAMP
from weft.logical.arguments import checked
from weft.logical.schema import DataType, Field, Schema
from weft.logical.times import parse_duration
from weft.ports.source import CursorContext, Offer, Part

__all__ = [
    "Kind",
    "RateSource",
    "choice",
    "rate",
    "sequence",
    "timestamps",
    "uniform",
    "zipf",
]


Numbers = NDArray[np.uint64]


@runtime_checkable
class Kind(Protocol):
    """How the values of a column follow from row numbers and from random words, one for each row."""

    @property
    def type(self) -> DataType: ...

    def values(self, rows: Numbers, words: Numbers, per_second: int) -> Any: ...


@dataclass(frozen=True, slots=True)
class _Sequence:
    start: int
    step: int
    type: DataType = DataType("long")  # noqa: RUF009

    def values(self, rows: Numbers, words: Numbers, per_second: int) -> Any:  # noqa: ARG002
        return pa.array(rows.astype(np.int64) * self.step + self.start)


@dataclass(frozen=True, slots=True)
class _Drawn:
    """Draws one of some values; `bounds` are the cumulated weights, or None if all weigh the same."""

    count: int
    bounds: tuple[float, ...] | None
    names: tuple[str, ...] | None = None

    @property
    def type(self) -> DataType:
        return DataType("long" if self.names is None else "string")

    def values(self, rows: Numbers, words: Numbers, per_second: int) -> Any:  # noqa: ARG002
        if self.bounds is None:
            drawn = (words % np.uint64(self.count)).astype(np.int64)
        else:
            drawn = np.searchsorted(np.array(self.bounds[:-1]), _unit(words), side="right")
        return pa.array(drawn) if self.names is None else pa.array(self.names).take(pa.array(drawn))


@dataclass(frozen=True, slots=True)
class _Timestamps:
    start: int
    jitter: int
    type: DataType = DataType("timestamp")  # noqa: RUF009

    def oldest(self, row: int, per_second: int) -> int:
        """The time that no row from a number on is older than."""
        whole, part = divmod(row, per_second)
        return self.start + whole * 1_000_000 + part * 1_000_000 // per_second - self.jitter

    def values(self, rows: Numbers, words: Numbers, per_second: int) -> Any:
        whole, part = np.divmod(rows.astype(np.int64), per_second)
        times = self.start + whole * 1_000_000 + part * 1_000_000 // per_second
        back = (words % np.uint64(self.jitter + 1)).astype(np.int64)
        return pa.array(times - back).view(TIMESTAMP)


_MOST = 100_000_000  # values of a Zipf distribution, whose weights are all computed


@checked(SourceError)
def sequence(start: int = 0, step: int = 1) -> Kind:
    """Whole numbers, one after another: from ``start``, in steps of ``step``."""
    return _Sequence(start, step)


@checked(SourceError)
def uniform(count: int) -> Kind:
    """Whole numbers from 0 to `count` - 1, all equally often."""
    return _Drawn(_positive("uniform", count), None)


@checked(SourceError)
def zipf(count: int, exponent: float = 1.0) -> Kind:
    """Whole numbers from 0 to `count` - 1; number i is drawn in proportion to 1 / (i + 1) ** exponent."""
    if _positive("zipf", count) > _MOST:
        raise SourceError(f"zipf({count}): there are too many values", hint=f"use at most {_MOST:,}")
    with np.errstate(all="ignore"):
        weights = 1.0 / np.arange(1, count + 1, dtype=np.float64) ** exponent
    if not np.isfinite(weights.sum()):
        raise SourceError(f"zipf: the exponent {exponent} is too small", hint="use a number around 1")
    return _Drawn(count, _cumulated(weights))


@checked(SourceError)
def choice(values: Sequence[str] | Mapping[str, float]) -> Kind:
    """One of the texts in ``values``, all equally often or, in a mapping, each in proportion to its weight."""
    names = tuple(values)
    if not names:
        raise SourceError("choice needs at least one value")
    if not isinstance(values, Mapping):
        return _Drawn(len(names), None, names)
    weights = np.array([values[name] for name in names], np.float64)
    if not (np.isfinite(weights).all() and (weights >= 0).all() and weights.sum() > 0):
        raise SourceError(f"choice: the weights {weights.tolist()} are not all positive numbers")
    return _Drawn(len(names), _cumulated(weights), names)


@checked(SourceError)
def timestamps(start: datetime = datetime(2024, 1, 1), *, jitter: timedelta | str = timedelta(0)) -> Kind:
    """Times that advance with the rate, from ``start`` on.

    Each row's is up to ``jitter`` earlier, so that rows come out of order.
    """
    late = parse_duration(jitter) if isinstance(jitter, str) else jitter
    aware = start if start.tzinfo else start.replace(tzinfo=timezone.utc)
    since = aware - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return _Timestamps(since // timedelta(microseconds=1), late // timedelta(microseconds=1))


def _positive(name: str, count: int) -> int:
    if count < 1:
        raise SourceError(f"{name}({count}): there must be at least one value to draw")
    return count


def _cumulated(weights: NDArray[np.float64]) -> tuple[float, ...]:
    return tuple((np.cumsum(weights) / weights.sum()).tolist())


@dataclass(frozen=True, slots=True)
class RateSource:
    """Rows that are generated at a fixed rate; columns that drift follow the ``dial``."""

    rows_per_second: int
    columns: tuple[tuple[str, Kind], ...]
    seed: int = 0
    dial: Dial | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if self.rows_per_second < 1:
            raise SourceError(f"rate: {self.rows_per_second} rows per second", hint="it must be at least 1")
        if not self.columns:
            raise SourceError("rate: no columns", hint="name some, as in rate(1000, vid=uniform(100))")

    @property
    def schema(self) -> Schema:
        """The columns that are generated."""
        return Schema(tuple(Field(name, kind.type) for name, kind in self.columns))

    def generate(self, start: int, count: int, position: float = 0.0) -> pa.RecordBatch:
        """The rows from number `start` on, with the dial at a position."""
        rows = np.arange(start, start + count, dtype=np.uint64)

        def values(place: int, kind: Kind) -> Any:
            drawn = (rows, _random(rows, self.seed, place), self.rows_per_second)
            return kind.values(*drawn, position) if isinstance(kind, Drifting) else kind.values(*drawn)

        arrays = [values(place, kind) for place, (_, kind) in enumerate(self.columns)]
        return pa.record_batch(arrays, names=[name for name, _ in self.columns])

    def open(self, context: CursorContext) -> RateCursor:
        """A cursor that continues after the rows that were taken."""
        times = dict(self.columns).get(context.event_time or "")

        def oldest(row: int) -> int | None:
            return times.oldest(row, self.rows_per_second) if isinstance(times, _Timestamps) else None

        return RateCursor(self.rows_per_second, 16 * len(self.columns), context, oldest, self.dial)

    def read(
        self,
        stream: str,
        part: Part,
        event_time: str | None = None,
        columns: Collection[str] | None = None,  # noqa: ARG002
        latest: int | None = None,
    ) -> Decoded:
        """The rows of a part."""
        what = part.what
        rows = self.generate(what["first"], what["rows"], what.get("dial", 0.0))
        if latest is None:
            return Decoded(rows)
        target = Target.of(self.schema, event_time, None, latest)
        return decode_table(SourceFile(stream, "generated rows", b""), target, rows, what["first"])


@checked(SourceError)
def rate(rows_per_second: int, *, seed: int = 0, dial: Dial | None = None, **columns: Kind) -> RateSource:
    """A stream of generated rows, so many a second: ``rows_per_second``, the same for the same ``seed``.

    ``columns`` are what to generate, by name: `weft.sequence`, `uniform`, `zipf`, `choice`, `timestamps`; columns that
    drift (`weft.drifting`) follow the ``dial``.

    >>> rate(10, vid=sequence(), at=timestamps()).generate(10, 1).to_pylist()[0]["at"].isoformat()
    '2024-01-01T00:00:01+00:00'
    """
    return RateSource(rows_per_second, tuple(columns.items()), seed, dial)


def _random(rows: Numbers, seed: int, column: int) -> Numbers:
    """A random word for each row number, by SplitMix64 used as a hash."""
    offset = (seed * 0x9E3779B97F4A7C15 + (column + 1) * 0xD1B54A32D192ED03) % 2**64
    word = rows * np.uint64(0x9E3779B97F4A7C15) + np.uint64(offset)
    word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    mixed: Numbers = word ^ (word >> np.uint64(31))
    return mixed


def _unit(words: Numbers) -> NDArray[np.float64]:
    """Words as numbers from 0 to below 1."""
    units: NDArray[np.float64] = (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return units


_MOST_ROWS = 1 << 15  # in one part


class RateCursor:
    """The number of the next row, and how many the clock has brought.

    ``oldest`` says before which time no row from a number on can be; None: that is not known. Parts say where the
    ``dial`` stood when they were offered, unless it stood at 0.
    """

    def __init__(
        self,
        rows_per_second: int,
        bytes_per_row: int,
        context: CursorContext,
        oldest: Callable[[int], int | None] = lambda _: None,
        dial: Dial | None = None,
    ) -> None:
        self._rate, self._row_bytes, self._most_bytes = rows_per_second, bytes_per_row, context.most_bytes
        self._position = self._start = self._end = int(context.state.get("position", 0))
        self._began: float | None = None
        self._oldest, self._dial = oldest, dial

    def look(self, now: float) -> Offer:
        """The rows that the clock has brought and that were not taken."""
        if self._began is None:
            self._began = now
        self._end = max(self._end, self._start + int((now - self._began) * self._rate))
        waiting = self._end - self._position
        most = min(waiting, max(1, self._most_bytes // self._row_bytes))
        turned = {"dial": self._dial.position} if self._dial is not None and self._dial.position else {}
        parts = [
            Part(
                {"first": first, "rows": rows, **turned},
                rows * self._row_bytes,
                rows,
                self._oldest(first),
                (self._due(first), self._due(first + rows - 1)),
            )
            for first in range(self._position, self._position + most, _MOST_ROWS)
            if (rows := min(_MOST_ROWS, self._position + most - first))
        ]
        return Offer(tuple(parts), backlog=(-(-waiting // _MOST_ROWS), waiting * self._row_bytes))

    def _due(self, row: int) -> int:
        """When the clock brought a row, in microseconds."""
        return round(((self._began or 0.0) + (row - self._start + 1) / self._rate) * 1e6)

    def take(self, parts: Sequence[Part]) -> None:
        """Go on behind these parts, which are the first that were offered."""
        for part in sorted(parts, key=lambda part: int(part.what["first"])):
            if part.what["first"] != self._position:
                raise ValueError(f"rows from {self._position} on were passed over")
            self._position += part.what["rows"]
            self._end = max(self._end, self._position)

    def state(self) -> dict[str, Any]:
        """The number of the next row."""
        return {"position": self._position, "blobs": []}

    def release(self, parts: Sequence[Part]) -> None:
        """Do nothing: rows can be generated again at any time, so nothing is kept."""

    def catch_up(self) -> None:
        """Do nothing: the next look sees what the clock has brought."""

    def close(self) -> None:
        """Do nothing: nothing is open."""
