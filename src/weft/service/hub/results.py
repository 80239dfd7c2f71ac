"""Results of a query, page by page.

Guarantees: a page has its results in the order of their numbers, and says how many between the one asked for and its
first are gone. As JSON, every row is an object with all columns, times in ISO 8601, decimals with all their digits,
binary values in base64, and numbers that are not finite as texts.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from weft.connectors.kafka.sink_values import json_values
from weft.connectors.memory.recent import RecentPage
from weft.service.hub.values import ColumnInfo

__all__ = ["ResultsPage"]


@dataclass(frozen=True)
class ResultsPage:
    """Results ``first`` to ``last`` of a query; ``newest`` is the number of the newest there is.

    ``missed`` results, of those that were asked for, are gone. Numbers are since ``origin``: when that changes, since
    the service was started again or another query has the name, they begin anew, and ``restarted`` says so.
    """

    query: str
    columns: tuple[ColumnInfo, ...]
    table: pa.Table
    last: int
    missed: int
    newest: int
    origin: str
    restarted: bool = False

    @classmethod
    def of(
        cls, query: str, columns: tuple[ColumnInfo, ...], page: RecentPage, *, restarted: bool
    ) -> ResultsPage:
        """The page of a query that its sink gives."""
        found = (page.table, page.last, page.missed, page.newest, page.origin)
        return cls(query, columns, *found, restarted)

    @property
    def first(self) -> int:
        """The number of the first result on the page."""
        return self.last - int(self.table.num_rows) + 1

    @cached_property
    def row_texts(self) -> tuple[bytes, ...]:
        """Every row as a JSON object."""
        batches = self.table.combine_chunks().to_batches()
        return tuple(text for batch in batches for text in json_values(batch).to_pylist())

    def rows(self) -> list[dict[str, Any]]:
        """Every row as a mapping of JSON's values."""
        return [json.loads(text) for text in self.row_texts]

    @cached_property
    def json(self) -> bytes:
        """The page as a JSON object."""
        head = {
            "query": self.query,
            "origin": self.origin,
            "restarted": self.restarted,
            "first": self.first,
            "last": self.last,
            "newest": self.newest,
            "missed": self.missed,
            "columns": [{"name": one.name, "type": one.type} for one in self.columns],
        }
        text = json.dumps(head, ensure_ascii=False).encode()
        return b"".join([text[:-1], b', "rows": [', b", ".join(self.row_texts), b"]}"])
