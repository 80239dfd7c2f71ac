"""Synthetic flights with the columns of the airline on-time data of 2008.

Guarantees: a flight is a function of its id and the seed, whatever others are asked for with it, so files of any rows
in any order agree. Columns agree with each other: flights that were cancelled never departed, delays are differences of
times, and the causes of a delay of 15 minutes or more add up to it. Numbers are `int`, all other columns are texts, and
NULLs are where the real data has them.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Ids = npt.NDArray[np.int64]
Numbers = npt.NDArray[np.int64]
Shares = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_TEXTS = ("UniqueCarrier", "TailNum", "Origin", "Dest", "CancellationCode")
_NAMES = """
Year Month DayofMonth DayOfWeek DepTime CRSDepTime ArrTime CRSArrTime UniqueCarrier FlightNum TailNum
ActualElapsedTime CRSElapsedTime AirTime ArrDelay DepDelay Origin Dest Distance TaxiIn TaxiOut Cancelled
CancellationCode Diverted CarrierDelay WeatherDelay NASDelay SecurityDelay LateAircraftDelay
""".split()  # noqa: SIM905
COLUMNS = {name: "string" if name in _TEXTS else "int" for name in _NAMES}

_CARRIERS = "WN AA OO MQ US DL UA XE NW CO EV 9E FL YV OH B6 AS F9 HA AQ".split()  # noqa: SIM905
_AIRPORTS = """
ATL ORD DFW DEN LAX PHX IAH LAS DTW SFO SLC MSP EWR MCO CLT JFK LGA BOS SEA BWI PHL CVG SAN MDW DCA TPA STL CLE MIA
PDX MEM OAK MCI IAD RDU FLL SMF BNA SNA SJC HOU AUS SAT IND MSY DAL MKE CMH PIT ABQ JAX ONT BDL BUR OMA TUS HNL OKC
""".split()  # noqa: SIM905
_TAILS = [f"N{number:03}{'ABDKSUW'[number % 7]}{'AENSWX'[number % 6]}" for number in range(1, 5_001)]
_AT_FIRST = np.datetime64("2008-01-01")
_DAY = 24 * 60
_GOLDEN = 0x9E3779B97F4A7C15


class OnTime:
    """The flights of some ids."""

    def __init__(self, ids: Ids, seed: int) -> None:
        self._ids, self._seed = ids, seed

    def table(self, names: tuple[str, ...]) -> pa.Table:
        """Some of their columns."""
        return pa.table({name: self._column(name) for name in names})

    def _column(self, name: str) -> pa.Array:
        if name in _TEXTS:
            return self._text(name)
        values = self._number(name)
        return pa.array(values.astype(np.int32), mask=self._absent(name))

    def _number(self, name: str) -> Numbers:
        made = _NUMBERS.get(name)
        return self._cause(name) if made is None else made(self)

    def _text(self, name: str) -> pa.Array:
        if name == "CancellationCode":
            return _taken(["A", "B", "C", "D"], self.below("code", 4), ~self.cancelled)
        if name == "TailNum":
            return _taken(
                _TAILS, self.below("tail", len(_TAILS)), self.cancelled & (self.share("no tail") < 0.5)
            )
        if name == "UniqueCarrier":
            return _taken(_CARRIERS, self.often_first("carrier", len(_CARRIERS)))
        return _taken(_AIRPORTS, self.origin if name == "Origin" else self.destination)

    def _absent(self, name: str) -> Mask | None:
        """Where a number is NULL."""
        if name in ("DepTime", "DepDelay", "TaxiOut"):
            return self.cancelled
        if name in ("ArrTime", "ActualElapsedTime", "AirTime", "ArrDelay", "TaxiIn"):
            return self.cancelled | self.diverted
        if name == "CRSElapsedTime":
            return self.share("no plan") < 0.0001
        if name in _CAUSES:
            return self.cancelled | self.diverted | (self.arrival_delay < 15)
        return None

    # Randomness

    def share(self, what: str) -> Shares:
        """Uniform numbers over [0, 1), by flight and by the name of what is drawn (splitmix64)."""
        salt = zlib.crc32(f"{self._seed} {what}".encode()) * _GOLDEN % 2**64
        mixed = (self._ids.astype(np.uint64) + np.uint64(1)) * np.uint64(_GOLDEN) + np.uint64(salt)
        for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
            mixed = (mixed ^ (mixed >> np.uint64(shift))) * np.uint64(factor)
        return np.asarray((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11), np.float64) * 2.0**-53

    def below(self, what: str, limit: int) -> Numbers:
        """Uniform whole numbers from 0 to below the limit."""
        return (self.share(what) * limit).astype(np.int64)

    def often_first(self, what: str, limit: int) -> Numbers:
        """Whole numbers from 0, small ones more often, since large carriers and airports come first."""
        return (self.share(what) ** 2 * limit).astype(np.int64)

    def waiting(self, what: str, mean: float) -> Numbers:
        """Exponentially distributed minutes with that mean."""
        return (-mean * np.log1p(-self.share(what))).astype(np.int64)

    # What columns have in common

    @cached_property
    def date(self) -> npt.NDArray[np.datetime64]:
        """The day of the flight; 2008 had 366."""
        return _AT_FIRST + self.below("date", 366).astype("timedelta64[D]")

    @cached_property
    def cancelled(self) -> Mask:
        """Whether the flight was cancelled, as about one in fifty was."""
        return self.share("cancelled") < 0.0196

    @cached_property
    def diverted(self) -> Mask:
        """Whether the flight was diverted, as few were."""
        return ~self.cancelled & (self.share("diverted") < 0.0025)

    @cached_property
    def origin(self) -> Numbers:
        """The number of the airport of departure."""
        return self.often_first("origin", len(_AIRPORTS))

    @cached_property
    def destination(self) -> Numbers:
        """The number of the airport of arrival, which is another one."""
        return (self.origin + 1 + self.often_first("destination", len(_AIRPORTS) - 1)) % len(_AIRPORTS)

    @cached_property
    def distance(self) -> Numbers:
        """The distance in miles, the same both ways; airports are scattered over a rectangle."""
        east, north = (np.arange(len(_AIRPORTS)) * step % 1 for step in (0.7548776662, 0.5698402910))
        apart: Shares = np.hypot(
            2_400 * (east[self.origin] - east[self.destination]),
            1_200 * (north[self.origin] - north[self.destination]),
        )
        return np.asarray(np.maximum(apart, 60), np.int64)

    @cached_property
    def planned_departure(self) -> Numbers:
        """The planned departure in minutes of the day, from 5:00 to 22:55."""
        return 300 + 5 * self.below("departure", 216)

    @cached_property
    def planned_minutes(self) -> Numbers:
        """The planned duration in minutes."""
        return self.distance * 2 // 15 + 40

    @cached_property
    def air(self) -> Numbers:
        """Minutes in the air."""
        return self.distance * 2 // 15 + 10 + self.below("wind", 21)

    @cached_property
    def taxi_in(self) -> Numbers:
        """Minutes of taxiing."""
        return 2 + self.waiting("taxi in", 5)

    @cached_property
    def taxi_out(self) -> Numbers:
        """Minutes of taxiing."""
        return 5 + self.waiting("taxi out", 11)

    @cached_property
    def minutes(self) -> Numbers:
        """The actual duration in minutes."""
        return self.taxi_out + self.air + self.taxi_in

    @cached_property
    def departure_delay(self) -> Numbers:
        """The delay of the departure in minutes; most flights leave a little early."""
        early, late = -self.below("early", 11), self.waiting("late", 30)
        return np.where(self.share("punctual") < 0.6, early, late)

    @cached_property
    def arrival_delay(self) -> Numbers:
        """The delay of the arrival in minutes."""
        return self.departure_delay + self.minutes - self.planned_minutes

    def clock(self, minutes: Numbers) -> Numbers:
        """A time of the day as the data writes it: 1735 for 17:35."""
        of_day: Numbers = minutes % _DAY
        return of_day // 60 * 100 + of_day % 60

    def _cause(self, name: str) -> Numbers:
        """The minutes of delay due to one cause; each takes a part of what those before it left, the last takes all."""
        left = np.maximum(self.arrival_delay, 0)
        for cause, often in _CAUSES.items():
            due = (left * self.share(cause)).astype(np.int64)
            taken = left if cause == _LAST_CAUSE else np.where(self.share(f"{cause}?") < often, due, 0)
            if cause == name:
                return taken
            left = left - taken
        raise KeyError(name)


_CAUSES = {
    "SecurityDelay": 0.003,
    "WeatherDelay": 0.06,
    "CarrierDelay": 0.5,
    "NASDelay": 0.6,
    "LateAircraftDelay": 1.0,
}
_LAST_CAUSE = "LateAircraftDelay"

_NUMBERS: dict[str, Callable[[OnTime], Numbers]] = {
    "Year": lambda one: np.full(one.date.size, 2008),
    "Month": lambda one: one.date.astype("datetime64[M]").astype(np.int64) % 12 + 1,
    "DayofMonth": lambda one: (one.date - one.date.astype("datetime64[M]")).astype(np.int64) + 1,
    "DayOfWeek": lambda one: ((one.date - _AT_FIRST).astype(np.int64) + 1) % 7 + 1,
    "DepTime": lambda one: one.clock(one.planned_departure + one.departure_delay),
    "CRSDepTime": lambda one: one.clock(one.planned_departure),
    "ArrTime": lambda one: one.clock(one.planned_departure + one.departure_delay + one.minutes),
    "CRSArrTime": lambda one: one.clock(one.planned_departure + one.planned_minutes),
    "FlightNum": lambda one: 1 + one.below("flight", 7_800),
    "ActualElapsedTime": lambda one: one.minutes,
    "CRSElapsedTime": lambda one: one.planned_minutes,
    "AirTime": lambda one: one.air,
    "ArrDelay": lambda one: one.arrival_delay,
    "DepDelay": lambda one: one.departure_delay,
    "Distance": lambda one: one.distance,
    "TaxiIn": lambda one: one.taxi_in,
    "TaxiOut": lambda one: one.taxi_out,
    "Cancelled": lambda one: one.cancelled.astype(np.int64),
    "Diverted": lambda one: one.diverted.astype(np.int64),
}


def _taken(values: list[str], places: Numbers, absent: Mask | None = None) -> pa.Array:
    return pa.array(values).take(pa.array(places, mask=absent))
