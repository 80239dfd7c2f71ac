"""Nexmark's queries that join, as each contender writes them.

Guarantees: all contenders answer the same question over the same columns, in the same order. The dialects differ in how
streams are named alone: Weft's and DuckDB's texts are the same, Flink's quotes what is reserved there.
"""

from __future__ import annotations

from dataclasses import dataclass

PUBLISHED = {"q3": 413_000, "q13": 230_000, "q20": 85_000}  # Feldera's events a second and core


@dataclass(frozen=True, slots=True)
class NexmarkQuery:
    """A query: its outputs with their types, the streams it reads with their aliases, and its conditions."""

    name: str
    text: str
    outputs: tuple[tuple[str, str, str], ...]  # (expression, name, type)
    inputs: tuple[tuple[str, str], ...]  # (stream, alias); `side` is a table
    conditions: tuple[str, ...]

    @property
    def streams(self) -> tuple[str, ...]:
        """The streams that it reads, each once."""
        return tuple(dict.fromkeys(stream for stream, _ in self.inputs if stream != "side"))

    def sql(self) -> str:
        """The query, for Weft and for DuckDB."""
        shown = ", ".join(f"{expression} AS {name}" for expression, name, _ in self.outputs)
        inputs = ", ".join(f"{stream} AS {alias}" for stream, alias in self.inputs)
        return f"SELECT {shown} FROM {inputs} WHERE {' AND '.join(self.conditions)}"

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
    )
}
