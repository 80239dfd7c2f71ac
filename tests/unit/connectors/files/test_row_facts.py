"""What would be lost: a driver order that is chosen by the wrong rows, or a look at metadata that reads whole files."""

from __future__ import annotations

import io
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from weft.connectors.files.parts import (
    FileStatus,
    RowFacts,
    arrow_facts,
    parquet_facts,
    parquet_footer,
    parts_of,
)
from weft.connectors.files.source import files
from weft.connectors.frames.source import write_arrow_files
from weft.connectors.generate.rate import rate, sequence, timestamps
from weft.connectors.memory.source import TableSource
from weft.logical.codec import decode, encode
from weft.ports.source import CursorContext, MemoryBlobs, Part

NOON = 1_700_000_000_000_000  # microseconds


class Counted(io.BytesIO):
    """Bytes that count how many of them were read."""

    count = 0

    def read(self, size: int | None = -1, /) -> bytes:
        found = super().read(size)
        self.count += len(found)
        return found


def place(
    state: dict[str, Any] | None = None, blobs: MemoryBlobs | None = None, **more: Any
) -> CursorContext:
    return CursorContext("s", state or {}, blobs or MemoryBlobs(), Path("unused"), event_time="ts", **more)


def table(rows: int, unit: str = "us", first: int = NOON) -> pa.Table:
    micros = pa.array(np.random.default_rng(rows).permutation(rows) + first)
    return pa.table(
        {"k": np.arange(rows), "ts": micros.cast(pa.timestamp("us")).cast(pa.timestamp(unit), safe=False)}
    )


def parquet(path: Path, rows: pa.Table, **options: Any) -> list[Part]:
    pq.write_table(rows, path, **options)
    found = parts_of(str(path), "parquet", FileStatus.read(str(path)), options.pop("most", 1 << 30), "ts")
    assert found is not None
    return found


@pytest.mark.parametrize("rows", [0, 1, 1_000, 50_000])
def test_a_parquet_file_knows_its_rows_and_their_oldest_time(tmp_path: Path, rows: int) -> None:
    """Whether it is small or large."""
    (part,) = parquet(tmp_path / "a.parquet", table(rows), row_group_size=10_000)
    assert (part.rows, part.oldest) == (rows, NOON if rows else None)
    assert decode(Part, json.loads(json.dumps(encode(part)))) == part


@pytest.mark.parametrize(("unit", "oldest"), [("ms", NOON), ("us", NOON + 7), ("ns", NOON + 7)])
def test_times_of_any_unit_are_microseconds(tmp_path: Path, unit: str, oldest: int) -> None:
    """A row may be younger than that, but none is older."""
    (part,) = parquet(tmp_path / "a.parquet", table(10, unit, NOON + 7), version="2.6")
    assert part.oldest == oldest


@pytest.mark.parametrize("options", [{"write_statistics": False}, {"use_deprecated_int96_timestamps": True}])
def test_without_statistics_the_oldest_time_is_not_known(tmp_path: Path, options: dict[str, Any]) -> None:
    (part,) = parquet(tmp_path / "a.parquet", table(10), **options)
    assert (part.rows, part.oldest) == (10, None)


def test_parts_of_a_large_parquet_file_know_their_own_rows_also_after_a_restart(tmp_path: Path) -> None:
    """Of a file that is taken in part, the rest is offered by row groups, which the file is looked up for."""
    pq.write_table(table(20_000), tmp_path / "a.parquet", row_group_size=3_000, compression="none")
    of, blobs = files("parquet", str(tmp_path)).resolve(), MemoryBlobs()
    state, seen = dict[str, Any](), list[int]()
    while True:
        cursor = of.open(place(state, blobs, most_bytes=200_000))
        offer = cursor.look(time.time())
        if not offer.parts:
            break
        for part in offer.parts[:1]:
            batch = of.read("s", part).batch
            assert part.rows == batch.num_rows
            assert part.oldest == batch.column("ts").cast(pa.int64()).to_numpy().min()
            seen.append(batch.num_rows)
        cursor.take(offer.parts[:1])
        state = json.loads(json.dumps(cursor.state()))
    assert sum(seen) == 20_000
    assert len(seen) > 2


def test_what_is_left_of_a_file_that_is_gone_is_still_offered(tmp_path: Path) -> None:
    """Nobody knows its rows, but its loss must be noticed."""
    pq.write_table(table(20_000), tmp_path / "a.parquet", row_group_size=3_000, compression="none")
    of, blobs = files("parquet", str(tmp_path)).resolve(), MemoryBlobs()
    cursor = of.open(place({}, blobs, most_bytes=200_000))
    cursor.take(cursor.look(time.time()).parts[:1])
    (tmp_path / "a.parquet").unlink()
    parts = of.open(place(cursor.state(), blobs)).look(time.time()).parts
    assert parts
    assert {part.rows for part in parts} == {None}


