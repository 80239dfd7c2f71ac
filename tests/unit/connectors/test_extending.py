"""What would be lost: the page that shows how to write a source and a sink would show something that does not work."""

from __future__ import annotations

import itertools
import random
import re
import sqlite3
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

from tests.shares import seeds
from weft.errors import SinkError, SourceError
from weft.ports.sink import RememberingSink, Sink
from weft.ports.source import Source

PAGE = Path(__file__).parents[3] / "docs" / "extending.md"
BLOCKS = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)


def execute(block: str, names: dict[str, Any]) -> None:
    """Run code of the page as it stands there."""
    exec(compile(block, str(PAGE), "exec", dont_inherit=True), names)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The names that the first two blocks of the page define, and an empty shop in the working directory."""
    monkeypatch.chdir(tmp_path)
    module = ModuleType("extending")
    monkeypatch.setitem(sys.modules, "extending", module)
    for block in BLOCKS[:2]:
        execute(block, module.__dict__)
    with sqlite3.connect("shop.db") as shop:
        for table in ("orders", "payments"):
            shop.execute(f"CREATE TABLE {table} (k, v)")
    return module.__dict__


def run(page: dict[str, Any]) -> None:
    """Run the last block of the page."""
    execute(BLOCKS[2], page)


def content(table: str) -> list[tuple[int, ...]]:
    with sqlite3.connect("shop.db") as shop:
        return shop.execute(f"SELECT * FROM {table}").fetchall()


def test_they_are_short(page: dict[str, Any]) -> None:
    """A page of fifty lines is read; and they speak the protocols."""
    code = [len([line for line in block.splitlines() if line.strip()]) for block in BLOCKS[:2]]
    assert all(lines <= 50 for lines in code), code
    sink = page["SqliteSink"]("shop.db", "paid")
    assert isinstance(page["SqliteSource"]("shop.db", "orders", page["weft"].Schema.parse("k long")), Source)
    assert isinstance(sink, Sink)
    assert isinstance(sink, RememberingSink)


@pytest.mark.parametrize("seed", seeds(3))
def test_every_result_is_there_once_over_restarts(
    page: dict[str, Any], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A session that dies after the sink has committed, and before the checkpoint has, commits the batch again."""
    chance, commit = random.Random(seed), page["SqliteSink"].commit
    monkeypatch.setattr(page["SqliteCursor"], "MOST", 3)
    dying = itertools.count()

    def die(sink: Any, batch_id: int, rows: Any) -> None:
        commit(sink, batch_id, rows)
        if next(dying) in (0, 2):
            raise KeyboardInterrupt

    monkeypatch.setattr(page["SqliteSink"], "commit", die)
    for _ in range(4):
        with sqlite3.connect("shop.db") as shop:
            for table in ("orders", "payments"):
                rows = [(chance.randrange(4), chance.randrange(100)) for _ in range(chance.randrange(1, 9))]
                shop.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
        try:
            run(page)
        except KeyboardInterrupt:
            run(page)
    pairs = itertools.product(content("orders"), content("payments"))
    assert Counter(content("paid")) == Counter((k, v, w) for (k, v), (other, w) in pairs if k == other)
    assert content("paid")


def test_a_batch_is_committed_once(page: dict[str, Any]) -> None:
    sink = page["SqliteSink"]("shop.db", "paid")
    rows = pa.table({"k": [1], "ordered": [2], "paid": [3]})
    sink.open(rows.schema, "me")
    sink.recover(-1)
    for batch in (0, 0, 1, 1):
        sink.begin(batch)
        sink.commit(batch, rows)
    assert content("paid") == [(1, 2, 3)] * 2
    with pytest.raises(SinkError, match="has batches that this checkpoint has not made"):
        sink.recover(-1)


def test_rows_that_do_not_fit_their_columns_are_refused(page: dict[str, Any]) -> None:
    """A text would become a number, or NULL; a column of NULLs alone is no such case."""
    with sqlite3.connect("shop.db") as shop:
        shop.executemany("INSERT INTO orders VALUES (?, ?)", [(1, None), (2, None)])
        shop.executemany("INSERT INTO payments VALUES (?, ?)", [(1, "x"), (2, "y")])
    orders, payments = (
        page["SqliteSource"]("shop.db", table, page["weft"].Schema.parse("k long, v long"))
        for table in ("orders", "payments")
    )
    cursor = page["SqliteCursor"](orders, 0)
    (part,) = cursor.look(0.0).parts
    assert orders.read("orders", part).batch.to_pydict() == {"k": [1, 2], "v": [None, None]}
    cursor.take([part])
    assert cursor.look(0.0).parts == ()
    with pytest.raises(SourceError, match="column v: expected type long, found string"):
        payments.read("payments", part)
