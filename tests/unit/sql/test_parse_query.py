"""What the SQL front end understands, feature by feature."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.unit.sql.samples import CATALOG

from weft.errors import SqlError
from weft.logical.catalog import Catalog
from weft.logical.query.join_tree import Join
from weft.logical.query.query import Query
from weft.logical.query.window import UNBOUNDED, Range, Rows
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_predicate, parse_query


def parse(sql: str) -> Query:
    return parse_query(sql, CATALOG)


def where(condition: str) -> list[str]:
    """The filters that a condition on videos becomes."""
    return list(map(str, parse(f"SELECT v.vid FROM videos v WHERE {condition}").filters))


def names(sql: str) -> list[str]:
    return [output.name for output in parse(sql).projection]


# FROM


def test_windows() -> None:
    """State would be kept for the wrong time."""
    query = parse(
        "SELECT a.vid FROM videos [RANGE 10 MINUTES] AS a, videos[ROWS 1000] b, videos [UNBOUNDED] c, videos d"
        " WHERE a.vid = b.vid AND b.vid = c.vid AND c.vid = d.vid"
    )
    assert [input_.window for input_ in query.inputs] == [
        Range(timedelta(minutes=10)),
        Rows(1000),
        UNBOUNDED,
        UNBOUNDED,
    ]


@pytest.mark.parametrize(
    ("text", "per"),
    [
        ("ROWS 5 PER geo", ("geo",)),
        ("rows 5 per GEO , `vid`", ("geo", "vid")),
        ("ROWS 5 PER vid, geo, vid", ("geo", "vid")),
    ],
)
def test_windows_that_count_per_key(text: str, per: tuple[str, ...]) -> None:
    """Two spellings of one window would be two stores."""
    query = parse(f"SELECT geo FROM videos [{text}]")
    assert query.inputs[0].window == Rows(5, per)
    assert str(query.inputs[0]) == f"videos [ROWS 5 PER {', '.join(per)}]"


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("RANGE 1 HOUR 30 MINUTES", timedelta(minutes=90)),
        ("range 1.5 seconds", timedelta(milliseconds=1500)),
        ("\n RANGE\t10s ", timedelta(seconds=10)),
        ("RANGE 250 ms", timedelta(milliseconds=250)),
    ],
)
def test_spellings_of_durations(text: str, span: timedelta) -> None:
    """A window written as people write durations would be refused."""
    (input_,) = parse(f"SELECT vid FROM videos [{text}]").inputs
    assert input_.window == Range(span)


def test_brackets_in_strings_are_no_windows() -> None:
    """A harmless string would be read as a window."""
    query = parse("SELECT '[ROWS 0]' AS `[x]` FROM videos [ROWS 5] AS `a [b]` -- [RANGE 0 DAYS]")
    assert str(query) == "SELECT '[ROWS 0]' AS `[x]` FROM videos [ROWS 5] AS `a [b]`"


def test_ways_to_join() -> None:
    """The same join, written in another style, would run under another plan."""
    spellings = [
        "SELECT v.title FROM videos v, views w WHERE v.vid = w.vid",
        "SELECT v.title FROM videos v JOIN views w ON v.vid = w.vid",
        "SELECT v.title FROM views w INNER JOIN videos AS v ON w.vid = v.vid",
        "SELECT v.title FROM videos v JOIN views w USING (vid)",
        "SELECT title FROM videos v CROSS JOIN views w WHERE w.vid = v.vid AND TRUE",
        "SELECT v.TITLE FROM Videos v JOIN (views w) ON (v.vid = w.VID);",
        "select /* all */ v.title from videos v join views w where v.vid == w.vid -- done",
    ]
    assert len({parse(sql) for sql in spellings}) == 1


def test_transitive_equalities() -> None:
    """An n-way join on one key would be planned as several joins on different keys."""
    chain = parse("SELECT a.vid FROM videos a, videos b, videos c WHERE a.vid = b.vid AND b.vid = c.vid")
    star = parse("SELECT a.vid FROM videos a, videos b, videos c WHERE a.vid = b.vid AND a.vid = c.vid")
    assert chain == star
    assert [key.aliases for key in chain.keys] == [("a", "b", "c")]


def test_names_without_qualifier() -> None:
    """Users would have to qualify every column, even where there is only one of that name."""
    query = parse("SELECT title, name FROM videos, views WHERE videos.vid = views.vid AND likes > 3")
    assert [str(output) for output in query.projection] == ["videos.title AS title", "views.name AS name"]
    assert [str(expr) for expr in query.filters] == ["videos.likes > 3"]


def test_on_prefers_its_own_streams() -> None:
    """A name that is unique in its ON would be ambiguous because of a stream joined later."""
    query = parse("SELECT likes FROM videos v JOIN comments c ON uid > likes JOIN views w ON w.uid = c.uid")
    assert [str(expr) for expr in query.predicates] == ["CAST(v.likes AS BIGINT) < c.uid"]
    beyond = parse(
        "SELECT likes FROM comments c JOIN views w ON w.vid = v.vid JOIN videos v ON w.uid = c.uid"
    )
    assert [key.aliases for key in beyond.keys] == [("c", "w"), ("v", "w")]


def test_case_of_names() -> None:
    """Names typed in another case would not be found, or spoil the spelling of the result's columns."""
    query = parse("SELECT V.TiTlE FROM VIDEOS V")
    assert str(query) == "SELECT V.title AS title FROM videos AS V"
    assert str(parse("SELECT TITLE FROM VIDEOS")) == "SELECT videos.title AS title FROM videos"


