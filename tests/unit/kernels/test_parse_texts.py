"""Reading texts: a value of a file that CAST reads otherwise, or that depends on its neighbours, is a wrong result."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weft.kernels.expr import parse_texts
from weft.kernels.expr.arrow import arrow_type
from weft.kernels.expr.casts import render, utf8_or_null
from weft.kernels.expr.parse_texts import parse
from weft.logical.schema import parse_type

# What Spark 4.2 gives for try_cast(text AS type), cast to a text.
SPARK: dict[str, dict[str, str | None]] = {
    "int": {"+5": "5", " 5\t": "5", "\u00a05": None, "0x1F": None, "3.7": None, "007": "7", "": None},
    "double": {"inf": "Infinity", "+inf": "Infinity", "-nan": None, "nan(1)": None, "1e999": "Infinity"},
    "decimal(5,2)": {"1.555": "1.56", " 1.5 ": "1.50", "99999": None, "1e+2": "100.00", ".": None},
    "boolean": {
        **dict.fromkeys(["true", "T", "yes", "Y", " 1 ", "true\n"], "true"),
        **dict.fromkeys(["FALSE", "f", "No", "n", "0"], "false"),
        **dict.fromkeys(["on", "off", "2", ""], None),
    },
    "date": {
        "2024": "2024-01-01",
        "2024-1-5": "2024-01-05",
        "2024-01-05 x": "2024-01-05",
        "2024-02-30": None,
    },
    "timestamp": {
        "2024-01-05 10": "2024-01-05 10:00:00",
        "2024-01-05 10Z": None,
        "2024-01-05T": None,
        "2024-01-05T10:11": "2024-01-05 10:11:00",
        "2024-01-05 10:11:12.1234567891": "2024-01-05 10:11:12.123456",
        "2024-01-05T10:11:12+0200": "2024-01-05 08:11:12",
        "2024-01-05T10:11:12+2:3": "2024-01-05 08:08:12",
        "2024-01-05T10:11:12+18:00": "2024-01-04 16:11:12",
        "2024-01-05T10:11:12+18:30": None,
        "2024-01-05T10:11:12 UTC": "2024-01-05 10:11:12",
        "2024-01-05 24:00:00": None,
    },
}


@pytest.mark.parametrize("name", SPARK)
def test_texts_are_read_as_spark_reads_them(name: str) -> None:
    """A query in Spark SQL over the same texts would give other results."""
    kind = arrow_type(parse_type(name))
    for text, expected in SPARK[name].items():
        assert render(parse(pa.array([text]), kind)).to_pylist() == [expected], text


ALPHABETS = {
    **dict.fromkeys(("byte", "long"), "0159+-xXaF .e"),
    **dict.fromkeys(("float", "double"), "0159+-.eEnaifxX() "),
    **dict.fromkeys(("decimal(5,2)", "decimal(38,0)", "decimal(38,37)"), "0159+-.eE "),
    "boolean": "truefalsyno01TY ",
}
DIGITS = st.sampled_from(["0", "1", "01", "05", "12", "18", "19", "23", "24", "59", "60", ""])
TIMES = st.builds(
    "{}{}{}{}{}{}{}{}".format,
    st.sampled_from(["2024-01-05", "2024-02-30", "0001-01-01", "9999-12-31", "2024-1-5", "2024"]),
    st.sampled_from(["T", " ", ""]),
    DIGITS,
    st.sampled_from([":", ""]),
    DIGITS,
    st.sampled_from([":00", ":07.5", ":59.123456", ":59.1234567", ":60", "."]),
    st.sampled_from(["", "Z", "+", "-"]),
    st.sampled_from(["", "02", "02:00", "0200", "18:00", "18:01", "19:00", "2:30"]),
)


@settings(max_examples=300)
@given(st.data(), st.sampled_from([*ALPHABETS, "date", "timestamp"]))
def test_arrow_reads_nothing_that_the_rules_read_otherwise(data: st.DataObject, name: str) -> None:
    """What a text stands for would depend on the texts around it."""
    kind = arrow_type(parse_type(name))
    some = TIMES if name not in ALPHABETS else st.text(ALPHABETS[name], max_size=8)
    if name.startswith("decimal"):
        some |= st.text("90.", min_size=30, max_size=80)
    texts = pa.array(data.draw(st.lists(some | st.none(), min_size=1, max_size=3)), pa.string())
    by_arrow = parse_texts._by_arrow(texts, kind)
    if by_arrow is not None:
        assert render(by_arrow).equals(render(parse_texts._by_rules(texts, kind, exact=False)))
        assert render(by_arrow).equals(render(parse_texts._by_rules(texts, kind, exact=True)))


@pytest.mark.parametrize(
    ("name", "texts", "expected"),
    [
        ("double", ["1e999", "Infinity", "1"], [None, float("inf"), 1.0]),
        ("float", ["1e39", "-inf", None], [None, float("-inf"), None]),
        ("decimal(3,1)", ["1.25", "1.50", " 2"], [None, "1.5", "2.0"]),
        ("decimal(3,1)", ["1.5" + "0" * 50, "1.5" + "0" * 50 + "1"], [None, None]),
    ],
)
def test_where_it_is_to_be_exact_nothing_is_lost(name: str, texts: Any, expected: Any) -> None:
    """A file's number would be changed while it is read, and nobody told."""
    found = parse(pa.array(texts), arrow_type(parse_type(name)), exact=True).to_pylist()
    assert [
        None if value is None else type(other)(value) for value, other in zip(found, expected, strict=True)
    ] == expected


def test_long_columns_are_read_like_short_ones() -> None:
    """A column is cut into pieces where Arrow refuses it."""
    texts = [str(i) for i in range(10_000)]
    texts[5_000], texts[9_999] = " 5 ", "?"
    found = parse(pa.array(texts), pa.int32()).to_pylist()
    assert found[:5_000] == list(range(5_000))
    assert (found[5_000], found[9_998:]) == (5, [9_998, None])


def test_bytes_that_are_no_text() -> None:
    """One of them would make the others unreadable."""
    values = [b"a", b"\xff", None, b"\xed\xa0\x80", "é".encode(), b"\xc0\x80", b""]
    assert utf8_or_null(pa.array(values)).to_pylist() == ["a", None, None, None, "é", None, ""]
    assert utf8_or_null(pa.array(values).slice(1, 2)).to_pylist() == [None, None]
