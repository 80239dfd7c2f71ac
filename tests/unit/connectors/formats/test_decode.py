"""What would be lost: a value that changes on its way in, a good row next to a bad one, the place of a bad one."""

from __future__ import annotations

import base64
import io
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shares import examples
from tests.unit.connectors.formats import writers
from tests.unit.connectors.formats.writers import PLAIN, SCHEMA, WRITERS, Row, table
from weft.connectors.files.parts import decode
from weft.connectors.formats.csv import CsvOptions
from weft.connectors.formats.records import (
    BadRecord,
    Decoded,
    SourceFile,
    Target,
    decode_records,
    encode_records,
)
from weft.errors import SourceError
from weft.logical.schema import Schema


def read(
    content: bytes, format_: str, schema: Schema | str = SCHEMA, time: str | None = None, **options: Any
) -> Decoded:
    declared = Schema.parse(schema) if isinstance(schema, str) else schema
    return decode(SourceFile("views", "in/1", content), format_, Target(declared, time), **options)


@pytest.mark.parametrize("name", WRITERS)
@given(values=writers.rows())
@examples(20)
def test_every_value_of_every_type_arrives(name: str, values: list[Row]) -> None:
    format_, write = WRITERS[name]
    decoded = read(write(values), format_)
    assert decoded.bad == ()
    assert repr(decoded.batch.to_pydict()) == repr(table(values).to_pydict())
    assert decoded.batch.schema == table([]).schema


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_without_rows_is_an_empty_batch(name: str) -> None:
    format_, write = WRITERS[name]
    decoded = read(write([]) or b"\n", format_)
    assert (decoded.batch.num_rows, decoded.bad) == (0, ())
    assert decoded.batch.schema == table([]).schema


JSON_FAULTS = (
    b'{"k": 1, "s": "a"',
    b"[1]",
    b"nonsense",
    b'{"k": 3000000000}',
    b'{"k": 1e99}',
    b'{"s": 5}',
    b'{"s": "\xff"}',
    b'{"n": 40000}',
    b'{"k": 1} {"k": 2}',
    b'{"k": 1, "k": 2}',
    b'{"k": true}',
)
CSV_FAULTS = (
    b"1,a",
    b"1,a,2,3",
    b"3000000000,a,1",
    b"1,a,40000",
    b"x,a,1",
    b"1,\xff,1",
    b'1,"a,1',
    b"1.5,a,1",
    b'1,"a"b,2',
)


def corrupted(faults: tuple[bytes, ...]) -> st.SearchStrategy[list[Row | bytes]]:
    """Good rows with bad ones anywhere among them."""
    fault = st.sampled_from(faults)
    return st.builds(
        lambda good, places: _mixed(good, places),
        writers.plain_rows,
        st.lists(st.tuples(st.integers(0, 40), fault), max_size=6),
    )


def _mixed(good: list[Row], places: list[tuple[int, bytes]]) -> list[Row | bytes]:
    mixed: list[Row | bytes] = list(good)
    for at, fault in places:
        mixed.insert(min(at, len(mixed)), fault)
    return mixed


def lines_of(records: list[bytes], first: int) -> list[tuple[int, int]]:
    """Line and offset of each record."""
    places, line, offset = [], first, 0
    for record in records:
        places.append((line, offset))
        line += record.count(b"\n") + 1
        offset += len(record) + 1
    return places


@given(mixed=corrupted(JSON_FAULTS))
@examples(40)
def test_bad_json_lines_are_set_aside_and_all_others_stay(mixed: list[Row | bytes]) -> None:
    lines = [item if isinstance(item, bytes) else writers.json_line(item, PLAIN) for item in mixed]
    decoded = read(b"\n".join(lines), "json", PLAIN)
    assert rows_of(decoded) == [item for item in mixed if not isinstance(item, bytes)]
    assert places_of(decoded) == [
        (*place, line)
        for place, line, item in zip(lines_of(lines, 1), lines, mixed, strict=True)
        if item is line
    ]


@given(mixed=corrupted(CSV_FAULTS), end=st.sampled_from([b"", b"\n"]))
@examples(65)
def test_bad_csv_records_are_set_aside_and_all_others_stay(mixed: list[Row | bytes], end: bytes) -> None:
    records = [item if isinstance(item, bytes) else writers.csv_line(item) for item in mixed]
    header = b"k,s,n\n"
    decoded = read(header + b"\n".join(records) + end, "csv", PLAIN)
    assert rows_of(decoded) == [item for item in mixed if not isinstance(item, bytes)]
    assert places_of(decoded) == [
        (line, offset + len(header), record)
        for (line, offset), record, item in zip(lines_of(records, 2), records, mixed, strict=True)
        if item is record
    ]


