"""What would be lost: generated rows that come twice after a restart, or all at once; tables that come out of order."""

from __future__ import annotations

import json
import pickle
import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from weft.connectors.files.source import files
from weft.connectors.generate.rate import rate, sequence
from weft.connectors.memory.source import TableSource
from weft.errors import SourceError
from weft.logical.codec import decode, encode
from weft.ports.source import Cursor, CursorContext, MemoryBlobs, Part, PartRows, Source


def place(state: dict[str, Any] | None = None, **more: Any) -> CursorContext:
    return CursorContext("s", state or {}, MemoryBlobs(), Path("unused"), **more)


def test_all_sources_keep_to_the_protocol(tmp_path: Path) -> None:
    """The loop knows no more of them; a type checker reads this test, too."""
    (tmp_path / "a.json").write_bytes(b'{"k": 1}\n')
    tables = TableSource("k long")
    tables.offer(pa.table({"k": [1]}))
    sources: list[Source] = [files("json", str(tmp_path), schema="k long"), rate(1, k=sequence(1)), tables]
    for source in sources:
        cursor: Cursor = source.open(place())
        cursor.look(time.time() + 3)
        cursor.catch_up()
        offer = cursor.look(time.time() + 4.5)
        assert offer.backlog[0] == len(offer.parts) == 1
        rows: PartRows = source.read("s", decode(Part, json.loads(json.dumps(encode(offer.parts[0])))))
        assert (rows.batch.to_pylist(), list(rows.bad)) == ([{"k": 1}], [])
        cursor.take(offer.parts)
        cursor.release(offer.parts)
        state = json.loads(json.dumps(cursor.state()))
        assert state["blobs"] == []
        cursor.close()
        assert source.open(place(state)).look(time.time() + 5).parts == ()


def test_rows_come_as_fast_as_the_clock_says_and_go_on_after_a_restart() -> None:
    source = rate(1000, n=sequence())
    cursor = source.open(place())
    assert cursor.look(100.0).parts == ()
    first = cursor.look(100.5)
    assert first.backlog == (1, 500 * 16)
    assert cursor.look(99.0).parts == first.parts  # a clock that goes back takes nothing back
    cursor.take(first.parts)
    assert cursor.look(100.5).parts == ()
    cursor.take(cursor.look(101.0).parts)
    again = source.open(place(cursor.state()))
    assert again.look(5000.0).parts == ()  # what the clock brought meanwhile does not burst in
    (part,) = again.look(5000.25).parts
    assert source.read("s", part).batch["n"].to_pylist() == list(range(1000, 1250))
    assert part.arrived == (5_000_001_000, 5_000_250_000)  # when its first and its last row were due


def test_rows_are_cut_into_parts_of_bounded_size() -> None:
    source = rate(1_000_000, n=sequence())
    cursor = source.open(place(most_bytes=16 * 100_000))
    cursor.look(0.0)
    rows = 0
    while parts := cursor.look(1.0).parts:
        counts = [part.what["rows"] for part in parts]
        assert sum(counts) <= 100_000
        assert max(counts) <= 1 << 15
        rows += sum(counts[:2])
        cursor.take(parts[:2])
    assert rows == 1_000_000
    with pytest.raises(ValueError, match="passed over"):
        cursor.take([Part({"first": rows + 1, "rows": 1})])


def test_tables_come_in_order_and_stay_until_they_are_released() -> None:
    source = TableSource("k long, s string")
    cursor = source.open(place())
    source.offer(pa.table({"s": ["a"], "k": pa.array([1], pa.int8())}))
    source.offer(pa.record_batch({"k": [2], "s": ["b"]}))
    offer = cursor.look(0.0)
    assert [part.what["table"] for part in offer.parts] == [0, 1]
    assert offer.backlog[0] == 2
    cursor.take(offer.parts[:1])
    sent = pickle.loads(pickle.dumps(source))
    assert sent.read("s", offer.parts[0]).batch.to_pylist() == [{"k": 1, "s": "a"}]
    assert sent.read("s", offer.parts[0], columns=["s"]).batch.to_pylist() == [{"s": "a"}]
    again = source.open(place(cursor.state()))
    assert again.look(0.0).parts == offer.parts[1:]
    cursor.release(offer.parts[:1])
    with pytest.raises(SourceError, match="table 0 is not in the memory"):
        source.read("s", offer.parts[0])
    assert source.read("s", offer.parts[1]).batch.to_pylist() == [{"k": 2, "s": "b"}]


def test_tables_of_another_schema_are_refused_when_they_are_read() -> None:
    source = TableSource("k long")
    source.offer(pa.table({"k": ["text"]}))
    (part,) = source.open(place()).look(0.0).parts
    with pytest.raises(SourceError, match="expected type long, found string"):
        source.read("s", part)


def test_tables_may_be_offered_by_many_threads() -> None:
    source = TableSource("k long")

    def offer() -> None:
        for _ in range(200):
            source.offer(pa.table({"k": [1]}))

    threads = [threading.Thread(target=offer) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    cursor, taken = source.open(place(most_bytes=800)), 0
    while parts := cursor.look(0.0).parts:
        assert len(parts) <= 100
        cursor.take(parts)
        taken += len(parts)
    assert taken == 800


def test_a_source_of_another_process_is_refused() -> None:
    made = pickle.dumps(TableSource("k long"))
    with pytest.raises(SourceError, match="in the process that holds them alone"):
        pickle.loads(made)
