"""Every mistake is shown where it is, with a remedy: whole messages, so that the carets can be seen."""

from __future__ import annotations

from textwrap import dedent

import pytest
from tests.unit.sql.samples import CATALOG

from weft.errors import SqlError
from weft.logical.catalog import Catalog
from weft.logical.expr.functions import similar_functions
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_query
from weft.sql.builder import select


def refusal(sql: str) -> str:
    with pytest.raises(SqlError) as caught:
        parse_query(sql, CATALOG)
    return str(caught.value)


def check(sql: str, expected: str) -> None:
    assert refusal(sql) == dedent(expected).strip("\n")


def test_unknown_stream() -> None:
    """A typo in a stream's name would leave the user guessing."""
    check(
        "SELECT v.vid FROM vidoes [ROWS 5] AS v",
        """
        SQL: there is no stream vidoes
        1 | SELECT v.vid FROM vidoes [ROWS 5] AS v
                              ^^^^^^
        hint: did you mean videos? There are: comments, videos, views
        """,
    )


def test_unknown_column() -> None:
    """A typo in a column's name would leave the user guessing."""
    check(
        "SELECT c.text\nFROM comments c,\n     views w\nWHERE c.uid = w.uid AND c.txet = 'x'",
        """
        SQL: c has no column txet
        4 | WHERE c.uid = w.uid AND c.txet = 'x'
                                      ^^^^
        hint: did you mean text? There are: text, ts, uid
        """,
    )
    check(
        "SELECT txt FROM comments JOIN views USING (uid)",
        """
        SQL: there is no column txt
        1 | SELECT txt FROM comments JOIN views USING (uid)
                   ^^^
        hint: did you mean text? There are: duration, name, text, ts, uid, vid
        """,
    )


def test_unknown_qualifier() -> None:
    """A stream's own name, hidden by its alias, would be reported as missing without a reason."""
    check(
        "SELECT videos.vid FROM videos v",
        """
        SQL: there is no videos in FROM
        1 | SELECT videos.vid FROM videos v
                   ^^^^^^
        hint: it goes by the name v here
        """,
    )
    check(
        "SELECT x.* FROM videos v",
        """
        SQL: there is no x in FROM
        1 | SELECT x.* FROM videos v
                   ^
        hint: there are: v
        """,
    )


def test_ambiguous_column() -> None:
    """One of two columns would be taken without a word."""
    check(
        "SELECT VID FROM videos v JOIN views w ON v.vid = w.vid",
        """
        SQL: column VID is ambiguous
        1 | SELECT VID FROM videos v JOIN views w ON v.vid = w.vid
                   ^^^
        hint: write v.vid or w.vid
        """,
    )


def test_duplicate_alias() -> None:
    """Two streams of one name would be mixed up."""
    check(
        "SELECT 1 FROM views AS w, comments W WHERE w.uid = W.uid",
        """
        SQL: two streams go by the name W
        1 | SELECT 1 FROM views AS w, comments W WHERE w.uid = W.uid
                                               ^
        hint: name one with AS
        """,
    )


def test_two_results_of_one_name() -> None:
    """One column of the result would overwrite another."""
    check(
        "SELECT vid AS a, likes AS A FROM videos",
        """
        SQL: columns 1 and 2 of the result are both called A: videos.vid and videos.likes
        1 | SELECT vid AS a, likes AS A FROM videos
                                      ^
        hint: name one with AS, as in videos.likes AS A_2
        """,
    )
    check(
        "SELECT vid, vid FROM videos",
        """
        SQL: columns 1 and 2 of the result are both called videos_vid: both are videos.vid
        1 | SELECT vid, vid FROM videos
                        ^^^
        hint: leave one out, or name one with AS, as in videos.vid AS videos_vid_2
        """,
    )


