"""The reference itself, against examples worked out by hand and against a second one in plain Python."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pyarrow as pa
import pytest

from tests.equivalence.simulator import Batch, random_batches, reference
from tests.random_cases import random_case
from tests.shares import seeds
from tests.unit.runtime.joins import c, graph, session, sorted_rows, v, w
from weft.errors import QueryError
from weft.logical.query.query import Query, make_query, star
from weft.logical.schema import Field, Schema, parse_type
from weft.testing import POSITION, TIME, reference_join
from weft.testing.reference import join_within_times, row_column


def answer(sql: str, **tables: pa.Table) -> list[tuple[object, ...]]:
    """The reference's answer, sorted."""
    return sorted_rows(reference_join(graph(sql).query, tables))


def at(table: pa.Table, *positions: int) -> pa.Table:
    """A table whose tuples have these places in the total order."""
    return table.append_column(POSITION, pa.array(positions))


def test_a_range_is_measured_from_the_newest_tuple_of_the_result() -> None:
    """v is 5 s older than c, which is one second too much, though w lies between them."""
    sql = "SELECT v.x, c.t FROM v [RANGE {}], w, c WHERE v.vid = w.vid AND w.uid = c.uid"
    tables = {"v": v((1, 10, 0)), "w": w((1, 5, "a", 3)), "c": c((5, "x", 5))}
    assert answer(sql.format("5 SECONDS"), **tables) == [(10, "x")]
    assert answer(sql.format("4 SECONDS"), **tables) == []


def test_rows_are_counted_when_the_last_tuple_arrives() -> None:
    """The first v was the last one when the first w came, and is not when the second comes."""
    sql = "SELECT v.x, w.uid FROM v [ROWS 1], w WHERE v.vid = w.vid"
    tables = {"v": at(v((1, 10, 0), (1, 20, 0)), 0, 2), "w": at(w((1, 7, None, 0), (1, 8, None, 0)), 1, 3)}
    assert answer(sql, **tables) == [(10, 7), (20, 7), (20, 8)]


def test_the_total_order_must_be_given_where_it_matters() -> None:
    """A guess would be wrong."""
    with pytest.raises(QueryError, match="total order"):
        answer("SELECT v.x FROM v [ROWS 1], w WHERE v.vid = w.vid", v=v(), w=w())


def test_arrival_times_are_a_column() -> None:
    """Streams without event time have them."""
    table = pa.table({"vid": [1, 1], "x": [10, 20], TIME: [0, 4_000_000]})
    sql = "SELECT u.x FROM u [RANGE 5 SECONDS], w WHERE u.vid = w.vid"
    assert answer(sql, u=table, w=w((1, 7, None, 8))) == [(20,)]


def test_null_nan_and_zero_compare_as_in_spark() -> None:
    """NULL joins nothing, NaN equals NaN, -0.0 equals 0.0."""
    sql = "SELECT v.vid FROM v, w WHERE v.vid = w.vid AND CAST(v.x AS DOUBLE) / 0.5 = w.uid * 2.0"
    assert answer(sql, v=v((1, 3, 0), (None, 3, 0)), w=w((1, 3, None, 0), (None, 3, None, 0))) == [(1,)]


@pytest.mark.parametrize("block", range(2))
def test_both_references_agree(block: int) -> None:
    """Two readings of the definitions, one in SQL and one tuple by tuple."""
    for seed in seeds(10, block):
        case = random_case(seed, least=2, most=4)
        query = shown(case.query)
        batches = random_batches(query, seed)
        found = reference_join(query, {alias: table(query, alias, batches) for alias in query.aliases})
        expected = reference(query, batches)
        assert sorted(zip(*found.to_pydict().values(), strict=True)) == sorted(
            tuple(map(packed, positions)) for positions in expected.elements()
        )


def shown(query: Query) -> Query:
    """The query over streams with a column `id` more, which is all it gives."""
    inputs = []
    for input_ in query.inputs:
        schema = Schema((*input_.stream.schema.fields, Field("id", parse_type("long"))))
        inputs.append(replace(input_, stream=replace(input_.stream, schema=schema)))
    where = [equality for key in query.keys for equality in key.equalities()]
    return make_query(inputs, [*where, *query.conditions], star(input_.column("id") for input_ in inputs))


def packed(position: tuple[int, int, int]) -> int:
    """A place in the total order as a number."""
    batch, rank, number = position
    return (batch * 100 + rank) * 1000 + number


def table(query: Query, alias: str, batches: list[Batch]) -> pa.Table:
    """The tuples of an input."""
    rows = [row for batch in batches for row in batch[alias]]
    places = pa.array([packed(row.position) for row in rows], pa.int64())
    columns = {
        name: pa.array([row.values[name] for row in rows], pa.int64())
        for name in query.input(alias).stream.schema.names
        if name not in ("ts", "id")
    }
    seconds = [row.values["ts"] for row in rows]
    micros = np.array([s // timedelta(microseconds=1) for s in seconds if isinstance(s, timedelta)], np.int64)
    return pa.table(
        {**columns, "ts": pa.array(micros).cast(pa.timestamp("us")), "id": places, POSITION: places}
    )


def test_a_missing_tuple_is_in_no_window() -> None:
    """The w is too old for c where it is there, and keeps no c away where it is not."""
    sql = (
        "SELECT v.x, w.uid, c.t FROM v [RANGE 4 SECONDS] LEFT JOIN w [RANGE 2 SECONDS] ON v.vid = w.vid"
        " LEFT JOIN c ON v.x = c.uid AND COALESCE(w.uid, 0) < 9"
    )
    tables = {"v": v((1, 5, 0), (1, 5, 4)), "w": w((1, 7, "a", 3)), "c": c((5, "x", 4), (5, "y", 9))}
    query = session().parse(sql)
    assert sorted_rows(reference_join(query, tables)) == [(5, 7, "x"), (5, 7, "x")]
    found = reference_join(query, tables | {"w": w((1, 7, "a", 1.5))}).to_pydict()
    assert set(zip(*found.values(), strict=True)) == {(5, 7, None), (5, None, "x")}


def test_numbers_of_rows_in_outer_joins() -> None:
    """What is expected of each tuple could not be told."""
    sql = "SELECT v.x FROM v SEMI JOIN c ON v.x = c.uid FULL JOIN w ON v.vid = w.vid"
    tables = {"v": v((1, 5, 0), (1, 6, 0)), "w": w((2, 7, "a", 3)), "c": c((5, "x", 4), (5, "y", 9))}
    found = join_within_times(session().parse(sql), tables).to_pydict()
    assert found.keys() == {"x", row_column("v"), row_column("w")}
    assert sorted(zip(found[row_column("v")], found[row_column("w")], strict=True), key=str) == [
        (0, None),
        (None, 0),
    ]


def test_counts_have_no_meaning_where_tuples_may_be_missing() -> None:
    """An answer would be computed that nobody defined."""
    query = session().parse("SELECT v.x FROM v [ROWS 3] LEFT JOIN w ON v.vid = w.vid")
    with pytest.raises(QueryError, match="ROWS"):
        reference_join(query, {"v": v(), "w": w()})
