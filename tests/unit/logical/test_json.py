"""Paths into JSON are read as Spark reads them, and refused where Spark would give NULL for every row."""

from __future__ import annotations

import pytest

from weft.errors import SqlError
from weft.logical.catalog import Catalog
from weft.logical.expr.builtin.json import path_steps
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_query

CATALOG = Catalog((Stream("t", Schema.parse("s string")),))


@pytest.mark.parametrize(
    ("path", "steps"),
    [
        ("$", ()),
        ("$.a.b[0]", ("a", "b", 0)),
        ("$. a", ("a",)),
        ("$.a ", ("a ",)),
        ("$.b.c[ 00]", ("b", "c", 0)),
        ("$[' a.b']", ("a.b",)),
        ("$ ['a]']", ("a]",)),
        ("$.a*b?", ("a*b?",)),
        ("$.a'b", ("a'b",)),
    ],
)
def test_a_path_is_names_and_places(path: str, steps: tuple[str | int, ...]) -> None:
    """A value beside the one that was meant would be compared."""
    assert path_steps(path) == steps


@pytest.mark.parametrize(
    "path",
    ["", "a", "$.", "$. ", "$a", "$..a", "$[a]", "$['']", "$.a[", "$.a[-1]", "$.*", "$[*]", "$['*']", " $"],
)
def test_what_is_no_path_is_refused_when_the_query_is_bound(path: str) -> None:
    """A query with a slip in its path would run for days and find nothing."""
    assert path_steps(path) is None
    written = path.replace("'", "\\'")
    with pytest.raises(SqlError, match="does not read the path") as caught:
        parse_query(f"SELECT get_json_object(s, '{written}') AS v FROM t", CATALOG)
    assert caught.value.hint == "go by names and places, as in '$.a.b[0]'"
