"""Ordered results in an object store, where machines share no folder."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from tests.storage.test_sessions import QUERY, joined, results, session_at, write
from weft.connectors.files.parquet_sink import ParquetSink
from weft.storage.objects import ObjectStorage


def test_ordered_results_are_merged_in_a_store(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Machines share no folder there: runs, results for the driver and what waits are objects, which do not stay."""
    for where in ("spill", "outlet"):
        monkeypatch.setattr(f"weft.runtime.output.{where}.SMALL", 0)  # nothing travels in messages
    monkeypatch.setattr("weft.runtime.output.ordered_results.FEW", 0)
    monkeypatch.setattr("weft.runtime.output.ordered_results.LEAST", 1)
    chance, sides = random.Random(3), dict[str, list[tuple[int, int]]](a=[], b=[])
    told: list[pa.Table] = []
    first: list[pa.Table] = []
    for end in (False, True):
        write(tmp_path / "in", sides, chance, 2)
        session = session_at(f"{s3}/ck", tmp_path / "in", tmp_path / "out")
        inner = session.query(QUERY, name="inner", sink=weft.to_memory(), order="inner")
        session.query(QUERY, name="outer", sink=weft.to_parquet(f"{s3}/outer"), order="outer")
        session.query(QUERY, name="event", sink=weft.to_parquet(tmp_path / "event"), order="event")
        session.query(
            QUERY, name="told", sink=weft.foreach_batch(lambda table, _: told.append(table), arrow=True)
        )
        session.run_available(end=end)
        first.append(inner.results())
    wanted = joined(sides)
    assert results(tmp_path / "event") == wanted
    outer = weft.to_parquet(f"{s3}/outer")
    assert isinstance(outer, ParquetSink)
    tables = [
        pq.read_table(tmp_path / "x") for name in outer.committed_files() if fetch(name, tmp_path / "x")
    ]
    for found in (told, first, tables):
        rows = Counter(tuple(row.values()) for table in found for row in table.to_pylist())
        assert rows == wanted
    left = [one.name for one in ObjectStorage(f"{s3}/ck").entries() if "exchange" in one.name]
    assert not left


def fetch(uri: str, target: Path) -> bool:
    """Copy an object to a file."""
    folder, _, name = uri.rpartition("/")
    return bool(target.write_bytes(ObjectStorage(folder).get(name) or b""))
