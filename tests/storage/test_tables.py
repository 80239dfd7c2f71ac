"""Tables from an object store: exact while objects come, go and change, and refused where nothing can be read."""

from __future__ import annotations

import random
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from tests.shares import seeds
from tests.unit.test_session_tables import customers, given, made, orders, wait_for, write
from weft.connectors.tables.readers import FilesTable
from weft.errors import SourceError
from weft.storage.objects import ObjectStorage


def put(place: str, name: str, table: pa.Table) -> None:
    """Put a Parquet file."""
    out = pa.BufferOutputStream()
    pq.write_table(table, out)
    ObjectStorage(place).put(name, out.getvalue().to_pybytes())


@pytest.mark.parametrize("seed", seeds(2))
def test_every_order_is_joined_with_the_table_as_it_is(s3: str, tmp_path: Path, seed: int) -> None:
    """Against a dictionary, while objects are added, replaced and deleted and the session starts again."""
    chance, known, wanted = random.Random(seed), dict[str, dict[str, int]](), list[tuple[int, str]]()
    session = None
    for number in range(6):
        name = f"{chance.randrange(3)}.parquet"
        if name in known and len(known) > 1 and chance.random() < 0.4:
            known.pop(name)
            ObjectStorage(f"{s3}/dim").delete(name)
        else:
            known[name] = {
                f"n{number}_{one}": chance.randrange(5) for one in range(1, chance.randrange(2, 5))
            }
            put(f"{s3}/dim", name, customers(**known[name]))
        reader = FilesTable(weft.files("parquet", f"{s3}/dim", schema="id long, name string"))
        if session is None:
            session = made(tmp_path, weft.files("parquet", f"{s3}/dim"), refresh="50 ms")
            session.start()
        wait_for(partial(_is_up_to_date, session, reader.version()))
        asked = chance.randrange(5)
        wanted += [(number, who) for names in known.values() for who, id_ in names.items() if id_ == asked]
        write(tmp_path / "orders", f"{number}.parquet", orders((number, asked)))
        session.process_all_available()
        assert given(tmp_path) == sorted(wanted)
        if chance.random() < 0.3:
            session.stop()
            session = None
    if session is not None:
        session.stop()


def _is_up_to_date(session: weft.Session, version: str) -> bool:
    table = session.tables["customers"]
    return version == (table.waiting or table.version)


def test_a_delta_table_of_a_store_is_looked_up(s3: str, tmp_path: Path) -> None:
    """A new version of the table would not be seen, or the table not be found."""
    deltalake = pytest.importorskip("deltalake", reason='needs pip install "weft[delta]"')
    deltalake.write_deltalake(s3, customers(ann=1))
    write(tmp_path / "orders", "1.parquet", orders((1, 1), (2, 3)))
    session = made(tmp_path, weft.delta(s3.replace("s3:", "s3a:")), refresh="50 ms")
    session.start()
    try:
        session.process_all_available()
        assert given(tmp_path) == [(1, "ann")]
        deltalake.write_deltalake(s3, customers(cid=3), mode="append")
        wait_for(lambda: session.tables["customers"].version == "1")
        write(tmp_path / "orders", "2.parquet", orders((3, 3)))
        session.process_all_available()
        assert given(tmp_path) == [(1, "ann"), (3, "cid")]
    finally:
        session.stop()


def test_rows_of_two_versions_are_never_mixed(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object that is replaced while the table is read makes it another table."""
    put(s3, "a.parquet", customers(ann=1))
    put(s3, "b.parquet", customers(bob=2))
    reader = FilesTable(weft.files("parquet", s3, schema="id long, name string"))
    version, real = reader.version(), ObjectStorage.read_version
    assert sum(batch.num_rows for batch in reader.read(version)) == 2

    def replaced(self: ObjectStorage, name: str) -> Any:
        if name == "a.parquet":
            put(s3, "b.parquet", customers(cid=3, dan=4))
        return real(self, name)

    monkeypatch.setattr(ObjectStorage, "read_version", replaced)
    with pytest.raises(SourceError, match="changes while it is read as a table"):
        list(reader.read(version))
    assert reader.version() != version


def test_a_table_that_is_nowhere_is_refused(s3: str, tmp_path: Path) -> None:
    """A name with a typing error would be an empty table."""
    place = weft.files("parquet", f"{s3}/none", schema="id long, name string")
    session = made(tmp_path, place)
    with pytest.raises(SourceError, match=r"there is no s3://.*/none to read a table from"):
        session.start()
    put(f"{s3}/none", "_deep/x.parquet", customers())
    assert sum(batch.num_rows for batch in FilesTable(place).read(FilesTable(place).version())) == 0
