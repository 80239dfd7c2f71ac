"""The columns of a result and their names.

Guarantees: every `Output` has a name. The names that `star` and `with_distinct_names` give differ from each other even
if upper and lower case count as the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weft.errors import QueryError
from weft.logical.expr.expression import Column, Expr, identifier

__all__ = ["Output", "star", "with_distinct_names"]


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


def star(shown: Iterable[Column]) -> tuple[Output, ...]:
    """Columns under the names that ``SELECT *`` gives them: alias_column, with a number where that is taken."""
    return with_distinct_names((f"{column.alias}_{column.name}", column) for column in shown)


def with_distinct_names(named: Iterable[tuple[str, Expr]]) -> tuple[Output, ...]:
    """Columns of a result under names of their own: with a number where a name is taken already."""
    outputs: dict[str, Output] = {}
    for plain, expr in named:
        name, number = plain, 1
        while name.lower() in outputs:
            number += 1
            name = f"{plain}_{number}"
        outputs[name.lower()] = Output(name, expr)
    return tuple(outputs.values())
