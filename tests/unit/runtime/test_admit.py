"""What enters must have its types, its time and its number, or be set aside and counted."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.unit.runtime.joins import SECOND, graph, v
from weft.errors import CatalogError
from weft.runtime.hop.admission import admit, numbered
from weft.runtime.program.executable import ExecutableGraph
from weft.stats.input_figures import InputFigures

PROGRAM = ExecutableGraph(graph("SELECT v.x FROM v [ROWS 5], w WHERE v.vid = w.vid"))


def test_late_tuples_are_set_aside_and_counted() -> None:
    """Behind the watermark is late; at the watermark is on time."""
    data = v((1, 1, 3), (2, 2, 4), (3, 3, 5))
    found = admit(PROGRAM, "v", data, watermark=4 * SECOND)
    assert (found.batch.num_rows, found.figures) == (
        2,
        InputFigures(2, 1, oldest=4 * SECOND, newest=5 * SECOND, behind=1),
    )
    joins = ExecutableGraph(graph("SELECT v.x FROM v [ROWS 5], w WHERE v.vid = w.vid", late="join"))
    joined = admit(joins, "v", data, watermark=4 * SECOND)
    assert (joined.batch.num_rows, joined.figures.late, joined.figures.behind) == (3, 0, 1)


def test_tuples_without_a_time_are_set_aside_and_counted() -> None:
    """They have no place in any window."""
    found = admit(PROGRAM, "v", v((1, 1, None), (2, 2, 4)))
    assert (found.batch.num_rows, found.figures.untimed) == (1, 1)


def test_numbers_count_what_takes_part() -> None:
    """ROWS windows count them."""
    found = admit(PROGRAM, "v", v((1, 1, 3), (2, 2, 4)), watermark=4 * SECOND)
    assert numbered(PROGRAM, "v", found.batch, 7)["v.$seq"].to_pylist() == [7]
    other = admit(PROGRAM, "w", pa.table({"vid": [1], "ts": pa.array([0], pa.timestamp("us"))}))
    assert "w.$seq" not in numbered(PROGRAM, "w", other.batch, 0).schema.names


def test_arrow_types_are_brought_to_the_declared_ones() -> None:
    """Sources deliver int32, dictionaries, nanoseconds, chunks."""
    data = pa.table(
        {
            "vid": pa.chunked_array([pa.array([1], pa.int32()), pa.array([2], pa.int32())]),
            "x": pa.array([5, 6], pa.int8()),
            "ts": pa.array([1_500, 2_500], pa.timestamp("ns")),
        }
    )
    batch = admit(PROGRAM, "v", data).batch
    assert batch["v.vid"].type == pa.int64()
    assert batch["v.ts"].cast(pa.int64()).to_pylist() == [1, 2]


def test_a_missing_column_is_named_with_those_there_are() -> None:
    """A renamed column of a new file."""
    with pytest.raises(CatalogError, match="no column 'vid'"):
        admit(PROGRAM, "v", pa.table({"vidd": [1], "x": [1], "ts": [0]}))


def test_nothing_is_admitted_of_nothing() -> None:
    """Empty batches happen."""
    assert admit(PROGRAM, "v", v(), watermark=5).batch.num_rows == 0
