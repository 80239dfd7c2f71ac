"""Nexmark's queries that join, as each contender writes them.

Guarantees: all contenders answer the same question over the same columns, in the same order. Of joins the dialects
differ in how streams are named alone: Weft's and DuckDB's texts are the same, Flink's quotes what is reserved there.
Queries with aggregates differ in how they group by windows of time, so each has a text per contender; Flink, which
takes back what it gave, is not asked for these.
"""

from __future__ import annotations

from dataclasses import dataclass

PUBLISHED = {
    "q3": 413_000,
    "q4": 265_000,
    "q7": 196_000,
    "q8": 415_000,
    "q9": 57_000,
    "q13": 230_000,
    "q20": 85_000,
}  # Feldera's events a second and core


@dataclass(frozen=True, slots=True)
class NexmarkQuery:
    """A query: its outputs with their types, the streams it reads with their aliases, and its conditions."""

    name: str
    text: str
    outputs: tuple[tuple[str, str, str], ...]  # (expression, name, type)
    inputs: tuple[tuple[str, str], ...]  # (stream, alias); `side` is a table
    conditions: tuple[str, ...] = ()
    weft: str = ""  # the whole text, of a query with aggregates
    duckdb: str = ""  # the same in DuckDB's words, if they differ

    @property
    def aggregates(self) -> bool:
        """Whether it has aggregates."""
        return bool(self.weft)

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it reads, each once."""
        return tuple(dict.fromkeys(stream for stream, _ in self.inputs if stream != "side"))

    def sql(self) -> str:
        """The query, for Weft."""
        if self.weft:
            return self.weft
        shown = ", ".join(f"{expression} AS {name}" for expression, name, _ in self.outputs)
        inputs = ", ".join(f"{stream} AS {alias}" for stream, alias in self.inputs)
        return f"SELECT {shown} FROM {inputs} WHERE {' AND '.join(self.conditions)}"

    def duckdb_sql(self) -> str:
        """The query, for DuckDB."""
        return self.duckdb or self.sql()

    def flink_sql(self) -> str:
        """The query in Flink's dialect."""
        return self.sql().replace("S.value", "S.`value`").replace("S.key", "S.`key`")


def _columns(alias: str, names: str, kind: str) -> tuple[tuple[str, str, str], ...]:
    return tuple((f"{alias}.{name}", f"{alias.lower()}_{name}", kind) for name in names.split())


_BID = (
    *_columns("B", "auction bidder price", "BIGINT"),
    *_columns("B", "channel url", "STRING"),
    *_columns("B", "ts", "TIMESTAMP_LTZ(6)"),
    *_columns("B", "extra", "STRING"),
)
_AUCTION = (
    *_columns("A", "item description", "STRING"),
    *_columns("A", "initial_bid reserve", "BIGINT"),
    *_columns("A", "ts expires", "TIMESTAMP_LTZ(6)"),
    *_columns("A", "seller category", "BIGINT"),
    *_columns("A", "extra", "STRING"),
)
_PERSON = _columns("P", "name city state", "STRING")


# The names of results of queries with aggregates; their types are asked for of no contender.
def _named(names: str) -> tuple[tuple[str, str, str], ...]:
    return tuple((name, name, "") for name in names.split())


_WINDOW = "window(ts, '{size} seconds', '{slide} seconds')"
# Bids by the windows of 10 seconds that they are in, of which one begins every 2 seconds.
_HOPS = (
    "(SELECT auction, time_bucket(INTERVAL 2 SECONDS, ts, TIMESTAMPTZ '1970-01-01 00:00:00+00') "
    "+ INTERVAL 10 SECONDS - n * INTERVAL 2 SECONDS AS e FROM bid, range(5) AS r(n))"
)
_TUMBLE_END = (
    "time_bucket(INTERVAL 10 SECONDS, ts, TIMESTAMPTZ '1970-01-01 00:00:00+00') + INTERVAL 10 SECONDS"
)


def _hot_items(counts: str) -> str:
    """The auctions with the most bids of a window; ``counts`` are the bids of each auction in each window."""
    most = "SELECT max(num) AS most, e FROM counts GROUP BY e"
    joined = "FROM counts AS C, most AS M WHERE C.e = M.e AND C.num >= M.most"
    return f"WITH counts AS ({counts}), most AS ({most}) SELECT C.auction, C.num {joined}"


def _highest_bids(highest: str) -> str:
    """The bids with the highest price of a window, which ``highest`` says."""
    shown = "B.auction, B.price, B.bidder, B.ts"
    return (
        f"SELECT {shown} FROM bid AS B, ({highest}) AS M WHERE B.price = M.most "
        "AND B.ts >= M.e - INTERVAL '10' SECOND AND B.ts < M.e"
    )


def _new_sellers(people: str, sellers: str) -> str:
    """The people who begin to sell in the window in which they come."""
    return (
        f"SELECT P.id, P.name, P.e FROM ({people}) AS P, ({sellers}) AS A WHERE P.id = A.seller AND P.e = A.e"
    )


