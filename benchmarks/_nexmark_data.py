"""The events of Nexmark, made from their numbers by the benchmark's public rules.

Guarantees: event n of a seed is the same in every run and in every portion. Of 50 consecutive events the first is a
person, the next three are auctions and the others are bids. Sellers, bidders and auctions are hot or among the last
ones, with the proportions of the reference generator (Apache Beam's and Flink's); texts are texts, of the lengths
there. Nothing loops over events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from benchmarks._data import BEGIN, write_file

Longs = npt.NDArray[np.int64]
Generator = np.random.Generator

EPOCH, PEOPLE, AUCTIONS = 50, 1, 3  # of so many events, so many are people and auctions; the others are bids
FIRST_ID, FIRST_CATEGORY, CATEGORIES = 1000, 10, 5
HOT_BLOCK = 100  # of so many people or auctions, the first (for bidders the second) is the hot one
HOT_SELLER, HOT_BIDDER, HOT_AUCTION, HOT_CHANNEL = 4, 4, 2, 2  # one in so many is not hot
ACTIVE_PEOPLE, OPEN_AUCTIONS, LEAD = 1000, 100, 10
CHANNELS = 10_000
SIDE_ROWS = 10_000  # rows of the table that q13 looks up

_FIRST_NAMES = [
    "Peter",
    "Paul",
    "Luke",
    "John",
    "Saul",
    "Vicky",
    "Kate",
    "Julie",
    "Sarah",
    "Deiter",
    "Walter",
]
_LAST_NAMES = ["Shultz", "Abrams", "Spencer", "White", "Bartels", "Walton", "Smith", "Jones", "Noris"]
_CITIES = [
    *("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland"),
    *("Bend", "Redmond", "Seattle", "Kent", "Cheyenne"),
]
_STATES = ["AZ", "CA", "ID", "OR", "WA", "WY"]
_HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")

SCHEMAS = {
    "person": "id long, name string, email string, card string, city string, state string, ts timestamp, "
    "extra string",
    "auction": "id long, item string, description string, initial_bid long, reserve long, ts timestamp, "
    "expires timestamp, seller long, category long, extra string",
    "bid": "auction long, bidder long, price long, channel string, url string, ts timestamp, extra string",
}


@dataclass(frozen=True, slots=True)
class Events:
    """How many events there are, how many a second of event time, in files of how many, and by which seed."""

    count: int
    rate: int
    file_events: int
    seed: int = 7

    @property
    def files(self) -> int:
        """How many files every stream has."""
        return -(-self.count // self.file_events)


def write_events(root: Path, events: Events) -> None:
    """Write the files of every stream below a directory of its name, and the table of q13."""
    for name in SCHEMAS:
        (root / name).mkdir(parents=True)
    for number, tables in enumerate(make_files(events)):
        for name, table in tables.items():
            write_file(table, root / name / f"{number:05}.parquet", number)
    (root / "side").mkdir()
    keys = np.arange(SIDE_ROWS, dtype=np.int64)
    write_file(
        pa.table({"key": keys, "value": [f"value {key}" for key in keys]}), root / "side/00000.parquet", 0
    )


def make_files(events: Events) -> Iterator[dict[str, pa.Table]]:
    """The rows of each stream, a file's worth at a time."""
    for number in range(events.files):
        first = number * events.file_events
        yield make_events(events, first, min(events.count, first + events.file_events), number)


def make_events(events: Events, first: int, last: int, block: int) -> dict[str, pa.Table]:
    """The events from one number up to another, by stream; their random choices are those of the block."""
    numbers = np.arange(first, last, dtype=np.int64)
    place = numbers % EPOCH
    kinds = {
        "person": (numbers[place < PEOPLE], _people),
        "auction": (numbers[(place >= PEOPLE) & (place < PEOPLE + AUCTIONS)], _auctions),
        "bid": (numbers[place >= PEOPLE + AUCTIONS], _bids),
    }
    made: dict[str, pa.Table] = {}
    for kind, (name, (chosen, make)) in enumerate(kinds.items()):
        maker: Callable[[Generator, Longs, int], dict[str, Any]] = make
        random = np.random.Generator(np.random.SFC64([events.seed, block, kind]))
        made[name] = pa.table(maker(random, chosen, events.rate))
    return made


def _people(random: Generator, numbers: Longs, rate: int) -> dict[str, Any]:
    count = numbers.size
    first, last = (pick(random, names, count) for names in (_FIRST_NAMES, _LAST_NAMES))
    mail = pc.binary_join_element_wise(letters(random, count, 3, 7), letters(random, count, 3, 5), "@")
    return {
        "id": _last_person(numbers) + FIRST_ID,
        "name": pc.binary_join_element_wise(first, last, " "),
        "email": pc.binary_join_element_wise(mail, "com", "."),
        "card": digits(random, count, 16),
        "city": pick(random, _CITIES, count),
        "state": pick(random, _STATES, count),
        "ts": times(numbers, rate),
        "extra": letters(random, count, 100, 150),
    }


