"""A column of a result: a name and what it is.

Guarantees: it has a name.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.errors import QueryError
from weft.logical.expr.expression import Expr, identifier

__all__ = ["Output"]


@dataclass(frozen=True, slots=True)
class Output:
    """A column of the result."""

    name: str
    expr: Expr

    def __post_init__(self) -> None:
        if not self.name:
            raise QueryError(f"the column {self.expr} of the result has no name", hint="name it with AS")

    def __str__(self) -> str:
        return f"{self.expr} AS {identifier(self.name)}"