# Of each auction, its bids while it was open.
_BIDS = "A.id = B.auction AND B.ts BETWEEN A.ts AND A.expires"
_WINNING = "A.id, A.item, A.seller, A.category, B.bidder, B.price, B.ts"
# The highest price of each auction, then the first time that it was bid, then the bid.
_WINNERS = (
    f"WITH high AS (SELECT A.id, A.expires, max(B.price) AS price FROM auction AS A, bid AS B WHERE {_BIDS} "
    "GROUP BY A.id, A.expires), first AS (SELECT H.id, H.expires, H.price, min(B.ts) AS won "
    "FROM high AS H, auction AS A, bid AS B "
    f"WHERE {_BIDS} AND H.id = A.id AND B.price = H.price AND B.ts <= H.expires GROUP BY H.id, H.expires, H.price) "
    f"SELECT {_WINNING} FROM first AS F, auction AS A, bid AS B "
    f"WHERE {_BIDS} AND F.id = A.id AND B.price = F.price AND B.ts = F.won"
)

_AGGREGATED = (
    NexmarkQuery(
        "q4",
        "the mean of the winning bids, by category",
        _named("category mean"),
        (("auction", "A"), ("bid", "B")),
        weft="SELECT Q.category, avg(Q.final) AS mean FROM (SELECT max(B.price) AS final, A.category, A.expires "
        "FROM auction AS A, bid AS B WHERE A.id = B.auction AND B.ts BETWEEN A.ts AND A.expires "
        "GROUP BY A.id, A.category, A.expires) AS Q GROUP BY Q.category",
    ),
    NexmarkQuery(
        "q5",
        "the auctions with the most bids of a window",
        _named("auction num"),
        (("bid", "B"),),
        weft=_hot_items(
            "SELECT auction, count(*) AS num, window.end AS e FROM bid "
            f"GROUP BY auction, {_WINDOW.format(size=10, slide=2)}"
        ),
        duckdb=_hot_items(f"SELECT auction, count(*) AS num, e FROM {_HOPS} GROUP BY auction, e"),
    ),
    NexmarkQuery(
        "q7",
        "the highest bids of a window",
        _named("auction price bidder ts"),
        (("bid", "B"),),
        weft=_highest_bids(
            "SELECT max(price) AS most, window.end AS e FROM bid "
            f"GROUP BY {_WINDOW.format(size=10, slide=10)}"
        ),
        duckdb=_highest_bids(f"SELECT max(price) AS most, {_TUMBLE_END} AS e FROM bid GROUP BY 2"),
    ),
    NexmarkQuery(
        "q8",
        "the people who begin to sell in the window in which they come",
        _named("id name e"),
        (("person", "P"), ("auction", "A")),
        weft=_new_sellers(
            "SELECT id, name, window.end AS e FROM person "
            f"GROUP BY id, name, {_WINDOW.format(size=10, slide=10)}",
            f"SELECT seller, window.end AS e FROM auction GROUP BY seller, {_WINDOW.format(size=10, slide=10)}",
        ),
        duckdb=_new_sellers(
            f"SELECT id, name, {_TUMBLE_END} AS e FROM person GROUP BY ALL",
            f"SELECT seller, {_TUMBLE_END} AS e FROM auction GROUP BY ALL",
        ),
    ),
    NexmarkQuery(
        "q9",
        "the winning bids",
        _named("id item seller category bidder price ts"),
        (("auction", "A"), ("bid", "B")),
        weft=_WINNERS,
        duckdb=f"SELECT {_WINNING} FROM auction AS A, bid AS B WHERE {_BIDS} "
        "QUALIFY row_number() OVER (PARTITION BY A.id ORDER BY B.price DESC, B.ts) = 1",
    ),
)

QUERIES = {
    query.name: query
    for query in (
        NexmarkQuery(
            "q3",
            "who sells in some states, in one category",
            (*_PERSON, ("A.id", "a_id", "BIGINT")),
            (("auction", "A"), ("person", "P")),
            ("A.seller = P.id", "A.category = 10", "P.state IN ('OR', 'ID', 'CA')"),
        ),
        NexmarkQuery(
            "q13",
            "bids with what a table says of their auction",
            (
                *_columns("B", "auction bidder price", "BIGINT"),
                *_columns("B", "ts", "TIMESTAMP_LTZ(6)"),
                ("S.value", "s_value", "STRING"),
            ),
            (("bid", "B"), ("side", "S")),
            ("B.auction % 10000 = S.key",),
        ),
        NexmarkQuery(
            "q20",
            "bids with their auction, in one category",
            (*_BID, *_AUCTION),
            (("bid", "B"), ("auction", "A")),
            ("B.auction = A.id", "A.category = 10"),
        ),
        NexmarkQuery(
            "three",
            "people, their auctions, and the bids for these",
            (*_PERSON, ("A.id", "a_id", "BIGINT"), *_columns("B", "bidder price", "BIGINT")),
            (("person", "P"), ("auction", "A"), ("bid", "B")),
            ("P.id = A.seller", "A.id = B.auction"),
        ),
        *_AGGREGATED,
    )
}
