"""Records of Kafka become rows, each by itself; no broker is needed for that."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.connectors.formats.records import Decoded, Target
from weft.connectors.kafka.cursor import KafkaCursor, _at_most, parts_between
from weft.connectors.kafka.fetch import collector_at_rest
from weft.connectors.kafka.records import Origin, decode_messages
from weft.connectors.kafka.values import ValueFormat
from weft.logical.schema import Schema
from weft.logical.times import AHEAD_OF_THE_CLOCK

ORIGIN = Origin("s", "t", 3)
COLUMNS = "a long, b string, _offset long, _key string"


@dataclass(frozen=True)
class Record:
    """A record as a client gives it."""

    content: bytes | None
    at: int
    name: bytes | None = None
    marks: tuple[tuple[str, bytes | None], ...] = field(default=())

    def value(self) -> bytes | None:
        return self.content

    def key(self) -> bytes | None:
        return self.name

    def offset(self) -> int | None:
        return self.at

    def timestamp(self) -> tuple[int, int]:
        return (1, self.at)

    def headers(self) -> Any:
        return self.marks

    def error(self) -> Any:
        return None


def decoded(records: list[Record], format_: str, event_time: str | None, schema: str = COLUMNS) -> Decoded:
    return decode_messages(records, ValueFormat(format_), Target(Schema.parse(schema), event_time), ORIGIN)


JSON = [b'{"a": 1, "b": "x"}', b'{"a": 2}', b'{\n"b": "y"}', b"{}", b"", b" ", b"[]", b"{", b'{"a": "no"}']
JSON += [b'{"a": 1}\n{"a": 2}', b'{"A": 4}', b'{"a": 5, "b": "\xff"}', b'{"a": 99999999999999999999}', b"\r"]
CSV = [b"1,x", b"2,", b'3,"q\nq"', b'4,"open', b'close",5', b"", b",", b"6", b"7,a,b", b"x,y", b'8,"a""b"']
CSV += [b"9,x\n10,y", b"\xff,\xff", b'11,"\r"', b"\n"]


@given(st.data(), st.sampled_from(["json", "csv", "raw"]), st.booleans())
def test_a_record_does_not_depend_on_its_neighbours(data: st.DataObject, format_: str, timed: bool) -> None:
    """All records decoded together give what each gives alone."""
    values = [None, *(CSV if format_ == "csv" else JSON)]
    drawn = data.draw(st.lists(st.tuples(st.sampled_from(values), st.sampled_from([None, b"k", b"\xff"]))))
    records = [Record(value, 10 + at, key) for at, (value, key) in enumerate(drawn)]
    schema = "b string, _offset long, _key string" if format_ == "raw" else COLUMNS
    event_time = ("b" if format_ == "raw" else "a") if timed else None
    together = decoded(records, format_, event_time, schema)
    alone = [decoded([record], format_, event_time, schema) for record in records]
    assert together.batch.to_pylist() == [row for one in alone for row in one.batch.to_pylist()]
    assert [bad.offset for bad in together.bad] == [bad.offset for one in alone for bad in one.bad]
    offsets = [*together.batch.column("_offset").to_pylist(), *(bad.offset for bad in together.bad)]
    assert sorted(offsets) == [record.at for record in records]


def test_json_values_may_have_several_lines() -> None:
    found = decoded([Record(b'{\r\n "a": 1,\r\n "b": "x"\r\n}\r\n', 0), Record(b'{"a": 2}', 1)], "json", None)
    assert found.batch.column("a").to_pylist() == [1, 2]
    assert found.bad == ()


def test_tombstones_are_rows_of_nulls() -> None:
    found = decoded([Record(None, 5, b"k"), Record(b'{"a": 1}', 6)], "json", None)
    assert found.batch.to_pylist() == [
        {"a": None, "b": None, "_offset": 5, "_key": "k"},
        {"a": 1, "b": None, "_offset": 6, "_key": None},
    ]


def test_a_schema_may_have_columns_of_the_record_alone() -> None:
    found = decoded([Record(b"?", 7)], "json", "_timestamp", "_offset long, _timestamp timestamp")
    assert found.batch.column("_offset").to_pylist() == [7]
    assert found.batch.column("_timestamp").cast(pa.int64()).to_pylist() == [7000]


OFFSETS = st.integers(0, 30)


@given(st.lists(st.tuples(OFFSETS, OFFSETS, OFFSETS), max_size=4), st.integers(1, 9), st.integers(1, 40))
def test_every_offset_is_offered_once(partitions: list[tuple[int, int, int]], most: int, limit: int) -> None:
    """Parts cover what lies between positions and ends, without what expired, however few are taken at once."""
    positions = {number: at for number, (at, _, _) in enumerate(partitions)}
    ends = {number: max(at, end) for number, (at, _, end) in enumerate(partitions)}
    begins = {number: min(begin, ends[number]) for number, (_, begin, _) in enumerate(partitions)}
    wanted = {(n, at) for n in ends for at in range(max(positions[n], begins[n]), ends[n])}
    found = list[tuple[int, int]]()
    while parts := _at_most(parts_between(positions, ends, begins, 10, most, limit), limit):
        assert sum(part.bytes for part in parts) <= 10 * limit
        for part in parts:
            what = part.what
            assert what.get("expired", what["first"]) == positions[what["partition"]]
            assert 0 < what["end"] - what["first"] <= most
            found += [(what["partition"], at) for at in range(what["first"], what["end"])]
            positions[what["partition"]] = what["end"]
    assert sorted(found) == sorted(wanted)


def test_rows_know_when_their_records_came() -> None:
    """By timestamps; of many records, some are asked and the others lie between. Bad ones leave no gap."""
    few = decoded([Record(b'{"a": 1}', 5), Record(b"no", 6), Record(b'{"a": 2}', 9)], "json", None)
    assert few.arrived.tolist() == [5_000, 9_000]
    many = decoded([Record(b'{"a": 1}', 2 * at) for at in range(1_001)], "json", None)
    assert many.arrived.tolist() == [2_000 * at for at in range(1_001)]
    assert decoded([], "json", None).arrived is None


def test_offsets_that_wait_have_waited_since_they_were_seen() -> None:
    """Until their records are read, which know better."""
    cursor = KafkaCursor.__new__(KafkaCursor)
    cursor._positions, cursor._seen = {0: 0}, {}
    for end, now in ((10, 1.0), (10, 2.0), (25, 3.0), (40, 4.0)):
        cursor._note_ends({0: end}, now)
    parts = [cursor._with_arrival(one) for one in parts_between({0: 0}, {0: 40}, {0: 0}, 10, 20)]
    assert [one.arrived for one in parts] == [(1_000_000, 3_000_000), (3_000_000, 4_000_000)]
    assert all(one.stamped for one in parts)
    cursor._positions = {0: 25}
    cursor._note_ends({0: 40}, 9.0)
    assert cursor._seen == {0: [(4_000_000, 40)]}
    for number in range(3_000):
        cursor._note_ends({0: 41 + number}, 10.0 + number)
    assert len(cursor._seen[0]) <= 1_000
    assert cursor._seen[0][0] == (4_000_000, 40)
    assert cursor._seen[0][-1] == (3_009_000_000, 3_040)


def test_a_batch_takes_of_every_partition_in_proportion() -> None:
    """Partitions that are read unevenly would be apart in event time, and what lags behind would be late."""
    parts = _at_most(parts_between({0: 0, 1: 0}, {0: 10**6, 1: 10**6}, {}, 10, 131_072, 400_000), 400_000)
    taken = [sum(p.what["end"] - p.what["first"] for p in parts if p.what["partition"] == n) for n in (0, 1)]
    assert taken == [200_000, 200_000]


def test_the_collector_works_again_when_nobody_wants_it_to_rest() -> None:
    assert gc.isenabled()
    with collector_at_rest():
        with collector_at_rest():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()


def test_records_ahead_of_the_clock_are_set_aside_with_their_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some are quoted and all are counted; the others know when they came."""
    monkeypatch.setattr("weft.connectors.formats.columns.QUOTED", 2)
    times = ["2024-01-01", "2999-01-01", "no time", "2024-01-02", "2999-01-02", "2999-01-03", "2024-01-03"]
    records = [Record(f'{{"ts": "{time}"}}'.encode(), 10 + at) for at, time in enumerate(times)]
    target = Target(Schema.parse("ts timestamp"), "ts", latest=1_800_000_000_000_000)
    found = decode_messages(records, ValueFormat("json"), target, ORIGIN)
    assert [str(one.date()) for one in found.batch["ts"].to_pylist()] == [
        "2024-01-01",
        "2024-01-02",
        "2024-01-03",
    ]
    assert found.arrived.tolist() == [10_000, 13_000, 16_000]
    assert [(one.offset, one.more) for one in found.bad] == [(11, 0), (12, 0), (14, 0), (None, 0)]
    assert [AHEAD_OF_THE_CLOCK in one.reason for one in found.bad] == [True, False, True, False]