def test_type_mismatch() -> None:
    """A comparison that can never be true would run for ever."""
    check(
        "SELECT 1 FROM videos v WHERE v.ok AND (v.ts = v.vid OR v.ok)",
        """
        SQL: cannot compare timestamp with long: v.ts = v.vid
        1 | SELECT 1 FROM videos v WHERE v.ok AND (v.ts = v.vid OR v.ok)
                                                   ^^^^^^^^^^^^
        hint: CAST one side to the type of the other
        """,
    )
    check(
        "SELECT year(likes) FROM videos",
        """
        SQL: year does not work on int: videos.likes
        1 | SELECT year(likes) FROM videos
                   ^^^^^^^^^^^
        hint: it takes (time)
        """,
    )
    check(
        "SELECT 1 FROM videos WHERE ts < '2024-13-01'",
        """
        SQL: '2024-13-01' is not a timestamp
        1 | SELECT 1 FROM videos WHERE ts < '2024-13-01'
                                       ^^^^^^^^^^^^^^^^^
        hint: write it as in '2024-03-01 12:30:00'
        """,
    )


def test_where_that_is_no_condition() -> None:
    """A number would be taken for true."""
    check(
        "SELECT 1 FROM videos WHERE ok AND likes + 1",
        """
        SQL: WHERE needs a condition, and videos.likes + 1 is a int
        1 | SELECT 1 FROM videos WHERE ok AND likes + 1
                                              ^^^^^^^^^
        hint: compare it with something
        """,
    )


@pytest.mark.parametrize("never", ["FALSE", "NULL", "1 = NULL", "2 < 1", "NOT TRUE", "'a' IN ('b', 'c')"])
def test_never_true(never: str) -> None:
    """A query whose answer is defined, and empty, would be refused, or its condition be forgotten."""
    query = parse_query(f"SELECT 1 FROM videos WHERE ok AND {never}", CATALOG)
    assert query.filters == parse_query(f"SELECT 1 FROM videos WHERE ok AND {never}", CATALOG).filters
    assert len(query.filters) == 2
    joined = parse_query(f"SELECT 1 FROM videos v JOIN views w ON v.vid = w.vid AND {never}", CATALOG)
    assert "$present" in str(joined)


def test_contradictory_times() -> None:
    """A query that can have no results would keep state for them."""
    check(
        "SELECT 1 FROM videos a, videos b WHERE a.ts > b.ts + INTERVAL '10' SECOND AND b.ts > a.ts",
        """
        SQL: no tuples can satisfy the windows and the conditions on the event times of a and b
        1 | SELECT 1 FROM videos a, videos b WHERE a.ts > b.ts + INTERVAL '10' SECOND AND b.ts > a.ts
                                                   ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        hint: they say that a is not after b, and that b is at least 10 SECONDS before a
        """,
    )


def test_cross_product() -> None:
    """A forgotten predicate would be noticed by the full disk."""
    check(
        "SELECT v.vid FROM videos v, views AS w, comments c WHERE w.uid = c.uid",
        """
        SQL: cross product: nothing joins w with v
        1 | SELECT v.vid FROM videos v, views AS w, comments c WHERE w.uid = c.uid
                                                 ^
        hint: add a predicate between them, or say CROSS JOIN if every pair is wanted
        """,
    )


def test_outer_join_without_condition() -> None:
    """Every tuple would find a partner, and nothing be padded."""
    check(
        "SELECT v.vid FROM videos v LEFT JOIN views w",
        """
        SQL: cross product: nothing joins w with v
        1 | SELECT v.vid FROM videos v LEFT JOIN views w
                                                       ^
        hint: add a predicate between them, or give cross=True if every pair is wanted
        """,
    )


def test_outer_join_of_every_pair() -> None:
    """Every pair would be joined though nobody asked for that."""
    check(
        "SELECT v.vid FROM videos v LEFT JOIN views w ON TRUE",
        """
        SQL: cross product: nothing joins w with v
        1 | SELECT v.vid FROM videos v LEFT JOIN views w ON TRUE
                                                       ^
        hint: add a predicate between them, or give cross=True if every pair is wanted
        """,
    )
    built = select("v.vid").from_("videos", alias="v").join("views", alias="w", kind="left")
    with pytest.raises(SqlError, match="LEFT JOIN needs a condition"):
        built.build(CATALOG)
    built = select("v.vid").from_("videos", alias="v").join("views", alias="w", kind="left", on="TRUE")
    with pytest.raises(SqlError, match="nothing joins w with v") as caught:
        built.build(CATALOG)
    assert caught.value.hint == "add a predicate between them, or call .cross() if every pair is wanted"
    assert built.cross().build(CATALOG).cross


