"""What would be lost: a table that DuckDB, pandas or Spark reads as other rows than the results are.

DuckDB reads through Arrow: its own extension for Delta has to be downloaded from DuckDB's server.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

import weft
from tests.lakes.program import sink_for
from tests.lakes.spark_readers import read_by_spark, why_missing
from tests.lakes.story import OWNER
from weft.ports.sink import Sink

deltalake = pytest.importorskip("deltalake", reason='needs pip install "weft[delta]"')
pytest.importorskip("pyiceberg", reason='needs pip install "weft[iceberg]"')
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),  # of PyIceberg's own
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # connections to its catalog, which it leaves open
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

SCHEMA = pa.schema(
    [
        ("k", pa.int64()),
        ("select", pa.string()),
        ('Größe "m²"', pa.decimal128(12, 3)),
        ("at", pa.timestamp("us", "UTC")),
        ("x", pa.float64()),
        ("ok", pa.bool_()),
        ("day", pa.date32()),
    ]
)


def sample(seed: int, batch: int) -> pa.Table:
    """Rows with NULLs, empty texts, negative decimals, and times before 1970."""
    rng = random.Random(f"{seed} {batch}")
    size = rng.randrange(1, 30)
    pools: list[list[Any]] = [
        [],
        ["", "a,b\n", "ü'\"", "NULL", None],
        [Decimal("-0.001"), Decimal("123456789.999"), None],
        [datetime(1912, 6, 23, 1, 2, 3, 4, timezone.utc), datetime(2262, 1, 1, tzinfo=timezone.utc), None],
        [0.1, float("inf"), -0.0, 5e-324, None],
        [True, False, None],
        [datetime(1850, 1, 1).date(), datetime(2024, 2, 29).date(), None],
    ]
    columns: list[list[Any]] = [[batch * 100 + number for number in range(size)]]
    columns += [[rng.choice(pool) for _ in range(size)] for pool in pools[1:]]
    return pa.table(columns, schema=SCHEMA)


def filled(sink: Sink) -> pa.Table:
    """Write some batches, an empty one among them; gives all rows in the order of the key."""
    batches = [sample(1, number) for number in range(4)]
    batches[2] = batches[2].slice(0, 0)
    sink.open(SCHEMA, OWNER)
    for number, table in enumerate(batches):
        sink.commit(number, table)
    return pa.concat_tables(batches)


def iceberg_table(place: Path) -> Any:
    """The table as PyIceberg opens it."""
    sink: Any = sink_for("iceberg", str(place))
    return sink._catalog().load_table("lake.t")


def delta(place: Path) -> tuple[pa.Table, Callable[[], Any], str]:
    """What was written to a Delta table, what opens it for Arrow, and where Spark finds it."""
    wanted = filled(weft.to_delta(place / "t", partition_by=["ok", "select"]))
    return wanted, lambda: deltalake.DeltaTable(str(place / "t")).to_pyarrow_dataset(), str(place / "t")


def iceberg(place: Path) -> tuple[pa.Table, Callable[[], Any], str]:
    """The same of an Iceberg table."""
    wanted = filled(sink_for("iceberg", str(place)))
    table = iceberg_table(place)
    return wanted, lambda: table.scan().to_arrow(), table.metadata_location


def empty_as_null(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Rows whose empty texts are NULL, as in a column that a Delta table is partitioned by."""
    return [{name: None if value == "" else value for name, value in row.items()} for row in rows]


def listed(kind: Callable[[Path], Any], table: pa.Table) -> list[dict[str, Any]]:
    """The rows that are wanted, by key."""
    found = table.sort_by("k").to_pylist()
    return empty_as_null(found) if kind is delta else found


@pytest.mark.parametrize("kind", [delta, iceberg])
def test_duckdb_reads_what_was_written(kind: Callable[[Path], Any], tmp_path: Path) -> None:
    """Through Arrow."""
    wanted, opened, _ = kind(tmp_path)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("lake", opened())
    found = connection.sql("SELECT * FROM lake ORDER BY k").to_arrow_table().cast(SCHEMA)
    assert found.to_pylist() == listed(kind, wanted)


@pytest.mark.parametrize("kind", [delta, iceberg])
def test_pandas_reads_what_was_written(kind: Callable[[Path], Any], tmp_path: Path) -> None:
    """By the functions that users of deltalake and PyIceberg call."""
    wanted, _, _ = kind(tmp_path)
    table: Any = (
        deltalake.DeltaTable(str(tmp_path / "t")) if kind is delta else iceberg_table(tmp_path).scan()
    )
    found = table.to_pandas().sort_values("k")
    assert pa.Table.from_pandas(found, SCHEMA, preserve_index=False).to_pylist() == listed(kind, wanted)


@pytest.mark.ci
@pytest.mark.spark
@pytest.mark.parametrize("kind", [delta, iceberg])
def test_spark_reads_what_was_written(kind: Callable[[Path], Any], tmp_path: Path) -> None:
    """By Spark's own readers of such tables."""
    missing = why_missing(kind.__name__)
    if missing:
        pytest.skip(missing)
    wanted, _, place = kind(tmp_path)
    found = sorted(read_by_spark(kind.__name__, place), key=lambda row: row["k"])
    texts = [json.loads(json.dumps(row, default=_as_spark)) for row in listed(kind, wanted)]
    assert found == texts


def _as_spark(value: object) -> str:
    """A value as `read_by_spark` gives it: times are without a zone there."""
    return str(value.replace(tzinfo=None) if isinstance(value, datetime) else value)