def _auctions(random: Generator, numbers: Longs, rate: int) -> dict[str, Any]:
    count = numbers.size
    hot = random.integers(0, HOT_SELLER, count) > 0
    people = _last_person(numbers)
    seller = np.where(hot, people // HOT_BLOCK * HOT_BLOCK, _some_person(random, people)) + FIRST_ID
    opened, price = _micros(numbers, rate), _prices(random, count)
    horizon = max(1, 2 * (OPEN_AUCTIONS * EPOCH // AUCTIONS) * 1_000_000 // rate)
    return {
        "id": _last_auction(numbers) + FIRST_ID,
        "item": letters(random, count, 3, 20),
        "description": letters(random, count, 3, 100),
        "initial_bid": price,
        "reserve": price + _prices(random, count),
        "ts": times(numbers, rate),
        "expires": pa.array(opened + 1000 + random.integers(0, horizon, count)).cast(
            pa.timestamp("us", "UTC")
        ),
        "seller": seller,
        "category": FIRST_CATEGORY + random.integers(0, CATEGORIES, count),
        "extra": letters(random, count, 320, 460),
    }


def _bids(random: Generator, numbers: Longs, rate: int) -> dict[str, Any]:
    count = numbers.size
    auctions, people = _last_auction(numbers), _last_person(numbers)
    oldest = np.maximum(auctions - OPEN_AUCTIONS, 0)
    recent = oldest + _below(random, auctions - oldest + 1 + LEAD)
    hot_auction = random.integers(0, HOT_AUCTION, count, np.uint8) > 0
    hot_bidder = random.integers(0, HOT_BIDDER, count, np.uint8) > 0
    channel = random.integers(0, CHANNELS, count, np.int32) + len(_HOT_CHANNELS)
    hot_channel = random.integers(0, HOT_CHANNEL, count, np.uint8) > 0
    chosen = np.where(hot_channel, channel % len(_HOT_CHANNELS), channel).astype(np.int32)
    names, urls = _channels()
    return {
        "auction": np.where(hot_auction, auctions // HOT_BLOCK * HOT_BLOCK, recent) + FIRST_ID,
        "bidder": np.where(hot_bidder, people // HOT_BLOCK * HOT_BLOCK + 1, _some_person(random, people))
        + FIRST_ID,
        "price": _prices(random, count),
        "channel": names.take(pa.array(chosen)),
        "url": urls.take(pa.array(chosen)),
        "ts": times(numbers, rate),
        "extra": letters(random, count, 54, 82),
    }


def _last_person(numbers: Longs) -> Longs:
    """The last person, counted from 0, at or before each event."""
    return numbers // EPOCH


def _last_auction(numbers: Longs) -> Longs:
    """The last auction, counted from 0, at or before each event; -1 at the very first, which is a person."""
    offset = np.clip(numbers % EPOCH - PEOPLE, -1, AUCTIONS - 1)
    return numbers // EPOCH * AUCTIONS + offset


def _some_person(random: Generator, people: Longs) -> Longs:
    """One of the people that are active, or that are about to appear."""
    active = np.minimum(people + 1, ACTIVE_PEOPLE)
    return people + 1 - active + _below(random, active + LEAD)


def _below(random: Generator, limits: Longs) -> Longs:
    """A random number below each limit."""
    return (random.random(limits.size) * limits).astype(np.int64)


def _prices(random: Generator, count: int) -> Longs:
    """Prices between 1 and a million, in cents, even by their magnitude."""
    cents: Longs = np.rint(np.exp(random.random(count) * (6 * np.log(10.0))) * 100).astype(np.int64)
    return cents


def _micros(numbers: Longs, rate: int) -> Longs:
    return BEGIN * 1_000_000 + numbers * 1_000_000 // rate


def times(numbers: Longs, rate: int) -> pa.Array:
    """The times of events, which come evenly."""
    return pa.array(_micros(numbers, rate)).cast(pa.timestamp("us", "UTC"))


def pick(random: Generator, texts: list[str], count: int) -> pa.Array:
    """One of some texts for every row."""
    return pa.array(texts).take(pa.array(random.integers(0, len(texts), count, np.int32)))


def letters(random: Generator, count: int, shortest: int, longest: int) -> pa.Array:
    """Random lower-case texts, of lengths from one up to another."""
    sizes = random.integers(shortest, longest + 1, count, np.int32)
    offsets = np.zeros(count + 1, np.int32)
    np.cumsum(sizes, out=offsets[1:])
    words = random.integers(0, 2**64, int(offsets[-1]) // 8 + 1, np.uint64)  # eight letters each, from a to p
    words &= np.uint64(0x0F0F0F0F0F0F0F0F)
    words += np.uint64(0x6161616161616161)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(words))


def digits(random: Generator, count: int, size: int) -> pa.Array:
    """Random texts of so many digits."""
    text = random.integers(48, 58, count * size, np.uint8)
    offsets = np.arange(0, (count + 1) * size, size, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(text))


@cache
def _channels() -> tuple[pa.Array, pa.Array]:
    """The names and addresses of all channels, the hot ones first; the same for every seed."""
    random = np.random.Generator(np.random.SFC64(1))
    count = CHANNELS + len(_HOT_CHANNELS)
    parts = [letters(random, count, 5, 5) for _ in range(3)]
    paths = pc.binary_join_element_wise("https://www.nexmark.com", *parts, "item.htm?query=1", "/")
    numbers = [f"channel-{number}" for number in range(CHANNELS)]
    names = pa.array([*_HOT_CHANNELS, *numbers])
    query = pa.array(["", "", "", "", *(f"&channel_id={number}" for number in range(CHANNELS))])
    return names, pc.binary_join_element_wise(paths, query, "")
