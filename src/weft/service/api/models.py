"""What requests bring, and answers that are not values of the hub, as the OpenAPI description has them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from weft.service.hub.values import ColumnInfo

__all__ = ["ResultsBody"]


class ResultsBody(BaseModel):
    """Results ``first`` to ``last`` of a query, of which ``newest`` is the number of the newest.

    ``missed`` of those asked for are gone. Numbers are since ``origin``; when they have begun anew, ``restarted``.
    """

    query: str
    origin: str
    restarted: bool
    first: int
    last: int
    newest: int
    missed: int
    columns: list[ColumnInfo]
    rows: list[dict[str, Any]]