def test_self_join_with_different_windows() -> None:
    """New tuples could not be joined with old ones of their own stream."""
    query = parse(
        "SELECT a.ts, b.ts FROM views [RANGE 1 MINUTE] a, views [ROWS 5] b WHERE a.uid = b.uid AND a.ts < b.ts"
    )
    assert [str(input_) for input_ in query.inputs] == ["views [RANGE 1 MINUTE] AS a", "views [ROWS 5] AS b"]


def test_predicates_by_the_number_of_their_inputs() -> None:
    """The optimiser would look for predicates in the wrong place."""
    query = parse(
        "SELECT v.vid FROM videos v, views w, comments c WHERE v.vid = w.vid AND w.uid = c.uid"
        " AND lower(v.title) = c.text AND v.geo = 'US' AND w.ts < c.ts AND v.likes + w.duration > length(c.text)"
    )
    assert [str(key) for key in query.keys] == ["c.text = LOWER(v.title)", "c.uid = w.uid", "v.vid = w.vid"]
    assert list(map(str, query.filters)) == ["v.geo = 'US'"]
    assert list(map(str, query.predicates)) == ["w.ts < c.ts"]
    assert list(map(str, query.residuals)) == ["CAST(LENGTH(c.text) AS DOUBLE) < v.likes + w.duration"]


# CROSS and OUTER


def test_cross_products() -> None:
    """A forgotten predicate would fill the disks, or a wanted cross product be impossible."""
    assert parse("SELECT v.vid FROM videos v CROSS JOIN views w").cross
    assert parse_query("SELECT v.vid FROM videos v, views w", CATALOG, cross=True).cross
    assert not parse("SELECT v.vid FROM videos v CROSS JOIN views w WHERE v.vid = w.vid").cross
    with pytest.raises(SqlError, match="nothing joins c with v, w"):
        parse("SELECT v.vid FROM videos v CROSS JOIN views w, comments c")


