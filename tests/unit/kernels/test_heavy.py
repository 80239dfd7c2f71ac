"""Heavy values: all who ask agree on them, and their tuples are dealt out evenly."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from weft.kernels.route.heavy import deal_rows, heavy_rows, heavy_words
from weft.logical.expr.expression import Literal
from weft.logical.schema import DataType


def words(values: list[Any], kind: str) -> Any:
    """The words of heavy values of a type."""
    return heavy_words([Literal(value, DataType(kind)) for value in values])


@pytest.mark.parametrize("kind", [pa.int8(), pa.int16(), pa.int32(), pa.int64()])
def test_whole_numbers_are_heavy_whatever_their_width(kind: pa.DataType) -> None:
    """One side of a join may be narrower than the other, and both must agree."""
    column = pa.array([7, 8, None, -1, 7], kind)
    for known in ("int", "long"):
        assert heavy_rows(column, words([7, -1], known)).tolist() == [True, False, False, True, True]


def test_texts_are_heavy_in_any_layout() -> None:
    """A dictionary's texts are the same texts; NULL is none."""
    column = pa.array(["a", "", None, "b", "a"])
    for layout in (column, column.cast(pa.large_string()), column.dictionary_encode()):
        assert heavy_rows(layout, words(["a", ""], "string")).tolist() == [True, True, False, False, True]


def test_without_heavy_values_nothing_is_heavy() -> None:
    """An edge may have none of its own."""
    assert not heavy_rows(pa.array([0, 1]), heavy_words([])).any()


def test_tuples_are_dealt_out_one_by_one() -> None:
    """Each partition gets as many, whichever is first; the others stay where they were."""
    places, rows = np.full(10, 5, np.int32), np.arange(10) % 5 != 0
    assert deal_rows(places, rows, 3, 1).tolist() == [5, 1, 2, 0, 1, 5, 2, 0, 1, 2]
    assert places.tolist() == [5] * 10