def rows_of(decoded: Decoded) -> list[Row]:
    return [tuple(row.values()) for row in decoded.batch.to_pylist()]


def places_of(decoded: Decoded) -> list[tuple[int | None, int | None, bytes]]:
    return [(bad.line, bad.offset, bad.raw) for bad in decoded.bad]


def test_lines_of_either_ending_are_counted_as_editors_do() -> None:
    decoded = read(b'k,s,n\r\n1,"a\r\nb",2\r\n\r\nx,a,1\r\n2,b,3', "csv", PLAIN)
    assert [(bad.line, bad.row, bad.raw) for bad in decoded.bad] == [(5, 2, b"x,a,1")]
    assert rows_of(decoded) == [(1, "a\r\nb", 2), (2, "b", 3)]
    mac = read(b"k,s,n\r1,a,1\rx,a,1\r", "csv", PLAIN)
    assert ([bad.line for bad in mac.bad], mac.batch.num_rows) == ([3], 1)


@pytest.mark.parametrize("name", ["parquet", "arrow file", "arrow stream"])
def test_a_file_that_is_cut_off_is_set_aside_as_a_whole(name: str) -> None:
    format_, write = WRITERS[name]
    content = write([(1, "é", 2), (3, None, 4)] * 50, PLAIN)
    for length in [*range(1, len(content) - 8, 29), len(content) - 9]:
        decoded = read(content[:length], format_, PLAIN)
        assert decoded.batch.num_rows == 0
        (bad,) = decoded.bad
        assert (bad.source, bad.file, bad.row, bad.line) == ("views", "in/1", None, None)
        assert bad.reason.startswith("not a readable")
        assert content.startswith(bad.raw)


@pytest.mark.parametrize("name", ["parquet", "arrow file", "json", "csv"])
@given(at=st.floats(0, 0.999), value=st.integers(0, 255))
@examples(20)
def test_a_byte_that_changed_never_stops_the_run(name: str, at: float, value: int) -> None:
    format_, write = WRITERS[name]
    content = bytearray(write([(number, "text", 7) for number in range(30)], PLAIN))
    content[int(at * len(content))] = value
    try:
        decoded = read(bytes(content), format_, PLAIN)
    except SourceError:  # it hit the name or the type of a column
        return
    decoded.batch.validate(full=True)
    lines = format_ in ("json", "csv")
    assert decoded.batch.num_rows in ((28, 29, 30) if lines and not _whole(decoded) else (0, 30))


def _whole(decoded: Decoded) -> bool:
    return any(bad.row is None for bad in decoded.bad)


@pytest.mark.parametrize("name", WRITERS)
def test_a_row_without_event_time_is_bad(name: str) -> None:
    format_, write = WRITERS[name]
    when = datetime(2024, 1, 1, tzinfo=timezone.utc)
    schema = Schema.parse("k int, ts timestamp")
    decoded = read(write([(1, when), (2, None), (3, when)], schema), format_, schema, time="TS")
    assert rows_of(decoded) == [(1, when), (3, when)]
    (bad,) = decoded.bad
    assert (bad.row, bad.reason) == (2, "column TS: the event time is NULL")


def test_a_missing_column_is_an_error_that_names_file_column_and_type() -> None:
    for name in ("parquet", "arrow file", "arrow stream", "csv"):
        format_, write = WRITERS[name]
        with pytest.raises(SourceError) as caught:
            read(write([(1, "a", 2)], PLAIN), format_, "k int, sn string")
        assert str(caught.value) == (
            "source: views: file in/1 has no column sn (expected type string, found none)\n"
            "hint: did you mean s? There are: k, n, s"
        )


def test_a_changed_type_is_an_error_that_names_both_types() -> None:
    for name in ("parquet", "arrow file", "arrow stream"):
        format_, write = WRITERS[name]
        with pytest.raises(SourceError, match="file in/1: column k: expected type string, found int"):
            read(write([(1, "a", 2)], PLAIN), format_, "k string")
        with pytest.raises(SourceError, match="column k: expected type short, found int"):
            read(write([(1, "a", 2)], PLAIN), format_, "n short, k short")


@pytest.mark.parametrize("name", WRITERS)
def test_columns_are_found_by_name_without_case_and_others_are_ignored(name: str) -> None:
    format_, write = WRITERS[name]
    assert rows_of(read(write([(1, "a", 2)], PLAIN), format_, "N long, K long")) == [(2, 1)]