def test_outer_joins_keep_their_place() -> None:
    """Rows would be padded with NULLs on the wrong side."""
    query = parse(
        "SELECT v.vid FROM videos v LEFT JOIN (views w FULL OUTER JOIN comments c ON w.uid = c.uid AND w.ts < c.ts)"
        " ON v.vid = w.vid OR v.ok WHERE w.duration IS NULL"
    )
    assert isinstance(query.outer, Join)
    assert (query.outer.kind, query.outer.left, query.outer.aliases) == ("left", "v", ("v", "w", "c"))
    assert list(map(str, query.outer.on)) == ["v.ok OR v.vid = w.vid"]
    assert isinstance(query.outer.right, Join)
    assert query.outer.right.kind == "full"
    assert list(map(str, query.outer.right.on)) == ["c.uid = w.uid", "w.ts < c.ts"]
    assert list(map(str, query.filters)) == ["w.duration IS NULL"]
    assert query.keys == ()


def test_semi_and_anti_joins() -> None:
    """A partner would be shown that was only to exist, or its columns be taken for others."""
    query = parse(
        "SELECT * FROM videos v LEFT SEMI JOIN (views w ANTI JOIN comments c USING (uid)) USING (vid)"
    )
    assert isinstance(query.outer, Join)
    assert (query.outer.kind, query.aliases, query.visible) == ("semi", ("c", "v", "w"), ("v",))
    assert {output.name.split("_")[0] for output in query.projection} == {"v"}
    assert query == parse(str(query))
    assert "SEMI JOIN (views AS w ANTI JOIN comments AS c ON c.uid = w.uid) ON v.vid = w.vid" in str(query)
    words = "SELECT vid, ts FROM videos v {} JOIN views w ON v.vid = w.vid AND v.ts < w.ts"
    assert parse(words.format("SEMI")) == parse(words.format("LEFT SEMI"))
    assert parse(words.format("ANTI")) == parse(words.format("left anti"))


def test_nesting_without_parentheses() -> None:
    """Standard SQL's nested joins would be read in another order."""
    bare = parse(
        "SELECT v.vid FROM videos v LEFT JOIN views w JOIN comments c ON w.uid = c.uid ON v.vid = w.vid"
    )
    nested = parse(
        "SELECT v.vid FROM videos v LEFT JOIN (views w JOIN comments c ON w.uid = c.uid) ON v.vid = w.vid"
    )
    assert bare == nested


def test_comma_binds_less_tightly_than_join() -> None:
    """FROM a, b LEFT JOIN c would pad rows of a."""
    query = parse(
        "SELECT v.vid FROM comments c, videos v LEFT JOIN views w ON v.vid = w.vid WHERE c.uid = v.likes"
    )
    assert query.outer == Join("inner", "c", Join("left", "v", "w", query.outer.right.on), ())  # type: ignore[union-attr]
    assert "FROM comments AS c CROSS JOIN (videos AS v LEFT OUTER JOIN views AS w ON v.vid = w.vid)" in str(
        query
    )


def test_using_makes_one_column_of_two() -> None:
    """USING would leave its column ambiguous, or show NULL where the other side has a value."""
    assert str(parse("SELECT vid FROM videos v JOIN views w USING (vid)").projection[0]) == "v.vid AS vid"
    assert (
        str(parse("SELECT vid FROM videos v RIGHT JOIN views w USING (vid)").projection[0]) == "w.vid AS vid"
    )
    full = parse(
        "SELECT ts, vid FROM videos v FULL JOIN views w USING (vid, ts) LEFT JOIN comments c USING (ts)"
    )
    assert str(full.projection[0]) == "COALESCE(v.ts, w.ts) AS ts"
    assert full.outer is not None
    assert list(map(str, full.outer.on)) == ["COALESCE(v.ts, w.ts) = c.ts"]


def test_using_over_three_full_joins() -> None:
    """The key would be NULL in rows that only the third stream is in."""
    query = parse("SELECT ts FROM videos v FULL JOIN views w USING (ts) FULL JOIN comments c USING (ts)")
    assert str(query.projection[0]) == "COALESCE(COALESCE(v.ts, w.ts), c.ts) AS ts"
    assert query == parse(str(query))


