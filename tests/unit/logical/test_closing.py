"""What probing finds of an outer join and what closing finds, and for how long its rows wait: worked out by hand."""

from __future__ import annotations

from datetime import timedelta

import pytest

from weft.errors import QueryError
from weft.logical.catalog import Catalog
from weft.logical.expr.expression import aliases
from weft.logical.outer.outer import Closing, core_and_closing, joins, visible
from weft.logical.outer.waiting import check_closing, limit_waiting, never_closed, reaches, spans, waits
from weft.logical.query.query import Query
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_query

SCHEMA = Schema.parse("a long, b long, s string, ts timestamp")
CATALOG = Catalog(tuple(Stream(name, SCHEMA, "ts") for name in "rstu"))
TEN, FOUR, ONE = "[RANGE 10 SECONDS]", "[RANGE 4 SECONDS]", "[RANGE 1 SECOND]"
FULL = f"r {TEN} FULL JOIN s {FOUR} ON r.a = s.a"
FULL_3 = f"{FULL} FULL JOIN t {ONE} ON COALESCE(r.a, s.a) = t.a"
NESTED = f"r {TEN} LEFT JOIN (s {FOUR} LEFT JOIN t ON s.b = t.b) ON r.a = s.a"
BAND = "r LEFT JOIN s ON r.a = s.a AND s.ts BETWEEN r.ts - INTERVAL '3' SECOND AND r.ts + INTERVAL '7' SECOND"
HOUR = timedelta(hours=1)


def parse(sql: str) -> Query:
    """A query over r, s, t and u."""
    return parse_query(f"SELECT r.a FROM {sql}", CATALOG)


def apart(sql: str) -> tuple[Query, Closing]:
    """Its core, and what closes it."""
    core, closing = core_and_closing(parse(sql))
    assert closing is not None
    return core, closing


def tree(closing: Closing) -> str:
    """A tree as SQL writes it."""
    return closing.tree.to_sql({name: name for name in closing.tree.aliases})


def seconds(spans_: dict[str, timedelta | None]) -> dict[str, float | None]:
    """Spans of time as numbers."""
    return {name: None if span is None else span.total_seconds() for name, span in spans_.items()}