def test_two_columns_of_nearly_one_name_are_refused() -> None:
    with pytest.raises(SourceError, match="has 2 columns that could be s"):
        read(b"S,s ,S\n1,2,3\n", "csv", "s string")


def test_a_column_may_be_stored_in_other_ways() -> None:
    found = pa.table(
        {
            "d": pa.array(["a", None, "a"]).dictionary_encode(),
            "v": pa.array(["x", "y", None], pa.large_string()),
            "n": pa.nulls(3),
            "t": pa.array([1, None, -1], pa.timestamp("ms")),
            "u": pa.array([1_999, 2_000, None], pa.timestamp("ns", "Europe/Berlin")),
            "w": pa.array([1, 2, 3], pa.uint16()),
            "f": pa.array([0.5, 1.5, None], pa.float32()),
        }
    )
    out = io.BytesIO()
    with pa.ipc.new_stream(out, found.schema) as writer:
        writer.write_table(found)
    decoded = read(
        out.getvalue(), "arrow", "d string, v string, n date, t timestamp, u timestamp, w int, f double"
    )
    assert decoded.bad == ()
    columns = decoded.batch.to_pydict()
    assert (columns["d"], columns["n"], columns["w"]) == (["a", None, "a"], [None] * 3, [1, 2, 3])
    assert decoded.batch["t"].cast(pa.int64()).to_pylist() == [1_000, None, -1_000]
    assert decoded.batch["u"].cast(pa.int64()).to_pylist() == [1, 2, None]


def test_times_beyond_the_range_and_texts_that_are_none_are_set_aside_from_typed_files() -> None:
    odd = pa.Array.from_buffers(pa.string(), 3, pa.array([b"ok", b"\xff", b"ok"]).buffers())
    found = pa.table({"s": odd, "t": pa.array([1, 2, 2**62], pa.timestamp("s"))})
    out = io.BytesIO()
    pq.write_table(found.drop(["t"]), out)
    assert [bad.row for bad in read(out.getvalue(), "parquet", "s string").bad] == [2]
    out = io.BytesIO()
    with pa.ipc.new_file(out, found.schema) as writer:
        writer.write_table(found)
    decoded = read(out.getvalue(), "arrow", "t timestamp")
    assert [(bad.row, bad.raw) for bad in decoded.bad] == [(3, b'{"t": 4611686018427387904}')]
    assert decoded.batch.num_rows == 2


@pytest.mark.parametrize(
    ("text", "type_", "value"),
    [
        ("2024-01-01T00:00:00Z", "timestamp", "2024-01-01 00:00:00+00:00"),
        ("2024-01-01 02:00:00+02:00", "timestamp", "2024-01-01 00:00:00+00:00"),
        ("2024-01-01 00:00:00.123456789", "timestamp", "2024-01-01 00:00:00.123456+00:00"),
        ("2024-01-01", "timestamp", "2024-01-01 00:00:00+00:00"),
        ("inf", "double", "inf"),
        ("1.5", "decimal(10,2)", "1.50"),
        ("1e400", "double", None),
        ("-1e39", "float", None),
        ("1.234", "decimal(10,2)", None),
        ("123456789.5", "decimal(10,2)", None),
        ("128", "byte", None),
        (" 1", "int", "1"),
        ("0x1", "int", None),
        ("yes", "boolean", "True"),
        ("N", "boolean", "False"),
        ("2024", "timestamp", "2024-01-01 00:00:00+00:00"),
        ("2024-02-30", "date", None),
        ("yesterday", "timestamp", None),
        ("maybe", "boolean", None),
    ],
)
def test_a_value_fares_the_same_alone_and_among_others(text: str, type_: str, value: str | None) -> None:
    good = {"timestamp": "2023-05-05 05:05:05", "boolean": "true", "date": "2023-05-05"}.get(type_, "1")
    for before, after in (([], []), ([good], [good]), (["?"], [good] * 3)):
        lines = ["c", *before, text, *after]
        decoded = read("\n".join(lines).encode(), "csv", f"c {type_}")
        at = [bad.line for bad in decoded.bad]
        assert (len(before) + 2 in at) == (value is None)
        if value is not None:
            assert value in map(str, decoded.batch["c"].to_pylist())