def test_provenance() -> None:
    """Which streams a row comes from could only be guessed from its NULLs."""
    query = parse(
        "SELECT Provenance FROM comments c RIGHT JOIN videos v ON c.uid = v.vid SEMI JOIN views w ON v.vid = w.vid"
    )
    assert str(query.projection[0]) == (
        "SUBSTRING(CONCAT(CASE WHEN c.`$present` THEN ', c' ELSE '' END,"
        " CASE WHEN v.`$present` THEN ', v' ELSE '' END), 3) AS provenance"
    )
    assert query.columns_of("c") == (query.input("c").column("uid"), query.input("c").present)
    assert query.columns_of("w") == (query.input("w").column("vid"),)
    assert query == parse(str(query))
    filtered = parse("SELECT 1 FROM videos v FULL JOIN views w USING (vid) WHERE provenance = 'v'")
    assert {column.name for column in filtered.columns_of("v")} == {"vid", "$present"}


def test_a_column_called_provenance_is_that_column() -> None:
    """A stream's own column would be out of reach."""
    schema = Schema.parse("k long, provenance long")
    catalog = Catalog((Stream("r", schema), Stream("s", Schema.parse("k long"))))
    query = parse_query("SELECT provenance FROM r FULL JOIN s USING (k)", catalog)
    assert str(query.projection[0]) == "r.provenance AS provenance"


# SELECT


def test_names_of_results() -> None:
    """Columns of the result would change their names from version to version."""
    assert names("SELECT vid, likes + 1, lower(title) AS t, 1 FROM videos") == ["vid", "col_2", "t", "col_4"]
    assert names("SELECT v.vid, w.vid, name FROM videos v JOIN views w USING (vid)") == [
        "v_vid",
        "w_vid",
        "name",
    ]
    assert names("SELECT c.*, text FROM comments c") == ["c_uid", "c_text", "c_ts", "text"]
    assert names("SELECT * FROM comments x") == ["x_uid", "x_text", "x_ts"]
    assert names("SELECT v.vid, w.uid AS vid FROM videos v JOIN views w USING (vid)") == ["v_vid", "vid"]


def test_star_follows_from() -> None:
    """SELECT * would show the streams in an order that nobody wrote."""
    listed = names("SELECT * FROM views w JOIN comments c ON w.uid = c.uid")
    assert listed == ["w_vid", "w_uid", "w_name", "w_ts", "w_duration", "c_uid", "c_text", "c_ts"]


# Expressions


