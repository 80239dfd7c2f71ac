"""One meaning in several spellings is one query."""

from __future__ import annotations

import pytest
from tests.unit.sql.samples import CATALOG

from weft.logical.query.canonical import signature
from weft.sql.bind import parse_query

PAIRS = "videos v, views w WHERE v.vid = w.vid AND "
ONE = "videos v WHERE "
THREE = "videos a, videos b, videos c WHERE a.vid = b.vid AND b.vid = c.vid AND "


@pytest.mark.parametrize(
    ("rest", "spellings"),
    [
        (
            ONE,
            [
                "vid IN (1, 2)",
                "vid = 1 OR vid = 2",
                "2 = vid OR vid = 1 OR vid = 2",
                "vid IN (2) OR vid IN (1)",
            ],
        ),
        (ONE, ["vid IN (1, 2) OR ok", "vid = 1 OR ok OR vid = 2", "NOT (vid <> 1 AND NOT ok AND vid <> 2)"]),
        (ONE, ["vid NOT IN (1, 2)", "NOT (vid = 1 OR vid = 2)"]),
        (ONE, ["vid IN (1, NULL)", "vid = 1 OR vid = NULL"]),
        (
            ONE,
            ["ok", "ok = TRUE", "TRUE = ok", "ok <> FALSE", "NOT ok = FALSE", "ok IN (TRUE)", "ok AND 1 < 2"],
        ),
        (ONE, ["NOT ok", "ok = FALSE", "ok <> TRUE"]),
        (ONE, ["ok OR NOT ok", "ok IN (TRUE, FALSE)"]),
        (
            PAIRS,
            [
                "v.ts <= w.ts + INTERVAL '5' SECOND",
                "v.ts - INTERVAL '5' SECOND <= w.ts",
                "v.ts - w.ts <= INTERVAL '5' SECOND",
                "NOT v.ts > w.ts + INTERVAL '5' SECOND",
                "w.ts - v.ts >= INTERVAL '-5' SECOND",
                "v.ts - INTERVAL '3' SECOND <= INTERVAL '2' SECOND + w.ts",
                "v.ts - w.ts + INTERVAL '1' SECOND <= INTERVAL '6' SECOND",
            ],
        ),
        (PAIRS, ["v.ts < w.ts", "v.ts - w.ts < INTERVAL '0' SECOND", "w.ts - v.ts > INTERVAL '0' SECOND"]),
        (
            PAIRS,
            [
                "abs(v.ts - w.ts) <= INTERVAL '5' SECOND",
                "INTERVAL '5' SECOND >= abs(w.ts - v.ts)",
                "NOT abs(v.ts - w.ts) > INTERVAL '5' SECOND",
                "v.ts BETWEEN w.ts - INTERVAL '5' SECOND AND w.ts + INTERVAL '5' SECOND",
            ],
        ),
        (
            PAIRS,
            [
                "abs(v.ts - w.ts) > INTERVAL '5' SECOND",
                "v.ts > w.ts + INTERVAL '5' SECOND OR v.ts < w.ts - INTERVAL '5' SECOND",
            ],
        ),
        (THREE, ["a.vid + b.vid + c.vid = 9", "c.vid + a.vid + b.vid = 9", "9 = c.vid + (b.vid + a.vid)"]),
        (
            THREE,
            [
                "a.likes * b.likes * 2 < c.vid",
                "c.vid > 2 * b.likes * a.likes",
                "2 * (a.likes * b.likes) < c.vid",
            ],
        ),
        (
            THREE,
            [
                "a.vid + b.likes + c.likes = 9",
                "c.likes + a.vid + b.likes = 9",
                "b.likes + (c.likes + a.vid) = 9",
            ],
        ),
    ],
)
def test_equal(rest: str, spellings: list[str]) -> None:
    """Two users who spell one condition differently would not share state."""
    first, *others = (parse_query(f"SELECT 1 FROM {rest}({text})", CATALOG) for text in spellings)
    for other in others:
        assert other == first
        assert signature(other) == signature(first)
    assert parse_query(str(first), CATALOG) == first


@pytest.mark.parametrize(
    ("rest", "one", "other"),
    [
        (ONE, "vid = 1 OR likes = 2", "vid IN (1, 2)"),
        (PAIRS, "v.ts <= w.ts + INTERVAL '5' SECOND", "v.ts < w.ts + INTERVAL '5' SECOND"),
        (PAIRS, "v.ts <= w.ts + INTERVAL '5' SECOND", "w.ts <= v.ts + INTERVAL '5' SECOND"),
        (PAIRS, "v.ts <= w.ts + INTERVAL '5' SECOND", "v.ts <= w.ts - INTERVAL '5' SECOND"),
        # the sum of two integers overflows where that with a long does not; those of doubles are rounded
        (THREE, "a.likes + b.likes + c.vid = 9", "a.likes + (b.likes + c.vid) = 9"),
        (THREE, "a.score + b.score + c.score = 9", "a.score + (b.score + c.score) = 9"),
    ],
)
def test_different(rest: str, one: str, other: str) -> None:
    """Two conditions that differ would be taken for one, and a user see the other's results."""
    assert parse_query(f"SELECT 1 FROM {rest}{one}", CATALOG) != parse_query(
        f"SELECT 1 FROM {rest}{other}", CATALOG
    )


@pytest.mark.parametrize(
    "expression",
    [
        "abs(v.ts - w.ts)",
        "abs(v.ts - w.ts) = INTERVAL '5' SECOND",
        "v.ts - INTERVAL '99999' DAY <= w.ts + INTERVAL '99999' DAY",
        " + ".join(f"(v.vid + {i})" for i in range(20)),
        " + ".join(["v.vid"] * 90),
        "((v.vid * 1) * (2 * v.likes)) * ((3 * v.vid) * (v.likes * 4))",
        "v.published + INTERVAL '1' DAY",
        "v.price * v.price / 3 + 1 - v.price % 2",
    ],
)
def test_reads_back(expression: str) -> None:
    """What cannot be normalised would not be printed as it is read."""
    query = parse_query(f"SELECT {expression} AS x FROM videos v JOIN views w USING (vid)", CATALOG)
    assert parse_query(str(query), CATALOG) == query
