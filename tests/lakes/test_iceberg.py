"""What would be lost: a result that is in an Iceberg table twice or not at all, or a table that others cannot read."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import weft
from tests.lakes.killing import killed_run, wanted
from tests.lakes.program import sink_for
from tests.lakes.story import OWNER, SCHEMA, commit, crash_at, expected, live, rows, started
from tests.shares import seeds
from weft.connectors.iceberg.sink import IcebergSink
from weft.connectors.sink_descriptions import describe_sink, make_sink, same_place
from weft.errors import SinkError

pytest.importorskip("pyiceberg", reason='needs pip install "weft[iceberg]"')
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of PyIceberg's own
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # connections to its catalog, which it leaves open
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture
def place(tmp_path: Path) -> str:
    """A directory for a catalog and its tables."""
    (tmp_path / "lake").mkdir()
    return str(tmp_path / "lake")


def opened(place: str) -> Any:
    """The table, as a reader opens it."""
    sink = sink_for("iceberg", place)
    assert isinstance(sink, IcebergSink)
    return sink._catalog().load_table("lake.t")


def content(place: str) -> list[tuple[Any, ...]]:
    """What a reader sees, who knows nothing of batches; DuckDB reads the table through Arrow."""
    connection = duckdb.connect()
    connection.register("lake", opened(place).scan().to_arrow())
    found = connection.sql("SELECT k, c, epoch_us(ts) FROM lake ORDER BY k").fetchall()
    times = pa.array([one[2] for one in found], pa.int64()).cast(SCHEMA.field("ts").type).to_pylist()
    return [(k, c, ts) for (k, c, _), ts in zip(found, times, strict=True)]


@pytest.mark.parametrize("seed", seeds(3))
def test_a_crash_at_any_step_leaves_every_row_once(
    seed: int, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after the catalog takes the commit, and before the manifest is written."""
    from pyiceberg.catalog.sql import SqlCatalog

    crash = crash_at(monkeypatch, [(IcebergSink, "_add"), (SqlCatalog, "commit_table")])
    given = live(lambda: sink_for("iceberg", place), crash, random.Random(seed))
    assert content(place) == expected(given)


def test_batches_are_kept_by_checkpoint(place: str) -> None:
    """Another checkpoint's batch 0 is no replay; a table ahead of its checkpoint is refused."""
    for owner, keys in ((OWNER, [1]), ("checkpoint-2", [2]), (OWNER, [1])):
        commit(started(lambda: sink_for("iceberg", place), -1, owner), 0, keys, random.Random(0))
    assert content(place) == expected([1, 2])
    sink = started(lambda: sink_for("iceberg", place), 0)
    for batch in (1, 2):
        commit(sink, batch, [batch * 10], random.Random(0))
    with pytest.raises(SinkError, match=r"lake.t has batch 2, but the checkpoint ends with 0"):
        started(lambda: sink_for("iceberg", place), 0)


def test_a_commit_goes_around_other_writers_but_not_around_itself(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another writer's commit in between is no obstacle; a batch by a slower driver is refused, and there once."""
    one, other = (started(lambda: sink_for("iceberg", place), -1) for _ in "ab")
    add, slow = IcebergSink._add, [True]

    def late(sink: IcebergSink, table: Any, batch: int, found: pa.Table) -> None:
        if slow and batch == 0:
            slow.clear()
            one.commit(0, rows([1]))  # the same batch, by a driver that is faster
        elif slow:
            slow.clear()
            opened(place).append(rows([5]))
        add(sink, table, batch, found)

    monkeypatch.setattr(IcebergSink, "_add", late)
    other.commit(0, rows([1]))  # it has tried it itself, and cannot know whose it is
    one.commit(1, rows([9]))
    with pytest.raises(SinkError, match=r"lake\.t has got batch 1 from another query or session"):
        other.commit(1, rows([9]))
    assert content(place) == expected([1, 9])
    slow.append(True)
    other.commit(2, rows([2]))
    assert content(place) == expected([1, 2, 5, 9])
    assert "commit.retry.num-retries" not in opened(place).properties


def test_other_columns_are_refused_before_the_start(place: str) -> None:
    """Each error names the column; small whole numbers are wider in the table."""

    def refused(schema: pa.Schema, message: str) -> None:
        with pytest.raises(SinkError, match=message) as caught:
            sink_for("iceberg", place).open(schema, OWNER)
        assert caught.value.hint

    small = pa.schema([("b", pa.int8()), ("s", pa.int16()), ("t", pa.string())])
    sink = sink_for("iceberg", place)
    sink.open(small, OWNER)
    sink.commit(0, pa.table({"b": [1, None], "s": [-5, 6], "t": ["", None]}, small))
    found = opened(place).scan().to_arrow().to_pylist()
    assert found == [{"b": 1, "s": -5, "t": ""}, {"b": None, "s": 6, "t": None}]
    sink_for("iceberg", place).open(small, OWNER)
    refused(SCHEMA, "has no column k of type int64")
    refused(pa.schema([("b", pa.int64()), *list(small)[1:]]), "has no column b of type int64")
    refused(pa.schema(list(small)[:2]), "needs a value for t")
    refused(pa.schema([("d", pa.duration("us"))]), "column d has the type interval")
    for table in ("t", "", "a."):
        with pytest.raises(SinkError, match="no name of a table"):
            weft.to_iceberg("lake", table)


def test_it_is_made_again_without_its_secrets(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog's uri may be in the environment; a token must be."""
    monkeypatch.setenv("WEFT_TEST_URI", f"sqlite:///{place}/catalog.db")
    sink = weft.to_iceberg(
        {"type": "sql", "uri": "env:WEFT_TEST_URI", "warehouse": f"file://{place}"}, "lake.t"
    )
    found = describe_sink(sink)
    assert found is not None
    again = make_sink(json.loads(json.dumps(found)))
    assert again == sink
    assert same_place(sink, again)
    assert "sqlite" not in json.dumps(found) + repr(sink)
    commit(started(lambda: again, -1), 0, [7], random.Random(0))
    assert content(place) == expected([7])
    with pytest.raises(SinkError, match="token is written out") as caught:
        weft.to_iceberg({"uri": "http://127.0.0.1", "token": "s3cret"}, "lake.t")
    assert "s3cret" not in str(caught.value)


@pytest.mark.ci
@pytest.mark.parametrize("seed", seeds(1))
def test_a_session_that_is_killed_adds_every_result_once(seed: int, place: str, tmp_path: Path) -> None:
    """The whole way, with `kill -9` at random moments."""
    killed_run(tmp_path, "iceberg", place, 2, seed, os.environ)
    assert content(place) == wanted()
