"""Whatever text a user types, the answer is a query or an error that shows where."""

from __future__ import annotations

import logging
from contextlib import suppress
from random import Random

import pytest
from tests.shares import seeds, share_of
from tests.unit.sql.grammar import Grammar
from tests.unit.sql.samples import CATALOG

from weft.errors import SqlError
from weft.sql.bind import parse_predicate, parse_query
from weft.sql.builder import Builder

TEXTS, FRAGMENTS = 1_000, 250


def check(text: str) -> bool:
    """Whether the text is a query; it must read back, or the error must show itself."""
    try:
        query = parse_query(text, CATALOG)
    except SqlError as error:
        refused = error
    else:
        assert parse_query(str(query), CATALOG) == query, text
        return True
    lines = str(refused).split("\n")
    assert len(lines) >= 3, text
    assert set(lines[2].strip()) == {"^"}, text
    assert 0 <= refused.start <= refused.end <= len(text), text
    return False


def test_random_texts(caplog: pytest.LogCaptureFixture) -> None:
    """A typo in a query would show a stack trace of somebody else's parser."""
    accepted = 0
    with caplog.at_level(logging.DEBUG):
        for seed in seeds(TEXTS):
            accepted += check(Grammar(Random(seed)).text())
    assert not caplog.records
    assert accepted > share_of(TEXTS) // 50, "the grammar writes hardly anything valid"


def test_random_fragments() -> None:
    """The builder's texts would be read with less care than whole queries."""
    inputs = parse_query("SELECT v.vid FROM videos v JOIN views w USING (vid)", CATALOG).inputs
    accepted = 0
    for seed in seeds(FRAGMENTS):
        text = Grammar(Random(seed)).fragment(("v", "videos"), ("w", "views"))
        with suppress(SqlError):
            predicate = parse_predicate(text, inputs)
            assert parse_predicate(str(predicate), inputs) == predicate, text
            accepted += 1
        with suppress(SqlError):
            Builder().select(text).where(text).from_("videos", alias="v").join(
                "views", alias="w", on=text
            ).build(CATALOG)
    assert accepted > share_of(FRAGMENTS) // 12, "the grammar writes hardly anything valid"


@pytest.mark.parametrize(
    "form", ["({})", "-{}", "NOT {}", "abs({})", "1 + {}", "{} + 1", "{} AND TRUE", "{} || 'x'"]
)
@pytest.mark.parametrize("times", [30, 300, 3_000])
def test_nesting(form: str, times: int) -> None:
    """A generated query could bring down the session with a RecursionError."""
    text = "v.vid"
    for _ in range(times):
        text = form.format(text)
    check(f"SELECT {text} FROM videos v")
    check(f"SELECT 1 FROM videos v WHERE {text}")


@pytest.mark.parametrize(
    "form", ["{0} BETWEEN {0} AND {0}", "CASE {0} WHEN {0} THEN {0} END", "{0} IN ({0}, {0})"]
)
def test_no_explosion(form: str) -> None:
    """A short text could fill the memory, because BETWEEN means its operand twice."""
    text = "v.vid"
    for _ in range(6):
        text = form.format(f"({text})")
    check(f"SELECT 1 FROM videos v WHERE {text}")


@pytest.mark.parametrize(
    "text", ["", " ", ";", "\n\t", "\0", "\ud800", "'", "SELECT '\udfff' FROM videos", "é" * 9]
)
def test_not_even_sql(text: str) -> None:
    """An empty file would be reported as a bug of Weft."""
    assert not check(text)