class TestTakenApart:
    """Conditions that are evaluated at the wrong place lose rows, or pad rows that have a partner."""

    def test_an_inner_query_is_its_own_core(self) -> None:
        """Nothing would have to be closed, and closing costs."""
        query = parse("r, s WHERE r.a = s.a")
        assert core_and_closing(query) == (query, None)

    @pytest.mark.parametrize(
        ("sql", "filters", "kept"),
        [
            # Of ON, what is about the side that is padded; of WHERE, what is about the side that is preserved.
            ("r LEFT JOIN s ON r.a = s.a AND r.b > 1 AND s.b < 2 WHERE r.s = 'x'",
             ["r.s = 'x'", "s.b < 2"], "r LEFT OUTER JOIN s ON r.a = s.a AND r.b > 1"),
            # A row that fails ON is kept, and a row that fails WHERE may have kept another from being padded.
            ("r FULL JOIN s ON r.a = s.a AND r.b > 1 AND s.b < 2",
             [], "r FULL OUTER JOIN s ON r.a = s.a AND r.b > 1 AND s.b < 2"),
            # A semi join gives no row that fails ON.
            ("r SEMI JOIN s ON r.a = s.a AND r.b > 1 AND s.b < 2 WHERE r.s = 'x'",
             ["r.b > 1", "r.s = 'x'", "s.b < 2"], "r SEMI JOIN s ON r.a = s.a"),
            # An anti join gives just those.
            ("r ANTI JOIN s ON r.a = s.a AND r.b > 1 AND s.b < 2 WHERE r.s = 'x'",
             ["r.s = 'x'", "s.b < 2"], "r ANTI JOIN s ON r.a = s.a AND r.b > 1"),
            # An inner join below is as good as WHERE for what is about it alone.
            ("r JOIN s ON r.a = s.a LEFT JOIN t ON r.b = t.b AND t.s = 'z' WHERE r.s = 'x' AND r.b < s.b",
             ["r.s = 'x'", "t.s = 'z'"],
             "r JOIN s ON r.a = s.a AND r.b < s.b LEFT OUTER JOIN t ON r.b = t.b"),
            # Through a left join, to its preserved side; not through a full one.
            ("r LEFT JOIN s ON r.a = s.a LEFT JOIN t ON r.b = t.b WHERE r.s = 'x'",
             ["r.s = 'x'"], "r LEFT OUTER JOIN s ON r.a = s.a LEFT OUTER JOIN t ON r.b = t.b"),
            # Where nothing would be left of ON, what is left says so.
            ("r LEFT JOIN s ON s.b > 1", ["s.b > 1"], "r LEFT OUTER JOIN s ON s.b > 1"),
        ],
    )  # fmt: skip
    def test_what_sinks_where(self, sql: str, filters: list[str], kept: str) -> None:
        """A filter at an input spares state; the same filter too low loses rows or pads them."""
        core, closing = apart(sql)
        assert [str(filter_) for filter_ in core.filters] == filters
        assert (tree(closing), closing.where) == (kept, ())

    @pytest.mark.parametrize("join", ["LEFT", "ANTI"])
    def test_a_condition_of_on_and_of_where_is_both(self, join: str) -> None:
        """Rows that WHERE rejects would be given without a partner, if it were taken for the same as in ON."""
        both = "COALESCE(r.b, s.b) = 1"
        sql = f"(r FULL JOIN s ON r.a = s.a) {join} JOIN t ON r.a = t.a AND {both} WHERE {both}"
        _, closing = apart(sql)
        assert both in tree(closing)
        assert [str(term) for term in closing.where] == [both]

    def test_a_condition_on_padded_rows_waits_for_them(self) -> None:
        """The anti join of those without IS NULL would be empty if it were a filter."""
        core, closing = apart("r LEFT JOIN s ON r.a = s.a WHERE s.a IS NULL")
        assert core.filters == ()
        assert [str(term) for term in closing.where] == ["s.a IS NULL"]

    @pytest.mark.parametrize(
        ("sql", "walked"),
        [
            (FULL_3, True),
            (NESTED, True),
            ("r LEFT JOIN s ON r.a < s.a", True),
            ("r SEMI JOIN s ON r.a = s.a", False),
            ("r ANTI JOIN s ON r.a = s.a", False),
            ("r LEFT JOIN s ON r.a = s.a AND r.b > 1", False),
            ("r LEFT JOIN s ON r.a = s.a WHERE s.a IS NULL", False),
            ("r LEFT JOIN s ON s.b > 1", False),
            (f"r {ONE} LEFT JOIN s ON r.a = s.a AND s.ts > r.ts + INTERVAL '2' SECOND", False),
        ],
    )
    def test_what_probing_finds(self, sql: str, walked: bool) -> None:
        """Full rows would come only with the end of their windows, or be found by probes that check too little."""
        assert apart(sql)[1].walked is walked

    def test_a_merged_key_is_the_key_where_nothing_is_missing(self) -> None:
        """With COALESCE in it, no store could be looked up, and a batch would compare all pairs."""
        core, closing = apart(FULL_3)
        assert [str(key) for key in core.keys] == ["r.a = s.a = t.a"]
        assert core.residuals == ()
        assert "COALESCE(r.a, s.a) = t.a" in tree(closing)

    def test_joins_are_numbered_from_above(self) -> None:
        """Waits are by these numbers, wherever they are used."""
        _, closing = apart(NESTED)
        assert [(n, join.kind, visible(join)) for n, join in joins(closing.tree)] == [
            (0, "left", ("r", "s", "t")),
            (1, "left", ("s", "t")),
        ]

    def test_what_cannot_be_closed_by_time_is_refused(self) -> None:
        """Rows would be padded though a partner came; the error says what to write instead."""
        with pytest.raises(QueryError, match=r"cannot be part of an outer(.|\n)*use a RANGE window"):
            core_and_closing(parse("r [ROWS 5] LEFT JOIN s ON r.a = s.a"))
        catalog = Catalog(tuple(Stream(name, SCHEMA, "ts", late="join") for name in "rs"))
        late = parse_query("SELECT r.a FROM r LEFT JOIN s ON r.a = s.a", catalog)
        with pytest.raises(QueryError, match=r"joins late tuples(.|\n)*late=\"drop\""):
            core_and_closing(late)

    def test_another_name_is_another_name_everywhere(self) -> None:
        """A query's part of a shared graph would be closed by the columns of somebody else."""
        _, closing = apart(FULL_3 + " WHERE r.b IS NULL OR s.b = t.b")
        names = {"r": "x", "s": "y", "t": "z"}
        other = closing.renamed(names)
        assert other.renamed({new: old for old, new in names.items()}) == closing
        assert frozenset().union(*map(aliases, other.conditions)) == set("xyz")


