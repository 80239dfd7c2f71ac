"""Where rows of outer joins are found: a wrong answer pads rows whose partner is in another partition."""

from __future__ import annotations

import pytest

from weft.logical.catalog import Catalog
from weft.logical.outer.outer import core_and_closing
from weft.logical.schema import Schema, Stream
from weft.plan.homes import RowPlace, locate_rows
from weft.plan.join_plan import Layout
from weft.sql.bind import parse_query

CATALOG = Catalog(tuple(Stream(name, Schema.parse("a long, b long, ts timestamp"), "ts") for name in "rst"))


def place(sql: str, **layouts: str) -> RowPlace | None:
    """Where the rows of a tree are; a layout is by a column, or `scattered`, or `replicated`."""
    query = parse_query(f"SELECT r.a FROM {sql}", CATALOG)
    _, closing = core_and_closing(query)
    assert closing is not None
    made = {
        alias: Layout("partitioned", 2, query.input(alias).column(text))
        if len(text) == 1
        else Layout(text, 2)
        for alias, text in layouts.items()
    }
    return locate_rows(closing.tree, made)


def shown(found: RowPlace | None) -> str:
    """A place in short: everywhere, by what, or nowhere."""
    if found is None:
        return "nowhere"
    return "everywhere" if found.everywhere else ", ".join(sorted(map(str, found.by))) or "somewhere"


# For the layouts of r and s: where the rows of left, full, semi, anti and inner joins on r.a = s.a are.
KINDS = {"LEFT": 0, "FULL": 1, "SEMI": 2, "ANTI": 3}
PAIRS = [
    ("a", "a", ("r.a, s.a", "r.a, s.a", "r.a", "r.a")),
    ("a", "b", ("nowhere",) * 4),
    ("b", "a", ("nowhere",) * 4),
    ("a", "scattered", ("nowhere",) * 4),
    ("scattered", "scattered", ("nowhere",) * 4),
    ("scattered", "replicated", ("somewhere", "nowhere", "somewhere", "somewhere")),
    ("a", "replicated", ("r.a", "nowhere", "r.a", "r.a")),
    ("b", "replicated", ("r.b", "nowhere", "r.b", "r.b")),
    ("replicated", "a", ("nowhere",) * 4),
    ("replicated", "scattered", ("nowhere",) * 4),
    ("replicated", "replicated", ("everywhere",) * 4),
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("r", "s", "expected"), PAIRS)
def test_two_inputs(kind: str, r: str, s: str, expected: tuple[str, ...]) -> None:
    """A row that is kept for want of a partner must be where all its partners would be, and in one place only."""
    assert shown(place(f"r {kind} JOIN s ON r.a = s.a", r=r, s=s)) == expected[KINDS[kind]]


def test_an_inequality_brings_nothing_together() -> None:
    """Partners by < are in all partitions."""
    for kind in KINDS:
        assert place(f"r {kind} JOIN s ON r.a < s.a", r="a", s="a") is None
        assert shown(place(f"r {kind} JOIN s ON r.a < s.a", r="replicated", s="replicated")) == "everywhere"


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ("COALESCE(r.a, s.a) = t.a", "r.a, s.a, t.a"),
        ("COALESCE(s.a, r.a) = t.a", "r.a, s.a, t.a"),
        ("s.a = t.a", "r.a, s.a, t.a"),
        # Where r is missing, r.b is not the key; where it is there, it is not, either.
        ("COALESCE(r.a, s.b) = t.a", "nowhere"),
        ("COALESCE(r.a, 0) = t.a", "nowhere"),
        ("r.b = t.a", "nowhere"),
    ],
)
def test_a_merged_key(on: str, expected: str) -> None:
    """The first key that is there tells the partition only if all of them would tell the same."""
    sql = f"r FULL JOIN s ON r.a = s.a FULL JOIN t ON {on}"
    assert shown(place(sql, r="a", s="a", t="a")) == expected


def test_what_a_semi_join_looks_for_is_not_seen_above() -> None:
    """Its rows have no s, so that s.a tells nothing of where they are."""
    sql = "r SEMI JOIN s ON r.a = s.a LEFT JOIN t ON r.a = t.a"
    assert shown(place(sql, r="a", s="a", t="a")) == "r.a, t.a"


def test_an_inner_join_below_may_be_replicated_on_either_side() -> None:
    """It keeps no row for want of a partner, so each pair may be found wherever one of the two is."""
    sql = "(r JOIN s ON r.a = s.a) LEFT JOIN t ON r.b = t.b"
    assert shown(place(sql, r="replicated", s="scattered", t="replicated")) == "somewhere"
    assert shown(place(sql, r="b", s="replicated", t="b")) == "r.b, t.b"
    assert place(sql, r="replicated", s="b", t="b") is None
    assert place(sql, r="a", s="a", t="b") is None


def test_a_nested_right_side() -> None:
    """Its padded rows are where its preserved input is."""
    sql = "r LEFT JOIN (s LEFT JOIN t ON s.b = t.b) ON r.a = s.a"
    assert place(sql, r="a", s="a", t="b") is None
    assert shown(place(sql, r="a", s="a", t="replicated")) == "r.a, s.a"
    assert shown(place(sql, r="b", s="replicated", t="replicated")) == "r.b"