def test_on_out_of_sight() -> None:
    """ON could name a stream that its outer join does not bring together."""
    check(
        "SELECT 1 FROM videos v LEFT JOIN views w ON w.uid = c.uid LEFT JOIN comments c ON v.ts = c.ts",
        """
        SQL: c cannot be seen here
        1 | SELECT 1 FROM videos v LEFT JOIN views w ON w.uid = c.uid LEFT JOIN comments c ON v.ts = c.ts
                                                                ^
        hint: ON sees only the streams that its own join brings together
        """,
    )


def test_what_a_semi_join_looks_for_is_out_of_sight() -> None:
    """One of several partners would be shown, or none at all."""
    check(
        "SELECT v.vid, w.uid FROM videos v SEMI JOIN views w USING (vid)",
        """
        SQL: w cannot be seen here
        1 | SELECT v.vid, w.uid FROM videos v SEMI JOIN views w USING (vid)
                          ^
        hint: a SEMI or ANTI JOIN asks whether its right side has a partner, and gives none of its columns
        """,
    )
    check(
        "SELECT vid FROM videos v ANTI JOIN views w USING (vid) WHERE duration > 3",
        """
        SQL: duration cannot be seen here
        1 | SELECT vid FROM videos v ANTI JOIN views w USING (vid) WHERE duration > 3
                                                                         ^^^^^^^^
        hint: a SEMI or ANTI JOIN asks whether its right side has a partner, and gives none of its columns
        """,
    )
    check(
        "SELECT vid FROM videos v SEMI JOIN views w USING (vid) LEFT JOIN comments c ON w.uid = c.uid",
        """
        SQL: w cannot be seen here
        1 | SELECT vid FROM videos v SEMI JOIN views w USING (vid) LEFT JOIN comments c ON w.uid = c.uid
                                                                                           ^
        hint: a SEMI or ANTI JOIN asks whether its right side has a partner, and gives none of its columns
        """,
    )


@pytest.mark.parametrize("join", ["SEMI JOIN views w", "JOIN views w", "ANTI JOIN views w"])
def test_provenance_where_no_tuple_can_be_missing(join: str) -> None:
    """A name that means something only in outer joins would be taken for a column that is missing."""
    with pytest.raises(SqlError, match="there is no column provenance"):
        parse_query(f"SELECT provenance FROM videos v {join} USING (vid)", CATALOG)


def test_semi_joins_have_one_direction() -> None:
    """The mirrored word would be refused without a way out."""
    check(
        "SELECT v.vid FROM videos v RIGHT ANTI JOIN views w USING (vid)",
        """
        SQL: RIGHT ANTI JOIN is not supported
        1 | SELECT v.vid FROM videos v RIGHT ANTI JOIN views w USING (vid)
                                       ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
        hint: write ANTI JOIN, and the stream whose rows are wanted to its left
        """,
    )


# Windows


@pytest.mark.parametrize(
    ("window", "message", "hint"),
    [
        ("[RANGE 0 SECONDS]", "a window of 0:00:00 makes no sense", "a RANGE is longer than nothing"),
        ("[RANGE 5 BANANAS]", "cannot read '5 BANANAS' as a duration", "as in 10 MINUTES"),
        ("[RANGE -5 SECONDS]", "cannot read '-5 SECONDS' as a duration", "as in 10 MINUTES"),
        ("[RANGE 200000 DAYS]", "a window of 200000 days, 0:00:00 makes no sense", "at most 100000 days"),
        ("[RANGE 0.0000001 SECONDS]", "'0.0000001 SECONDS' is finer than a microsecond", "microseconds"),
        ("[RANGE]", "cannot read '' as a duration", "as in 10 MINUTES"),
        ("[ROWS 0]", "a window of 0 rows makes no sense", "1 or more"),
        (
            "[ROWS 9999999999999999999]",
            "a window of 9999999999999999999 rows makes no sense",
            "less than 2⁶³",
        ),
        ("[ROWS -5 PER geo]", "cannot read '-5' as a number of rows", "ROWS 1000"),
        ("[ROWS 0 PER geo]", "a window of 0 rows makes no sense", "1 or more"),
        ("[ROWS PER geo]", "cannot read '' as a number of rows", "ROWS 1000"),
        ("[ROWS 1.5]", "cannot read '1.5' as a number of rows", "ROWS 1000"),
        ("[ROWS 99999999999999999999]", "cannot read '99999999999999999999' as a number", "ROWS 1000"),
        (
            "[UNBOUNDED 5]",
            "cannot read the window [UNBOUNDED 5]",
            "[RANGE 10 MINUTES], [ROWS 1000], [ROWS 10 PER symbol] or [UNBOUNDED]",
        ),
        (
            "[5 MINUTES]",
            "cannot read the window [5 MINUTES]",
            "[RANGE 10 MINUTES], [ROWS 1000], [ROWS 10 PER symbol] or [UNBOUNDED]",
        ),
        (
            "[]",
            "cannot read the window []",
            "[RANGE 10 MINUTES], [ROWS 1000], [ROWS 10 PER symbol] or [UNBOUNDED]",
        ),
    ],
)
def test_windows_that_make_no_sense(window: str, message: str, hint: str) -> None:
    """State would be kept for ever, or not at all."""
    lines = refusal(f"SELECT v.vid FROM videos {window} v").split("\n")
    assert lines[0].startswith(f"SQL: {message}")
    assert lines[2] == " " * 29 + "^" * len(window)
    assert hint in lines[3]