class TestTimes:
    """Too short a wait pads a row whose partner comes; too long a one holds results back, or keeps state for ever."""

    @pytest.mark.parametrize(
        ("sql", "expected"),
        [
            # A partner is inside r's window.
            (f"r {TEN} LEFT JOIN s {FOUR} ON r.a = s.a", {"0 r": 10}),
            (f"r {TEN} LEFT JOIN s ON r.a = s.a", {"0 r": 10}),
            (f"r LEFT JOIN s {FOUR} ON r.a = s.a", {"0 r": None}),
            (FULL, {"0 r": 10, "0 s": 4}),
            # t's partner may be an r, up to 1 s later, that for 10 s more may still be one with an s.
            (FULL_3, {"1 r": 10, "1 s": 4, "0 r": 10, "0 s": 4, "0 t": 11}),
            # r's partner is an s of up to 10 s later, and for 4 s more it may become one with another t.
            (NESTED, {"1 s": 4, "0 r": 14}),
            (f"r {TEN} LEFT JOIN (s LEFT JOIN t ON s.b = t.b) ON r.a = s.a", {"1 s": None, "0 r": None}),
            # Rows of two windows leave with the first that ends.
            (f"r {TEN} JOIN s {FOUR} ON r.a = s.a LEFT JOIN t ON s.b = t.b", {"0 r": 10, "0 s": 4}),
            (f"r {TEN} SEMI JOIN s {FOUR} ON r.a = s.a", {"0 r": 10}),
            (f"r {TEN} ANTI JOIN s {FOUR} ON r.a = s.a", {"0 r": 10}),
            (f"r {TEN} ANTI JOIN (s {FOUR} ANTI JOIN t ON s.b = t.b) ON r.a = s.a", {"1 s": 4, "0 r": 14}),
            # Event times in ON, of whatever spelling.
            (BAND, {"0 r": 7}),
            ("r LEFT JOIN s ON r.a = s.a AND s.ts = r.ts + INTERVAL '3' SECOND", {"0 r": 3}),
            ("r LEFT JOIN s ON r.a = s.a AND s.ts < r.ts", {"0 r": 0}),
            (f"r {ONE} LEFT JOIN s ON r.a = s.a AND s.ts < r.ts + INTERVAL '5' SECOND", {"0 r": 1}),
            # A bound in WHERE, or on something else than the event time, says nothing of when a partner comes.
            ("r LEFT JOIN s ON r.a = s.a AND r.b < s.b + 5", {"0 r": None}),
        ],
    )
    def test_waits(self, sql: str, expected: dict[str, float | None]) -> None:
        """How long after a tuple a partner can come, per join."""
        core, closing = apart(sql)
        found = {f"{number} {name}": wait for (number, name), wait in waits(core, closing.tree).items()}
        assert seconds(found) == expected

    @pytest.mark.parametrize(
        ("sql", "expected"),
        [
            # An s is a partner of r's up to 4 s later, and these are looked at when their 10 s are over.
            (f"r {TEN} LEFT JOIN s {FOUR} ON r.a = s.a", {"r": 10, "s": 14}),
            (f"r {TEN} LEFT JOIN s ON r.a = s.a", {"r": 10, "s": None}),
            (FULL, {"r": 14, "s": 14}),
            # r: a t of 10 s later, which waits 11 s; s: a t of 4 s later.
            (FULL_3, {"r": 21, "s": 15, "t": 11}),
            (NESTED, {"r": 14, "s": 18, "t": None}),
            (f"r {TEN} SEMI JOIN s {FOUR} ON r.a = s.a", {"r": 10, "s": 14}),
            (f"r {TEN} ANTI JOIN (s {FOUR} ANTI JOIN t {ONE} ON s.b = t.b) ON r.a = s.a",
             {"r": 14, "s": 18, "t": 19}),
            # An s is at most 3 s older than its r, which waits 7 s.
            (BAND, {"r": 7, "s": 10}),
            ("r LEFT JOIN s ON r.a = s.a AND s.ts = r.ts + INTERVAL '3' SECOND", {"r": 3, "s": 0}),
        ],
    )  # fmt: skip
    def test_spans(self, sql: str, expected: dict[str, float | None]) -> None:
        """A partner that is forgotten before the row it is for is looked at leaves that row padded."""
        core, closing = apart(sql)
        assert seconds(spans(core, closing.tree)) == expected

    @pytest.mark.parametrize(
        ("sql", "expected"),
        [
            (f"r {TEN} LEFT JOIN s {FOUR} ON r.a = s.a", {"r": 4, "s": 10}),
            (FULL_3, {"r": 4, "s": 10, "t": 10}),
            (NESTED, {"r": None, "s": None, "t": 10}),
            (f"r {TEN} ANTI JOIN (s {FOUR} ANTI JOIN t ON s.b = t.b) ON r.a = s.a",
             {"r": None, "s": None, "t": 14}),
            (BAND, {"r": 3, "s": 7}),
        ],
    )  # fmt: skip
    def test_reaches(self, sql: str, expected: dict[str, float | None]) -> None:
        """A query that comes later would pad rows whose partner was forgotten before it came."""
        core, closing = apart(sql)
        assert seconds(reaches(core, closing.tree)) == expected

    @pytest.mark.parametrize(
        ("sql", "expected"),
        [
            ("r LEFT JOIN s ON r.a = s.a", "r"),
            (f"r {TEN} LEFT JOIN s ON r.a = s.a", ""),
            (BAND, ""),
            ("r SEMI JOIN s ON r.a = s.a", ""),
            ("r ANTI JOIN s ON r.a = s.a", "r"),
            ("r FULL JOIN s ON r.a = s.a", "rs"),
            (f"r {TEN} FULL JOIN s ON r.a = s.a", "s"),
            (f"r {TEN} JOIN s ON r.a = s.a LEFT JOIN t ON s.b = t.b", ""),
            (f"r {TEN} LEFT JOIN s ON r.a = s.a LEFT JOIN t ON s.b = t.b", ""),
            (f"r LEFT JOIN s {FOUR} ON r.a = s.a LEFT JOIN t ON s.b = t.b", "r"),
            (f"r {TEN} LEFT JOIN (s LEFT JOIN t ON s.b = t.b) ON r.a = s.a", "rs"),
            (f"r {TEN} LEFT JOIN (s SEMI JOIN t ON s.b = t.b) ON r.a = s.a", "r"),
            (FULL_3, ""),
        ],
    )
    def test_what_is_never_closed(self, sql: str, expected: str) -> None:
        """A session would run for ever and never give these rows, and nobody would know."""
        core, closing = apart(sql)
        assert "".join(never_closed(core, closing.tree)) == expected
        if expected:
            with pytest.raises(QueryError, match=r"query q would never give(.|\n)*emit_unmatched_after"):
                check_closing(parse(sql), "q")
        else:
            check_closing(parse(sql), "q")


