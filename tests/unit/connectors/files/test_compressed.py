"""What would be lost: compressed texts, taken for damaged ones or read before they are complete."""

from __future__ import annotations

import bz2
import gzip
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest

from weft.connectors.files import checks as complete
from weft.connectors.files.checks import why_incomplete
from weft.connectors.files.parts import estimate_bytes
from weft.connectors.files.source import files
from weft.ports.source import CursorContext, MemoryBlobs

COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "zst": lambda content: bytes(pa.compress(content, codec="zstd", asbytes=True)),
    "bz2": bz2.compress,
}
CSV = b"k,s\n" + b"".join(b"%d,text %d\n" % (number, number % 7) for number in range(5000))
JSON = b"".join(b'{"k": %d, "s": "x"}\n' % number for number in range(5000))


def place(folder: Path) -> CursorContext:
    return CursorContext("s", {}, MemoryBlobs(), folder)


@pytest.mark.parametrize("ending", COMPRESS)
@pytest.mark.parametrize(("format_", "content"), [("csv", CSV), ("json", JSON)])
def test_compressed_texts_are_read(tmp_path: Path, ending: str, format_: str, content: bytes) -> None:
    compress = COMPRESS[ending]
    half = content.index(b"\n", len(content) // 2) + 1
    (tmp_path / f"a.{format_}.{ending}").write_bytes(compress(content))
    (tmp_path / f"b.{format_}.{ending.upper()}").write_bytes(
        compress(content[:half]) + compress(content[half:])
    )
    (tmp_path / f"c.{format_}").write_bytes(content)
    source = files(format_, str(tmp_path), schema="k int, s string")
    parts = source.open(place(tmp_path)).look(time.time() + 3).parts
    assert len(parts) == 3
    read = [source.read("s", part) for part in parts]
    assert [one.bad for one in read] == [(), (), ()]
    assert [one.batch for one in read] == [read[0].batch] * 3
    assert read[0].batch["k"].to_pylist() == list(range(5000))


@pytest.mark.parametrize("ending", COMPRESS)
def test_what_is_cut_off_is_waited_for_and_then_set_aside(tmp_path: Path, ending: str) -> None:
    content = COMPRESS[ending](CSV)
    content += COMPRESS[ending](CSV[4:])
    file = tmp_path / f"a.csv.{ending}"
    source = files("csv", str(tmp_path), schema="k int, s string")
    cursor, now = source.open(place(tmp_path)), time.time()
    for length in (1, 3, 6, 20, len(content) // 3, len(content) - 200, len(content) - 1):
        file.write_bytes(content[:length])
        assert why_incomplete(str(file), "csv", length) is not None
        assert cursor.look(now).parts == ()
    (part,) = cursor.look(now + 61).parts
    (bad,) = source.read("s", part).bad
    assert "not a readable" in bad.reason
    file.write_bytes(content)
    assert why_incomplete(str(file), "csv", len(content)) is None


@pytest.mark.parametrize("ending", COMPRESS)
def test_what_is_no_compressed_file_is_set_aside(tmp_path: Path, ending: str) -> None:
    file = tmp_path / f"a.json.{ending}"
    file.write_bytes(JSON)
    source = files("json", str(tmp_path), schema="k int")
    (part,) = source.open(place(tmp_path)).look(time.time() + 61).parts
    (bad,) = source.read("s", part).bad
    assert "not a readable" in bad.reason


def test_large_frames_of_zstandard_are_followed(tmp_path: Path) -> None:
    """Blocks of every kind: plain, repeated and compressed."""
    noise = bytes((number * 7919 >> 3) % 251 for number in range(400_000))
    content = pa.compress(b"\0" * 3_000_000 + noise + CSV * 30, codec="zstd", asbytes=True)
    skippable = b"\x50\x2a\x4d\x18\x04\0\0\0abcd"
    file = tmp_path / "a.csv.zst"
    file.write_bytes(skippable + content)
    assert why_incomplete(str(file), "csv", len(skippable) + len(content)) is None
    file.write_bytes(skippable + content[:-1])
    assert why_incomplete(str(file), "csv", len(skippable) + len(content) - 1) is not None


def test_the_end_of_a_gzip_file_tells_how_large_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(b"k\n" + b"1\n" * 1_000_000))
    source = files("csv", str(tmp_path), schema="k int")
    (part,) = source.open(place(tmp_path)).look(time.time() + 3).parts
    assert part.bytes == 2 * 2_000_002
    assert estimate_bytes("a.csv.zst", "csv", 10) == 60
    assert estimate_bytes("a.gz.parquet", "parquet", 10) == 50


def test_a_large_file_that_is_taken_at_its_word_is_watched_for_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(complete, "_VERIFIED", 10)
    (tmp_path / "a.csv.gz").write_bytes(gzip.compress(CSV)[:-1])
    cursor = files("csv", str(tmp_path), schema="k int").open(place(tmp_path))
    now = time.time()
    assert [len(cursor.look(now + wait).parts) for wait in (0, 1, 5, 11)] == [0, 0, 0, 1]