@pytest.mark.parametrize(
    ("window", "at", "message", "hint"),
    [
        ("[ROWS 5 PER goe]", "goe", "videos has no column goe to count per", "did you mean geo?"),
        ("[ROWS 5 PER geo, vd]", "vd", "videos has no column vd to count per", "did you mean vid?"),
        ("[RANGE 5 MINUTES PER geo]", "PER", "a window of RANGE is the same for every key", "leave out PER"),
        ("[UNBOUNDED PER geo]", "PER", "a window of UNBOUNDED is the same for every key", "leave out PER"),
        ("[ROWS 5 PER]", "PER", "a column is missing after PER", "[ROWS 10 PER symbol]"),
        ("[ROWS 5 PER geo,]", ",", "a column is missing after ,", "[ROWS 10 PER symbol]"),
        ("[ROWS 5 PER v.geo]", ".", "PER takes columns of the stream", "names alone"),
        ("[ROWS 5 PER lower(geo)]", "(", "PER takes columns of the stream", "names alone"),
        ("[ROWS 5 PER 'geo']", "'geo'", "geo is no column", "the name of a column"),
        ("[ROWS 5 PER 7]", "7", "7 is no column", "the name of a column"),
    ],
)
def test_what_cannot_be_counted_per(window: str, at: str, message: str, hint: str) -> None:
    """Tuples would be counted otherwise than was asked for, and the answer be another."""
    lines = refusal(f"SELECT v.vid FROM videos {window} v").split("\n")
    assert lines[0] == f"SQL: {message}"
    assert lines[2] == " " * (29 + window.rindex(at)) + "^" * len(at)
    assert hint in lines[3]


def test_misplaced_windows() -> None:
    """A window behind the alias would be ignored."""
    check(
        "SELECT v.vid FROM videos v [RANGE 5 SECONDS]",
        """
        SQL: a window stands right after the name of a stream in FROM
        1 | SELECT v.vid FROM videos v [RANGE 5 SECONDS]
                                       ^^^^^^^^^^^^^^^^^
        hint: write FROM videos [RANGE 10 MINUTES] AS v
        """,
    )
    check(
        "SELECT title[0] FROM videos",
        """
        SQL: [ ] does not work on string and int: videos.title, 0
        1 | SELECT title[0] FROM videos
                   ^^^^^^^^
        hint: it takes an element of an array, or a value of a map
        """,
    )
    assert "a window stands right after" in refusal("SELECT 1 FROM videos [ROWS 1] [ROWS 2]")
    assert "a window stands right after" in refusal("SELECT vid [ROWS 1] FROM videos")
    assert "right after a list or a map" in refusal("SELECT [1, 2] FROM videos")


# Places


