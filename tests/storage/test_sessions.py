"""Sessions whose checkpoint is in an object store: exact, also after kills, and while the store fails."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from weft.errors import ConfigError, StateError
from weft.runtime.observe.inspect import inspect
from weft.storage.objects import ObjectStorage, host_cache

QUERY = "SELECT a.k, a.v, b.v AS w FROM a, b WHERE a.k = b.k"


def write(folder: Path, sides: dict[str, list[tuple[int, int]]], chance: random.Random, files: int) -> None:
    """Write files of random rows for both streams, and remember the rows."""
    for name, rows in sides.items():
        (folder / name).mkdir(parents=True, exist_ok=True)
        for _ in range(files):
            new = [(chance.randrange(6), chance.randrange(1000)) for _ in range(chance.randrange(1, 15))]
            table = pa.table({"k": [k for k, _ in new], "v": [v for _, v in new]})
            pq.write_table(table, folder / name / f"{len(rows):06d}-{chance.randrange(10**9)}.parquet")
            rows += new


def joined(sides: dict[str, list[tuple[int, int]]]) -> Counter[tuple[int, ...]]:
    """The answer, by its definition."""
    return Counter((k, v, w) for k, v in sides["a"] for other, w in sides["b"] if k == other)


def results(out: Path) -> Counter[tuple[int, ...]]:
    """What a sink has, in files that batches have committed."""
    tables = [pq.read_table(file, partitioning=None) for file in sorted(out.glob("batch=*/*.parquet"))]
    return Counter(tuple(row.values()) for table in tables for row in table.to_pylist())


def session_at(place: str, folder: Path, out: Path, **settings: Any) -> weft.Session:
    """A session over the files of a folder."""
    session = weft.Session(checkpoint=place, **{"execution": "local", **settings})
    for name in ("a", "b"):
        session.stream(name, weft.files("parquet", str(folder / name), max_files_per_batch=2))
    session.query(QUERY, name="q", sink=weft.to_parquet(out))
    return session


def test_state_in_a_store_is_exact_over_restarts(s3: str, tmp_path: Path) -> None:
    """State in s3:// would be lost, or be read wrongly by the next session."""
    chance, sides = random.Random(1), dict[str, list[tuple[int, int]]](a=[], b=[])
    for _ in range(3):
        write(tmp_path / "in", sides, chance, 3)
        host_cache.cache_clear()
        session_at(f"{s3}/ck", tmp_path / "in", tmp_path / "out").run_available()
        assert results(tmp_path / "out") == joined(sides)
    state = inspect(f"{s3}/ck")
    assert state.directory == f"{s3}/ck"
    assert sum(store.rows for store in state.stores) == sum(map(len, sides.values()))
    assert host_cache().counts.misses > 0
    text = b"".join(ObjectStorage(s3).get(one.name) or b"" for one in ObjectStorage(s3).entries())
    assert b"not-a-secret" not in text, "credentials are in the checkpoint"


def test_a_damaged_segment_is_named(s3: str, tmp_path: Path) -> None:
    """Damaged state would give wrong results."""
    sides = dict[str, list[tuple[int, int]]](a=[], b=[])
    write(tmp_path / "in", sides, random.Random(3), 2)
    session_at(f"{s3}/ck", tmp_path / "in", tmp_path / "out").run_available()
    storage = ObjectStorage(f"{s3}/ck")
    for name in storage.list("state/buckets"):
        data = storage.get(f"state/buckets/{name}") or b""
        storage.put(f"state/buckets/{name}", data[: len(data) // 2])
    host_cache().folder.rename(tmp_path / "gone")
    write(tmp_path / "in", sides, random.Random(4), 1)
    from weft.runtime.state import open_segments

    open_segments._BY_STORAGE.clear()
    with pytest.raises(StateError, match="s3://"):
        session_at(f"{s3}/ck", tmp_path / "in", tmp_path / "out").run_available()


@pytest.mark.usefixtures("s3")
def test_a_checkpoint_that_cannot_be_is_refused_before_the_start(tmp_path: Path) -> None:
    """A typing error in a URI would be found in the middle of a run."""
    write(tmp_path, {"a": [], "b": []}, random.Random(5), 1)
    for place, why in (
        ("s3://not-there/ck", "no such bucket"),
        ("ftp://host/ck", "names no storage"),
        ("s3://", "no bucket"),
    ):
        with pytest.raises(ConfigError, match=why):
            session_at(place, tmp_path, tmp_path / "out").start()
    assert not (tmp_path / "out").exists()