@pytest.mark.parametrize(
    ("written", "normal"),
    [
        ("likes BETWEEN 1 AND 5", ["v.likes <= 5", "v.likes >= 1"]),
        ("likes NOT BETWEEN 1 AND 5", ["v.likes < 1 OR v.likes > 5"]),
        ("score BETWEEN .5 AND 1", ["v.score <= 1.0", "v.score >= 0.5"]),
        ("geo IN ('US', 'DE', 'US')", ["v.geo IN ('DE', 'US')"]),
        ("geo NOT IN ('US', 'DE')", ["NOT (v.geo IN ('DE', 'US'))"]),
        ("geo IN ('US')", ["v.geo = 'US'"]),
        ("geo IN (title, 'US')", ["v.geo = 'US' OR v.geo = v.title"]),
        ("title NOT LIKE 'a%'", ["NOT (v.title LIKE 'a%')"]),
        ("title IS NOT NULL AND NOT geo IS NULL", ["NOT (v.geo IS NULL)", "NOT (v.title IS NULL)"]),
        ("NOT (likes > 3 AND geo <> 'US')", ["v.geo = 'US' OR v.likes <= 3"]),
        ("ok", ["v.ok"]),
        ("ok = TRUE OR NOT ok", ["NOT v.ok OR v.ok"]),
        ("1 = 1 AND ok AND 'a' < 'b' AND 1 IN (2, 1)", ["v.ok"]),
        ("1 = 2 OR ok", ["v.ok"]),
        ("if(ok, likes, 0) > 3", ["CASE WHEN v.ok THEN v.likes ELSE 0 END > 3"]),
        ("CASE geo WHEN 'US' THEN 1 END = 1", ["CASE WHEN v.geo = 'US' THEN 1 ELSE NULL END = 1"]),
        ("title || '!' || geo = 'x'", ["CONCAT(v.title, '!', v.geo) = 'x'"]),
        ("mod(vid, 2) = 1 AND vid % 2 = 1", ["v.vid % 2 = 1"]),
        ("nvl(substr(title, 2), ucase(geo)) = 'x'", ["COALESCE(SUBSTRING(v.title, 2), UPPER(v.geo)) = 'x'"]),
        ("CAST(vid AS STRING) = '5' OR vid::string = '5'", ["CAST(v.vid AS STRING) = '5'"]),
        ("vid = 5L", ["CAST(5 AS BIGINT) = v.vid"]),
        ("price > 1", ["CAST(1 AS DECIMAL(10,2)) < v.price"]),
        ("ts > '2024-01-01 12:00:00'", ["v.ts > TIMESTAMP '2024-01-01 12:00:00'"]),
        ("ts > TIMESTAMP '2024-01-01 12:00:00+02:00'", ["v.ts > TIMESTAMP '2024-01-01 10:00:00'"]),
        ("published = CAST('2024-01-01' AS DATE)", ["v.published = DATE '2024-01-01'"]),
        ("published < ts", ["CAST(v.published AS TIMESTAMP) < v.ts"]),
        ("ts - INTERVAL '5' SECOND < ts", ["v.ts - INTERVAL '5' SECOND < v.ts"]),
        ("ts - ts < INTERVAL 1 DAY 2 HOURS", ["v.ts - v.ts < INTERVAL '26' HOUR"]),
        ("ts - ts > INTERVAL '-1 hour 30 minutes'", ["v.ts - v.ts > INTERVAL '-30' MINUTE"]),
        ("ts - ts > INTERVAL '-1 day 2 hours'", ["v.ts - v.ts > INTERVAL '-22' HOUR"]),
        ("ts - ts > INTERVAL '1 day - 2 hours, +1.5 minutes'", ["v.ts - v.ts > INTERVAL '79290' SECOND"]),
        ("ts - ts > INTERVAL 2 WEEKS", ["v.ts - v.ts > INTERVAL '14' DAY"]),
        ("ts - ts > INTERVAL '0.1' SECOND", ["v.ts - v.ts > INTERVAL '100' MILLISECOND"]),
        (
            "published + INTERVAL '1' DAY = published",
            ["CAST(v.published + INTERVAL '1' DAY AS DATE) = v.published"],
        ),
        ("add_months(published, 1) < DATE '2024-01-01'", ["ADD_MONTHS(v.published, 1) < DATE '2024-01-01'"]),
        ("levenshtein(title, geo) <= 2", ["LEVENSHTEIN(v.title, v.geo) <= 2"]),
        (
            "likes = -2147483648 OR vid = -9223372036854775808",
            ["v.likes = -2147483648 OR v.vid = -9223372036854775808"],
        ),
        ("title = \"double\" OR title = 'it\\'s'", ["v.title IN ('double', 'it\\'s')"]),
    ],
)
def test_predicates(written: str, normal: list[str]) -> None:
    """A predicate would mean something else, or not be equal to its other spellings."""
    assert where(written) == normal


def test_parse_predicate() -> None:
    """Statistics given by predicate would be looked up in vain."""
    inputs = parse("SELECT v.vid FROM videos v, views w WHERE v.vid = w.vid").inputs
    predicate = parse_predicate("w.vid = v.vid", inputs)
    assert predicate == parse_predicate("V.VID = W.VID", {input_.alias: input_ for input_ in inputs})
    assert str(predicate) == "v.vid = w.vid"
    assert str(parse_predicate("v.ok AND w.vid > 3", inputs)) == "v.ok AND w.vid > 3"
    with pytest.raises(SqlError, match="a predicate needs a condition"):
        parse_predicate("v.vid + 1", inputs)
    with pytest.raises(SqlError, match="there is nothing here"):
        parse_predicate(" ", inputs)
