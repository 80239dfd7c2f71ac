"""Results handed to a function of the user.

Guarantees: the function is called in the driver with all rows of a batch and the batch's number; batches come in
order. After a crash a batch may come again, with the same number and rows: at least once, and exactly once if the
function overwrites by number. An Arrow table or reader takes large results from files that tasks wrote and that are
mapped, so the driver needs no memory for them but what the function keeps; a reader's batches come one after the other.
Tables and readers of ordered results have their punctuations in the metadata of the schema (`weft.Punctuations.read`).
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from weft.connectors.common import as_table
from weft.errors import SinkError
from weft.logical.arguments import checked
from weft.ports.sink import ResultRows

__all__ = [
    "foreach_batch",
]

READER = "reader"


@dataclass(slots=True)
class ForeachBatchSink:
    """A function called with each batch: a Spark DataFrame, an Arrow table, or, for `arrow="reader"`, its batches."""

    function: Callable[[Any, int], object]
    arrow: bool | str = False
    exactly_once: bool = field(default=False, init=False)
    _schema: pa.Schema | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        if not callable(self.function):
            raise SinkError(
                f"foreach_batch: {self.function!r} is not a function", hint="give one of (rows, batch_id)"
            )
        if self.arrow not in (True, False, READER):
            raise SinkError(
                f"foreach_batch: arrow cannot be {self.arrow!r}", hint=f'use True, False or "{READER}"'
            )

    def open(self, schema: pa.Schema, owner: str | None = None) -> None:  # noqa: ARG002
        """Learn the columns."""
        self._schema = schema

    def keyed(self, keys: Sequence[str]) -> ForeachBatchSink:  # noqa: ARG002
        """The sink: the function sees the groups that a batch changed, and replaces what it has of them."""
        return self

    def recover(self, last_committed: int) -> None:
        """Do nothing: what the function did is not known here."""

    def begin(self, batch_id: int) -> None:
        """Nothing to prepare."""

    def commit(self, batch_id: int, rows: ResultRows) -> None:
        """Call the function."""
        table = as_table(rows, self._schema)
        if self.arrow == READER:
            self.function(table.to_reader(), batch_id)
        else:
            self.function(table if self.arrow else _data_frame(table), batch_id)


def _data_frame(table: pa.Table) -> Any:
    spark = importlib.import_module("pyspark.sql").SparkSession.getActiveSession()
    if spark is None:
        raise SinkError(
            "foreach_batch: there is no active Spark session", hint="use arrow=True without Spark"
        )
    return spark.createDataFrame(table)


@checked(SinkError)
def foreach_batch(function: Callable[[Any, int], object], *, arrow: bool | str = False) -> ForeachBatchSink:
    """Call `function(rows, batch_id)` with each batch, at least once.

    ``rows`` is a DataFrame of Spark's; with ``arrow=True`` a `pyarrow.Table`, with ``arrow="reader"`` a
    `pyarrow.RecordBatchReader`, which gives the rows portion by portion, so that a batch need not fit into memory.
    """
    return ForeachBatchSink(function, arrow)
