"""Functions of lists in queries: printed and read again, over slices and empty batches, and refused with a remedy."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import weft
from weft.errors import SqlError
from weft.kernels.expr.select import evaluate
from weft.logical.catalog import Catalog
from weft.logical.expr.expression import to_sql
from weft.logical.expr.functions import SECTIONS
from weft.logical.schema import Stream, schema_of
from weft.sql.bind import parse_query
from weft.testing import LocalRun

SCHEMA = "x array<int>, y array<int>, w array<string>, d array<array<int>>, s string, n int"
ROWS: list[dict[str, Any]] = [
    {"x": [3, None, 1], "y": [1], "w": ["a", None], "d": [[1], [2]], "s": "a,b", "n": 1},
    {"x": None, "y": [2], "w": None, "d": None, "s": None, "n": None},
    {"x": [], "y": [], "w": [], "d": [[]], "s": "", "n": -1},
    {"x": [5, 5], "y": [5, None], "w": ["b", "c"], "d": [None], "s": "c", "n": 2},
]
CALLS = {
    "split": "split(s, ',')",
    "size": "size(x)",
    "element_at": "element_at(x, n)",
    "get": "get(x, n)",
    **{name: f"{name}(x, n)" for name in ("array_contains", "array_position", "array_remove")},
    **{name: f"{name}(x, n)" for name in ("array_append", "array_prepend")},
    **{name: f"{name}(x)" for name in ("array_compact", "array_distinct", "array_max", "array_min")},
    **{name: f"{name}(x)" for name in ("sort_array", "array_sort")},
    "slice": "slice(x, n, 2)",
    "array_join": "array_join(w, '-', '?')",
    **{
        name: f"{name}(x, y)" for name in ("arrays_overlap", "array_union", "array_intersect", "array_except")
    },
    "flatten": "flatten(d)",
}


def column(text: str, rows: pa.Table) -> Any:
    """What an expression gives, also when its printed form is read again."""
    catalog = Catalog((Stream("t", schema_of(SCHEMA)),))
    (output,) = parse_query(f"SELECT {text} AS e FROM t", catalog).projection
    (again,) = parse_query(f"SELECT {to_sql(output.expr)} AS e FROM t", catalog).projection
    assert again.expr == output.expr
    columns = {("t", name): rows.column(name).combine_chunks() for name in rows.column_names}
    return evaluate(output.expr, columns, rows.num_rows)


def table() -> pa.Table:
    """The rows, as arrays whose first elements lie before the slice that is used."""
    kinds = {"x": pa.list_(pa.int32()), "y": pa.list_(pa.int32()), "w": pa.list_(pa.string())}
    kinds |= {"d": pa.list_(pa.list_(pa.int32())), "s": pa.string(), "n": pa.int32()}
    return pa.table({name: pa.array([row[name] for row in ROWS], kind) for name, kind in kinds.items()})


@pytest.mark.parametrize("name", [entry.name for entry in SECTIONS["Functions of lists"]])
def test_a_part_of_a_column_gives_a_part_of_the_result(name: str) -> None:
    """A batch that is a slice of another would be computed with the elements of rows before it."""
    whole = column(CALLS[name], table())
    for low, size in ((0, 0), (1, 2), (2, 2), (3, 1)):
        assert (
            column(CALLS[name], table().slice(low, size)).to_pylist() == whole.to_pylist()[low : low + size]
        )
    assert whole.to_pylist()[1] is None


@pytest.mark.parametrize(
    ("wrong", "message", "right"),
    [
        ("array_max(s)", "array_max does not work on string", "array_max(split(s, ','))"),
        ("size(s)", "it takes an array or a map", "length(s)"),
        ("array_distinct(d)", "cannot be compared", "array_distinct(d[0])"),
        ("array_contains(x, 'a')", "the elements are int", "array_contains(x, CAST('1' AS INT))"),
        ("array_union(x, w)", "elements of one type", "array_union(x, y)"),
        ("array_join(x, '-')", "an array of texts", "array_join(w, '-')"),
        ("array_join(w, '-', s)", "a constant for NULL", "array_join(w, '-', 'none')"),
        ("sort_array(x, n > 0)", "write TRUE or FALSE", "sort_array(x, FALSE)"),
        ("split(s, s)", "a constant pattern", "split(s, ',')"),
        ("split(s, ',*')", "use + in place of *", "split(s, ',+')"),
        ("split(s, '^a')", "leave out ^", "split(s, 'a')"),
        ("flatten(x)", "an array of arrays", "flatten(d)"),
        ("slice(x, s, 1)", "whole numbers", "slice(x, CAST(s AS INT), 1)"),
    ],
)
def test_what_is_no_list_is_refused(wrong: str, message: str, right: str) -> None:
    """An error at the first row would stop a stream that was accepted."""
    session = weft.Session()
    session.stream("t", SCHEMA)
    with pytest.raises(SqlError) as caught:
        session.query(f"SELECT {wrong} AS e FROM t", name="q", sink=weft.to_memory())
    assert message in str(caught.value)
    session.query(f"SELECT {right} AS e FROM t", name="q", sink=weft.to_memory())
    assert len(LocalRun(session).batch({"t": ROWS})["q"]) == len(ROWS)