def test_a_file_that_is_not_parquet_is_left_to_the_task(tmp_path: Path) -> None:
    """The task sets it aside and says why; the driver goes on."""
    for content in (b"", b"PAR1", b"no footer at all", b"x" * 100 + b"\xff\xff\xff\x7fPAR1"):
        path = tmp_path / "a.parquet"
        path.write_bytes(content)
        found = parts_of(str(path), "parquet", FileStatus.read(str(path)), 1 << 30, "ts")
        assert found is not None
        assert [part.rows for part in found] == [None]


def test_only_the_footer_of_a_parquet_file_is_read() -> None:
    """A look must not take longer because a file is large."""
    buffer = io.BytesIO()
    pq.write_table(table(200_000), buffer, row_group_size=1_000)
    file, size = Counted(buffer.getvalue()), len(buffer.getvalue())
    footer = parquet_footer(file, size, buffer.getvalue()[-64:])
    assert parquet_facts(footer, range(footer.num_row_groups), "ts") == RowFacts(
        200_000, NOON, NOON + 199_999
    )
    assert file.count < size / 5


@pytest.mark.parametrize("kind", ["file", "stream"])
@pytest.mark.parametrize("compression", [None, "zstd"])
def test_arrow_files_and_streams_know_their_rows(kind: str, compression: str | None) -> None:
    """Dictionaries among the batches are no rows."""
    rows = table(100_000).append_column("s", pa.array(["a", "b"] * 50_000).dictionary_encode())
    buffer = io.BytesIO()
    make = pa.ipc.new_file if kind == "file" else pa.ipc.new_stream
    with make(buffer, rows.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(rows, max_chunksize=30_000)
    file, size = Counted(buffer.getvalue()), len(buffer.getvalue())
    assert arrow_facts(file, size) == RowFacts(100_000)
    assert file.count < size / 10


def test_an_arrow_file_that_is_cut_off_knows_nothing() -> None:
    buffer = io.BytesIO()
    with pa.ipc.new_stream(buffer, table(1).schema) as writer:
        writer.write_table(table(1_000))
    whole = buffer.getvalue()
    for size in (0, 3, 20, len(whole) // 2):
        found = arrow_facts(io.BytesIO(whole[:size]), size)
        assert found.rows in (None, 0)
    assert arrow_facts(io.BytesIO(b"\xff\xff\xff\xff\x10\x00\x00\x00" + b"\x07" * 40), 48) == RowFacts()


def test_the_files_of_a_dataframe_know_their_rows(tmp_path: Path) -> None:
    (name,) = write_arrow_files(iter(table(1_000).to_batches(300)), str(tmp_path), "part")
    path = tmp_path / name
    found = parts_of(str(path), "arrow", FileStatus.read(str(path)), 1 << 30, "ts")
    assert found is not None
    assert [(part.rows, part.oldest) for part in found] == [(1_000, None)]


@pytest.mark.parametrize(("format_", "content"), [("json", '{"k": 1}\n' * 9), ("csv", "k\n" + "1\n" * 9)])
def test_texts_do_not_know_their_rows(tmp_path: Path, format_: str, content: str) -> None:
    """Their lines would have to be counted."""
    (tmp_path / f"a.{format_}").write_text(content)
    cursor = files(format_, str(tmp_path), schema="k long").open(place())
    cursor.look(time.time() + 3)
    (part,) = cursor.look(time.time() + 4).parts
    assert (part.rows, part.oldest) == (None, None)


def test_generated_rows_are_counted_and_their_times_known() -> None:
    """Times go with the rate; a jitter makes some of them older."""
    source = rate(1_000, n=sequence(), ts=timestamps(jitter="2 seconds"))
    cursor = source.open(place({"position": 5_000}))
    cursor.look(10.0)
    parts = cursor.look(60.0).parts
    assert sum(part.rows or 0 for part in parts) == 50_000
    for part in parts:
        batch = source.read("s", part).batch
        times = batch.column("ts").cast(pa.int64()).to_numpy()
        assert part.rows == batch.num_rows
        assert part.oldest is not None
        assert part.oldest <= times.min() < part.oldest + 100_000
    plain = rate(10, n=sequence()).open(place())
    plain.look(0.0)
    assert plain.look(1.0).parts[0].oldest is None


def test_tables_in_memory_know_their_rows_and_times() -> None:
    source = TableSource("k long, ts timestamp")
    source.offer(table(10, "ms", NOON + 5))
    source.offer(table(0))
    source.offer(pa.table({"k": [1], "ts": ["no time"]}))
    parts = source.open(place()).look(0.0).parts
    assert [(part.rows, part.oldest) for part in parts] == [(10, NOON), (0, None), (1, None)]