def test_caret_in_the_middle_of_lines() -> None:
    """With tabs, wide characters or accents before it, the caret would stand under the wrong word."""
    check(
        "SELECT '日本', 'e\u0301',\tnosuch\r\nFROM videos",
        f"""
        SQL: there is no column nosuch
        1 | SELECT '日本', 'e\u0301', nosuch
                                ^^^^^^
        hint: {refusal("SELECT nosuch FROM videos").rpartition("hint: ")[2]}
        """,
    )
    assert refusal("\n\n\tSELECT 1\n\tFROM\tnosuch").split("\n")[1:3] == [
        "4 |  FROM nosuch",
        "          ^^^^^^",
    ]


def test_caret_in_long_lines() -> None:
    """The caret would be somewhere far to the right of the screen."""
    columns = ", ".join(f"vid AS a{i}" for i in range(500))
    lines = refusal(f"SELECT {columns}, nosuch, {columns} FROM videos").split("\n")
    assert len(lines[1]) < 200
    start = lines[2].index("^")
    assert lines[1][start : start + lines[2].count("^")] == "nosuch"


def test_culprit_over_several_lines() -> None:
    """Carets would run past the end of the line."""
    check(
        "SELECT 1 FROM videos WHERE ts =\n  vid",
        """
        SQL: cannot compare timestamp with long: videos.ts = videos.vid
        1 | SELECT 1 FROM videos WHERE ts =
                                       ^^^^
        hint: CAST one side to the type of the other
        """,
    )


# Syntax


@pytest.mark.parametrize(
    ("sql", "message", "culprit"),
    [
        ("", "there is no query", ""),
        ("SELECT", "something is missing after SELECT", "SELECT"),
        ("SELECT 1", "FROM is missing here, after the columns", ""),
        ("SELECT v.vid, lower(v.title) ", "FROM is missing here, after the columns", " "),
        ("SELECT vid, FROM videos", "something is missing after ,", ","),
        ("SELECT lower(, title) FROM videos", "something is missing after (", "("),
        ("SELECT vid FROM videos WHERE", "something is missing after WHERE", "WHERE"),
        ("SELECT 1 FROM videos v JOIN views w ON WHERE v.ok", "something is missing after ON", "ON"),
        ("SELECT (vid FROM videos", "this ( is never closed", "("),
        ("SELECT vid) FROM videos", "nothing is open that ) could close", ")"),
        ("SELECT vid FROM videos [ROWS 5 v", "this [ is never closed", "["),
        ("SELECT 'abc, 5 FROM videos", "cannot read the text from here", "'"),
        ("SELECT 5 /* x FROM videos", "cannot read the text from here", "/"),
        ("SELECT vid vid vid FROM videos", "cannot make sense of vid", "vid"),
        ("SELECT vid FROM videos WHERE vid = = 3", "cannot make sense of =", "="),
        ("SELECT vid BETWEEN 1 2 FROM videos", "BETWEEN needs AND", "vid BETWEEN 1 2"),
        ("SELECT CASE WHEN ok vid END FROM videos", "WHEN needs THEN", "CASE WHEN ok vid END"),
        ("SELECT CASE WHEN ok THEN 1 FROM videos", "END is missing near 1", "1"),
        ("SELECT CAST(vid BIGINT) FROM videos", "AS is missing near BIGINT", "BIGINT"),
        ("SELECT vid IN () FROM videos", "IN needs a list", "vid IN ()"),
        ("SELECT vid FROM videos; SELECT 1", "there is more than one statement", "SELECT"),
    ],
)
def test_syntax(sql: str, message: str, culprit: str) -> None:
    """A slip of the pen would be answered with the parser's own words, or be overlooked."""
    with pytest.raises(SqlError) as caught:
        parse_query(sql, CATALOG)
    assert caught.value.message == message
    assert sql[caught.value.start : caught.value.end] == culprit


# What there is not


