"""What would be lost: some order of events in which a file is read twice, never, or half.

Stories of files that are written at once or in pieces, touched, out of sight for a moment; of looks, batches and
restarts in between, with names that move to blobs all the time. Every file must be taken once, as a whole.
"""

from __future__ import annotations

import os
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shares import examples
from tests.unit.connectors.formats import writers
from weft.connectors.files import cursor as taken
from weft.connectors.files.parts import FileStatus
from weft.connectors.files.source import FilesSource, files
from weft.logical.schema import Schema
from weft.ports.source import Cursor, CursorContext, MemoryBlobs

SCHEMA = Schema.parse("k int")
OPS = ("write", "partial", "finish", "touch", "hide", "look", "take", "restart", "wait")
FILES = 5
steps = st.lists(
    st.tuples(st.sampled_from(OPS), st.integers(0, FILES - 1), st.integers(0, 99)), min_size=20, max_size=60
)


@dataclass
class Story:
    """Files, a cursor over them, and a clock that only this story moves."""

    folder: Path
    source: FilesSource
    cursor: Cursor
    blobs: MemoryBlobs
    now: float = 1_000_000_000.0
    changed: dict[str, float] = field(default_factory=dict)
    whole: set[str] = field(default_factory=set)
    found: list[int] = field(default_factory=list)

    def content(self, number: int) -> bytes:
        write = writers.to_json if self.source.format == "json" else writers.to_parquet
        return write([(number,), (number,)], SCHEMA)

    def put(self, number: int, content: bytes, complete: bool) -> None:
        name = f"{number}.in"
        if name in self.whole:
            return
        (self.folder / name).write_bytes(content)
        self.changed[name] = self.now
        if complete:
            self.whole.add(name)

    def write(self, number: int, _: int) -> None:
        self.put(number, self.content(number), True)

    def partial(self, number: int, amount: int) -> None:
        content = self.content(number)
        self.put(number, content[: len(content) * amount // 100].rstrip(b"\n"), False)

    def finish(self, number: int, _: int) -> None:
        if f"{number}.in" in self.changed:
            self.put(number, self.content(number), True)

    def touch(self, number: int, amount: int) -> None:
        file = self.folder / f"{number}.in"
        if file.exists():
            time = self.now + (amount - 50) * 86_400
            os.utime(file, (time, time))

    def hide(self, number: int, _: int) -> None:
        file, away = self.folder / f"{number}.in", self.folder / "_away"
        if file.exists():
            file.rename(away)
            self.cursor.look(self.now)
            self.cursor.state()
            away.rename(file)

    def look(self, _: int, __: int) -> None:
        self.cursor.look(self.now)

    def take(self, number: int, _: int) -> None:
        parts = self.cursor.look(self.now).parts[: number + 1]
        read = [self.source.read("s", part) for part in parts]
        assert not any(one.bad for one in read)
        assert all(one.batch.num_rows == 2 for one in read)
        self.found += [one.batch["k"][0].as_py() for one in read]
        self.cursor.take(parts)
        self.cursor.release(parts)

    def restart(self, _: int, __: int) -> None:
        self.cursor = self.source.open(CursorContext("s", self.cursor.state(), self.blobs, self.folder))

    def wait(self, _: int, amount: int) -> None:
        self.now += amount * 10  # so long that names of files that are gone are forgotten

    def status(self, path: str) -> FileStatus:
        found = os.stat(path)
        changed = int(self.changed[os.path.basename(path)] * 1e9)
        return FileStatus(found.st_size, found.st_mtime_ns, found.st_ino, changed)


@pytest.mark.parametrize("format_", ["json", "parquet"])
@given(steps=steps)
@examples(40)
def test_every_file_is_taken_once_and_as_a_whole(format_: str, steps: list[tuple[str, int, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        source = files(format_, folder, schema=SCHEMA, unfinished_after="7 days")
        blobs = MemoryBlobs()
        cursor = source.open(CursorContext("s", {}, blobs, Path(folder)))
        story = Story(Path(folder), source, cursor, blobs)
        patch.setattr(taken, "_MOST_IN_STATE", 0)
        patch.setattr(FileStatus, "read", story.status)
        story.restart(0, 0)
        for op, number, amount in steps:
            getattr(story, op)(number, amount)
        for number in range(FILES):
            story.finish(number, 0)
        for _ in range(3):
            story.now += 1
            story.take(10, 0)
        assert sorted(story.found) == sorted(int(Path(name).stem) for name in story.whole)
        assert story.cursor.look(story.now).backlog == (0, 0)
