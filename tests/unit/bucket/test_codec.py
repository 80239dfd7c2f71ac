"""Buckets as bytes and files: read back as they were, without a copy; what is damaged is refused, by name."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.bucket.checks import tables
from tests.unit.kernels.columns import KEY_TYPES
from weft.bucket.bucket import Bucket, build
from weft.bucket.codec import FORMAT, decode, encode, encode_in_pieces, read, write
from weft.bucket.index import by_hash, by_value
from weft.errors import StateError, WeftError
from weft.kernels.probe.equality import in_order, probe


def parts(bucket: Bucket) -> list[Any]:
    found: list[Any] = [bucket.batch.to_pylist(), str(bucket.batch.schema), bucket.event_time, bucket.bounds]
    for index in bucket.indexes:
        arrays = (index.directory, index.permutation, index.tags, index.words.values, index.words.valid)
        found += [
            index.order,
            index.origin,
            index.scale,
            index.words.exact,
            index.words.view,
            index.words.floats,
        ]
        found += [None if array is None else (array.dtype, array.tolist()) for array in arrays]
    return found


def example() -> Bucket:
    batch = pa.record_batch(
        {
            "k": [3, None, 1, 2] * 5,
            "s": ["a", "b", None, "ä"] * 5,
            "x": [1.5, float("nan"), None, -0.0] * 5,
            "ts": pa.array(range(20), pa.timestamp("us", tz="UTC")),
        }
    )
    return build(batch, layout=by_hash("k"), indexes=[by_hash("s"), by_value("x")], event_time="ts")


@given(st.data(), tables(KEY_TYPES))
def test_round_trip(data: st.DataObject, batch: Any) -> None:
    orders = [by_hash("k"), by_hash("u", "k"), by_value("u")]
    layout = data.draw(st.sampled_from([*orders, None]))
    bucket = build(batch, layout=layout, indexes=orders, event_time="ts")
    assert repr(parts(decode(encode(bucket)))) == repr(parts(bucket))


@pytest.mark.parametrize("rows", [511, 512, 5_000, 40_003])
def test_large_columns_are_written_from_where_they_are(tmp_path: Path, rows: int) -> None:
    """Copied first, they would take as much memory again; and what is written is read as what was there."""
    texts = [f"text {row}" * (row % 9) for row in range(rows)]
    numbers = pa.array([None if row % 7 == 0 else row for row in range(rows)], pa.int32())
    whole = pa.record_batch({"k": np.arange(rows) % 101, "s": texts, "n": numbers})
    for batch in (whole, whole.slice(3, rows // 2)):
        bucket = build(batch, layout=by_hash("k"), indexes=[by_hash("s")])
        found = encode_in_pieces(bucket)
        assert sum(piece.nbytes for piece in found.pieces) == found.size
        assert write(bucket, tmp_path / "one.bucket") == found.size
        assert (tmp_path / "one.bucket").read_bytes() == b"".join(found.pieces)
        assert repr(parts(read(tmp_path / "one.bucket"))) == repr(parts(bucket))
    starts = {np.frombuffer(piece, np.uint8).ctypes.data for piece in found.pieces}
    large = [one for column in bucket.batch.columns for one in column.buffers() if one and one.size > 1 << 13]
    assert all(one.address in starts for one in large)
    assert large or rows < 5_000


def test_a_bucket_inside_other_bytes_is_read_too() -> None:
    """As a value of a binary column, which starts anywhere."""
    data = encode(example()).to_pybytes()
    column = pa.array([b"x", data, b"yz"])
    assert repr(parts(decode(column[1].as_buffer()))) == repr(parts(example()))
    assert repr(parts(decode(data))) == repr(parts(example()))


def test_a_file_is_mapped_not_copied(tmp_path: Path) -> None:
    path = tmp_path / "one.bucket"
    size = write(example(), path)
    assert size == path.stat().st_size
    assert [file.name for file in tmp_path.iterdir()] == ["one.bucket"]
    before = pa.total_allocated_bytes()
    bucket = read(path)
    assert pa.total_allocated_bytes() - before < 1024
    assert repr(parts(bucket)) == repr(parts(example()))
    path.unlink()  # what is mapped outlives its name
    assert len(probe(in_order([pa.array([3])]), [bucket], by_hash("k"))) == 5


def test_every_truncation_is_noticed(tmp_path: Path) -> None:
    data = encode(example()).to_pybytes()
    path = tmp_path / "cut"
    for size in [*range(200), *range(200, len(data), 37), len(data) - 1]:
        path.write_bytes(data[:size])
        with pytest.raises(StateError, match=r"cut off|not a bucket|damaged"):
            read(path)


def test_every_damaged_byte_is_noticed() -> None:
    data = encode(example()).to_pybytes()
    for at in range(0, len(data), 11):
        damaged = bytearray(data)
        damaged[at] ^= 0x40
        if at in range(12, 16) or at in range(len(data) - 12, len(data) - 8):
            continue  # nothing is stored there
        with pytest.raises(WeftError):
            decode(bytes(damaged))


def test_other_formats_are_refused_by_name(tmp_path: Path) -> None:
    data = bytearray(encode(example()).to_pybytes())
    data[8:12] = struct.pack("<I", FORMAT + 1)
    path = tmp_path / "newer"
    path.write_bytes(data)
    with pytest.raises(StateError, match=f"newer has format {FORMAT + 1}.*reads format {FORMAT}"):
        read(path)
    path.write_bytes(b"PAR1 something else entirely, and long enough")
    with pytest.raises(StateError, match="newer is not a bucket"):
        read(path)
    with pytest.raises(StateError, match="cannot be read"):
        read(tmp_path / "missing")


def test_verification_can_be_left_out() -> None:
    """For bytes that were verified on their way; the footer is checked all the same."""
    data = bytearray(encode(example()).to_pybytes())
    assert repr(parts(decode(bytes(data), verify=False))) == repr(parts(example()))
    data[-40] ^= 1
    with pytest.raises(StateError, match="footer"):
        decode(bytes(data), verify=False)


def test_large_buckets_round_trip() -> None:
    size = 100_000
    batch = pa.record_batch({"k": np.arange(size) * 7, "s": [f"text {i}" for i in range(size)]})
    bucket = build(batch, layout=by_hash("k"), indexes=[by_hash("s")])
    again = decode(encode(bucket))
    assert again.batch.equals(bucket.batch)
    for one, other in zip(again.indexes, bucket.indexes, strict=True):
        assert np.array_equal(one.directory, other.directory)
        assert np.array_equal(one.words.values, other.words.values)
