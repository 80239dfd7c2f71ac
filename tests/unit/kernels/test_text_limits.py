"""Functions of texts that would make, or compare, too much."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from weft.errors import FunctionError
from weft.kernels.expr.select import evaluate
from weft.kernels.expr.texts import CALL_BYTES, CALL_CELLS, LIMITS, ROW_BYTES, ROW_CELLS
from weft.logical.expr.expression import Expr
from weft.logical.query.query import Input
from weft.logical.schema import Schema, Stream
from weft.sql.expressions import bind_expression
from weft.sql.parse import parse_fragment
from weft.sql.scope import Scope

SCOPE = Scope((Input("a", Stream("a", Schema.parse("s string, t string"))),))


def bound(text: str) -> Expr:
    return bind_expression(parse_fragment(text), SCOPE)


def value(text: str, s: list[str | None], t: list[str | None] | None = None) -> list[Any]:
    columns = {("a", "s"): pa.array(s, pa.string()), ("a", "t"): pa.array(t or s, pa.string())}
    found: list[Any] = evaluate(bound(text), columns, len(s)).to_pylist()
    return found


def test_nested_replace_stops_before_it_explodes() -> None:
    """Two hundred characters of SQL would ask for 10¹¹ bytes of memory."""
    text = "a.s"
    for _ in range(11):
        text = f"replace({text}, 'x', 'xxxxxxxxxx')"
    with pytest.raises(FunctionError, match="replace would make a text of 100,000,000 bytes") as caught:
        value(text, ["x", None])
    assert f"the limit is {LIMITS[ROW_BYTES]:,}" in caught.value.message
    assert caught.value.hint == f"leave out or shorten long texts, or set {ROW_BYTES}"


@pytest.mark.parametrize("column", [False, True])
def test_replace_by_longer_texts(column: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replacement that is a column would not be looked at."""
    text = "replace(a.s, 'x', a.t)" if column else "replace(a.s, 'x', 'yyyyy')"
    monkeypatch.setenv(ROW_BYTES, "12")
    assert value(text, ["xaxa", None, "a" * 12], ["yyyyy"] * 3) == ["yyyyyayyyyya", None, "a" * 12]
    monkeypatch.setenv(ROW_BYTES, "11")
    with pytest.raises(FunctionError, match="replace would make a text of 12 bytes, and the limit is 11"):
        value(text, ["xaxa"], ["yyyyy"])
    assert value("replace(a.s, 'aaaa', 'x')", ["a" * 400]) == [
        "x" * 100
    ]  # what is there already is no matter


def test_concat_counts_bytes_of_rows_and_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many texts that are small enough would together be too many."""
    monkeypatch.setenv(ROW_BYTES, "6")
    assert value("a.s || a.t || 'z'", ["xx", "ä"], ["yyy", None]) == ["xxyyyz", None]
    with pytest.raises(FunctionError, match="concat would make a text of 7 bytes, and the limit is 6"):
        value("a.s || a.t || 'z'", ["ää"], ["yy"])
    monkeypatch.setenv(CALL_BYTES, "10")
    with pytest.raises(FunctionError, match=f"(?s)12 bytes of text at once.*{CALL_BYTES}"):
        value("a.s || 'abcd'", ["xx", "xx"])


def test_levenshtein_of_long_texts() -> None:
    """Two texts of 50,000 characters would take a core for many seconds, and so would every pair of them."""
    long = "ab" * 25_000
    with pytest.raises(
        FunctionError, match="levenshtein would make a matrix of 2,500,000,000 cells"
    ) as caught:
        value("levenshtein(a.s, a.t)", [long], [long[::-1]])
    assert caught.value.hint is not None
    assert ROW_CELLS in caught.value.hint
    assert value("levenshtein(a.s, 'abc')", [long, None, "abd"]) == [49_998, None, 1]


def test_levenshtein_counts_the_cells_of_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thousand comparisons that are short enough would be as long as one that is not."""
    monkeypatch.setenv(CALL_CELLS, "19999")
    assert value("levenshtein(a.s, a.t)", ["x" * 100], ["y" * 100]) == [100]
    with pytest.raises(FunctionError, match="matrices of 20,000 cells at once, and the limit is 19,999"):
        value("levenshtein(a.s, a.t)", ["x" * 100] * 2, ["y" * 100] * 2)


def test_constants_are_limited_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """What depends on no row would be made before anybody asks."""
    monkeypatch.setenv(ROW_BYTES, "3")
    with pytest.raises(FunctionError, match="concat would make a text of 4 bytes"):
        value("'ab' || 'cd'", ["x"])


def test_a_limit_that_is_no_number_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """A slip in a variable would be a limit that nobody knows."""
    monkeypatch.setenv(ROW_BYTES, "64MB")
    with pytest.raises(FunctionError, match="WEFT_TEXT_BYTES_PER_ROW is '64MB', which is no number"):
        value("a.s || 'x'", ["x"])