def test_csv_options_are_obeyed() -> None:
    options = CsvOptions(";", "'", "cp1252", "NULL")
    content = "k;s;n\n1;'a;é';NULL\n2;\x8d;1\n3;'it''s';4\n".encode("latin-1")
    decoded = read(content, "csv", PLAIN, csv=options)
    assert rows_of(decoded) == [(1, "a;é", None), (3, "it's", 4)]
    assert [(bad.line, bad.offset) for bad in decoded.bad] == [(3, None)]
    unquoted = read(b'k,s,n\n1,"a,2\n', "csv", PLAIN, csv=CsvOptions(quote=""))
    assert rows_of(unquoted) == [(1, '"a', 2)]


def test_a_mark_of_byte_order_is_no_part_of_the_first_name() -> None:
    assert rows_of(read(b"\xef\xbb\xbfk\n1\nx\n", "csv", "k int")) == [(1,)]
    bad = read(b'\xef\xbb\xbf{"k":1}\n!\n', "json", "k int").bad
    assert [(record.line, record.offset) for record in bad] == [(2, 11)]


def test_a_file_of_another_format_is_set_aside_or_refused_but_never_read() -> None:
    for format_ in ("parquet", "arrow"):
        assert read(b"k,s,n\n1,a,2\n", format_, PLAIN).bad[0].row is None
    assert read(writers.to_parquet([(1, "a", 2)], PLAIN), "json", PLAIN).batch.num_rows == 0
    with pytest.raises(SourceError, match=r"did you mean parquet\?"):
        read(b"", "parkett", PLAIN)


def test_a_very_long_record_is_read() -> None:
    long = "x" * (5 << 20)
    assert rows_of(read(f'k,s,n\n1,"{long}",2\n'.encode(), "csv", PLAIN)) == [(1, long, 2)]
    assert rows_of(read(writers.json_line((1, long, 2), PLAIN), "json", PLAIN)) == [(1, long, 2)]


@given(
    values=st.lists(st.none() | st.binary(max_size=9), max_size=9),
    junk=st.sampled_from(["A", "====", "AA=A", "é"]),
)
def test_base64_is_decoded_as_python_does(values: list[bytes | None], junk: str) -> None:
    lines = [f'{{"x":"{base64.b64encode(v).decode()}"}}' if v is not None else "{}" for v in values]
    decoded = read("\n".join([*lines, f'{{"x":"{junk}"}}']).encode(), "json", "x binary")
    assert decoded.batch["x"].to_pylist() == values
    assert [bad.line for bad in decoded.bad] == [len(values) + 1]


def test_keys_of_json_match_without_case_in_every_record() -> None:
    """A record that spells a key in another way than the first one would lose its value without a word."""
    lines = [
        b'{"k": 1, "ts": "2024-01-01"}',
        b'{"K": 2, "TS": "2024-01-01"}',
        b'{"k": 3, "K": 4, "Ts": "2024-01-01"}',
        b'{"ts": "2024-01-01", "s": "\\"K\\": 5"}',
        b'{"x": {"K": 6}, "ts": "2024-01-01"}',
    ]
    for ordered in (lines, lines[::-1]):
        decoded = read(b"\n".join(ordered), "json", "k int, ts timestamp", "ts")
        assert decoded.bad == ()
        assert sorted(decoded.batch["k"].to_pylist(), key=str) == [1, 2, 3, None, None]


def test_a_record_with_a_key_in_several_spellings_is_set_aside() -> None:
    content = b'{"key": 1}\n{"KEY": 2, "Key": 3}\n{"KEY": 4}\n{"Key": "x"}\n{"key": 5, "KEY": 6, "Key": 7}\n'
    decoded = read(content, "json", "key int")
    assert decoded.batch["key"].to_pylist() == [1, 4, 5]
    assert [(bad.line, bad.reason) for bad in decoded.bad] == [
        (2, "column key: several keys could be it: KEY, Key"),
        (4, "column key: 'x' is not a value of type int"),
    ]


def test_keys_beyond_ascii_match_without_case() -> None:
    content = '{"größe": 1}\n{"GRÖßE": 2}\n{"größe": null}\n'.encode()
    assert read(content, "json", "größe int").batch.column(0).to_pylist() == [1, 2, None]


@given(raw=st.binary(max_size=2000), reason=st.text(max_size=20), line=st.none() | st.integers(1, 9))
def test_bad_records_survive_their_travel(raw: bytes, reason: str, line: int | None) -> None:
    record = BadRecord("views", "in/ü.csv", reason, raw, line=line, offset=0)
    assert len(record.raw) <= 1024
    assert decode_records(encode_records([record, record])) == (record, record)