class TestPatience:
    """`emit_unmatched_after` must make every row leave, and change no window that was given."""

    @pytest.mark.parametrize(
        ("sql", "windowed"),
        [
            ("r LEFT JOIN s ON r.a = s.a", "r"),
            ("r FULL JOIN s ON r.a = s.a", "rs"),
            (f"r {TEN} FULL JOIN s ON r.a = s.a", "s"),
            ("r ANTI JOIN s ON r.a = s.a", "r"),
            (f"r {TEN} LEFT JOIN (s LEFT JOIN t ON s.b = t.b) ON r.a = s.a", "s"),
            (f"r {TEN} LEFT JOIN (s SEMI JOIN t ON s.b = t.b) ON r.a = s.a", "s"),
            ("r LEFT JOIN (s SEMI JOIN t ON s.b = t.b) ON r.a = s.a", "rs"),
            ("r ANTI JOIN (s ANTI JOIN t ON s.b = t.b) ON r.a = s.a", "rs"),
            (BAND, ""),
            (FULL_3, ""),
        ],
    )
    def test_who_gets_a_window(self, sql: str, windowed: str) -> None:
        """Those whose rows would wait for ever, and those on whose partners these depend."""
        before = parse(sql)
        after = limit_waiting(before, HOUR)
        given = {i.alias: i.window for i in before.inputs}
        changed = "".join(i.alias for i in after.inputs if i.window != given[i.alias])
        assert changed == windowed
        assert all(str(after.input(name).window) == "RANGE 1 HOUR" for name in changed)
        assert all("UNBOUNDED" in str(given[name]) for name in changed)
        check_closing(after, "q")

    def test_an_inner_query_stays_as_it_is(self) -> None:
        """A window would lose results that it was never meant to lose."""
        query = parse("r, s WHERE r.a = s.a")
        assert limit_waiting(query, HOUR) == query


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        (f"r {TEN} LEFT JOIN s USING (a)", "r [RANGE 10 SECONDS] LEFT OUTER JOIN s ON r.a = s.a"),
        ("s RIGHT JOIN r ON r.a = s.a", "r LEFT OUTER JOIN s ON r.a = s.a"),
        ("r FULL JOIN s USING (a) FULL JOIN t USING (a)",
         "r FULL OUTER JOIN s ON r.a = s.a FULL OUTER JOIN t ON COALESCE(r.a, s.a) = t.a"),
        ("r ANTI JOIN (s SEMI JOIN t ON s.b < t.b) ON r.a = s.a",
         "r ANTI JOIN (s SEMI JOIN t ON s.b < t.b) ON r.a = s.a"),
        ("r LEFT JOIN s ON r.a = s.a WHERE s.a IS NULL", "r LEFT OUTER JOIN s ON r.a = s.a WHERE s.a IS NULL"),
    ],
)  # fmt: skip
def test_a_query_prints_as_it_is_understood(sql: str, expected: str) -> None:
    """Explain and error messages show this text; it must be the query, in a form that can be asked again."""
    text = str(parse_query(f"SELECT r.b FROM {sql}", CATALOG))
    assert text == f"SELECT r.b AS b FROM {expected}"
    assert str(parse_query(text, CATALOG)) == text