@pytest.mark.parametrize(
    ("sql", "name", "culprit"),
    [
        ("SELECT vid FROM videos QUALIFY ok", "QUALIFY is", "QUALIFY ok"),
        ("SELECT vid FROM videos EXCEPT ALL SELECT 1", "EXCEPT ALL is", "EXCEPT ALL SELECT 1"),
        ("SELECT vid FROM videos INTERSECT ALL SELECT 1", "INTERSECT ALL is", "INTERSECT ALL SELECT 1"),
        (
            "SELECT 1 FROM videos WHERE vid = (SELECT vid FROM views)",
            "a sub-select as a value is",
            "(SELECT vid FROM views)",
        ),
        ("SELECT row_number() OVER () FROM videos", "a window function (OVER) is", "row_number() OVER ()"),
        (
            "SELECT 1 FROM videos v RIGHT SEMI JOIN views w ON v.ok",
            "RIGHT SEMI JOIN is",
            "RIGHT SEMI JOIN views w ON v.ok",
        ),
        (
            "SELECT 1 FROM videos v FULL ANTI JOIN views w ON v.ok",
            "FULL ANTI JOIN is",
            "FULL ANTI JOIN views w ON v.ok",
        ),
        ("SELECT 1 FROM videos v OUTER JOIN views w ON v.ok", "OUTER JOIN is", "OUTER JOIN views w ON v.ok"),
        ("SELECT 1 FROM videos LATERAL VIEW explode(a) b", "LATERAL VIEW is", "LATERAL VIEW explode(a) b"),
        ("SELECT /*+ BROADCAST(v) */ 1 FROM videos v", "a hint is", "/*+ BROADCAST(v) */"),
        ("SELECT 1 FROM videos TABLESAMPLE (5 PERCENT)", "TABLESAMPLE is", "TABLESAMPLE (5 PERCENT)"),
        ("SELECT 1 FROM videos PIVOT (max(a) FOR b IN (1))", "PIVOT is", "PIVOT (max(a) FOR b IN (1))"),
        ("SELECT 1 FROM r('sliding', '1', 'minutes')", "a table function is", "r('sliding', '1', 'minutes')"),
        ("SELECT 1 FROM VALUES (1) v", "VALUES is", "VALUES (1) v"),
        ("SELECT 1 FROM videos WHERE vid = ?", "a parameter is", "?"),
        ("SELECT 1 FROM videos WHERE vid = :id", "a parameter is", ":id"),
        ("SELECT 1 FROM videos WHERE vid = ${id}", "a parameter is", "${id}"),
        ("SELECT title -> 'a' FROM videos", "access to JSON is", "title -> 'a'"),
        ("SELECT (vid, likes) FROM videos", "a list in parentheses is", "(vid, likes)"),
        ("SELECT TRY_CAST(vid AS INT) FROM videos", "TRY_CAST is", "TRY_CAST(vid AS INT)"),
        ("SELECT current_date FROM videos", "CURRENT_DATE is", "current_date"),
        ("SELECT now() FROM videos", "now is", "now()"),
        ("SELECT vid FROM videos |> LIMIT 3", "|> (the pipe syntax) is", "|>"),
    ],
)
def test_refused_by_name(sql: str, name: str, culprit: str) -> None:
    """A clause that Weft does not have would be dropped without a word, and the result be wrong."""
    with pytest.raises(SqlError) as caught:
        parse_query(sql, CATALOG)
    assert caught.value.message == f"{name} not supported"
    assert sql[caught.value.start : caught.value.end] == culprit


@pytest.mark.parametrize(
    "word", ["INSERT", "CREATE", "DROP", "EXPLAIN", "SET", "VALUES", "FROM", "UPDATE", "MERGE"]
)
def test_other_statements(word: str) -> None:
    """A statement that changes something would be run, or be logged on the console."""
    assert refusal(f"{word} x y z").startswith(f"SQL: a query starts with SELECT, not with {word}\n")


@pytest.mark.parametrize(
    ("expression", "message", "hint"),
    [
        ("lowr(title)", "there is no function lowr", "did you mean lower?"),
        (
            "neg(vid)",
            "there is no function neg",
            similar_functions("neg"),
        ),
        ("lower(title, geo)", "lower takes 1 argument, not 2: lower(videos.title, videos.geo)", ""),
        ("CAST(vid AS ARRAY<INT>)", "there is no type ARRAY<INT>", "cast to a type"),
        ("CAST(vid AS DECIMAL(50,2))", "decimal(50,2) is not a type", "precision is 1 to 38"),
        ("CAST(ts AS BOOLEAN)", "cannot cast videos.ts from timestamp to boolean", ""),
        (
            "ts + INTERVAL '1' MONTH",
            "INTERVAL 1 MONTH: months and years differ in length",
            "add_months(x, n) + (x - CAST(x AS DATE))",
        ),
        (
            "ts + INTERVAL '2 years'",
            "INTERVAL 2 YEARS: months and years differ in length",
            "add_months(x, n) + (x - CAST(x AS DATE))",
        ),
        ("ts + INTERVAL vid SECOND", "INTERVAL takes a constant", "multiply"),
        ("ts + INTERVAL '1 2' DAY TO HOUR", "an INTERVAL has one unit", "add two intervals"),
        ("ts + INTERVAL '5 bananas'", "cannot read '5 BANANAS' as a duration", "as in 10 MINUTES"),
        ("ts + INTERVAL '--5' SECOND", "cannot read '--5 SECOND' as a duration", "as in 10 MINUTES"),
        (
            "ts + INTERVAL '0.0000004' SECOND",
            "'0.0000004 SECOND' is finer than a microsecond",
            "times have microseconds",
        ),
        (
            "9007199254740993.0",
            "9007199254740993.0 has more digits than a double, which would be 9007199254740992.0",
            "leave out the point",
        ),
        ("99999999999999999999", "99999999999999999999 does not fit in 64 bits", ""),
        ("-9223372036854775809", "-9223372036854775809 does not fit in 64 bits", ""),
        ("1e999", "inf is not a constant", "write CAST('inf' AS DOUBLE)"),
        ("vid & 1 | 2", "&, ^ and | are mixed", "write parentheses, as in (x & y) | z"),
        (
            "title RLIKE '(a)(?=b)'",
            "the pattern '(a)(?=b)' has a group that looks ahead or behind, which is not supported",
            "register a function of your own that matches it: session.function",
        ),
        ("regexp_replace(title, 'a*', 'b')", "the pattern 'a*' also matches nothing", "use + in place of *"),
        ("regexp_extract(title, 'a')", "the pattern 'a' has no group 1", "0 is the whole match"),
        ("date_trunc(title, ts)", "date_trunc needs a constant: videos.title", "write the value itself"),
    ],
)
def test_expressions(expression: str, message: str, hint: str) -> None:
    """An expression that cannot be computed would fail in the middle of the night instead of at once."""
    with pytest.raises(SqlError) as caught:
        parse_query(f"SELECT {expression} FROM videos", CATALOG)
    assert caught.value.message == message
    assert hint in (caught.value.hint or "")


def test_too_deep() -> None:
    """A generated query could end the session."""
    nested = "(" * 500 + "vid" + ")" * 500
    assert "nested too deeply" in refusal(f"SELECT {nested} FROM videos")
    assert "nested more than 100 deep" in refusal(f"SELECT {' + '.join(['vid'] * 150)} FROM videos")
    joins = " ".join(f"JOIN views w{i}" for i in range(50))
    assert "more than 8 JOINs without ON" in refusal(f"SELECT 1 FROM videos v {joins}")


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("SELECT b.{} FROM b", "select"),
        ("SELECT {} FROM b", "from"),
        ("SELECT {} FROM b", "end"),
        ("SELECT b.k, {} FROM b", "where"),
        ("SELECT b.k AS {} FROM b", "from"),
        ("SELECT b.k FROM b WHERE {} = 1", "from"),
    ],
)
def test_a_reserved_word_as_a_name_is_to_be_quoted(text: str, word: str) -> None:
    """Whose column is called as a word of SQL would have to guess how to name it."""
    columns = "k long, select long, from long, end long, where long"
    catalog = Catalog((Stream("b", Schema.parse(columns)),))
    with pytest.raises(SqlError) as caught:
        parse_query(text.format(word), catalog)
    assert caught.value.hint == f"if {word} is the name of a column, write `{word}`"
    parse_query(text.format(f"`{word}`"), catalog)


@pytest.mark.parametrize(
    "text", ["SELECT FROM b", "SELECT b.k FROM b WHERE", "SELECT b.k FROM b WHERE b.k ="]
)
def test_a_clause_that_lacks_something_is_taken_for_one(text: str) -> None:
    """Who forgot something would be told to quote a word."""
    with pytest.raises(SqlError, match="something is missing") as caught:
        parse_query(text, CATALOG)
    assert caught.value.hint is None
