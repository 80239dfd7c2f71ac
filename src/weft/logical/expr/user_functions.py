"""Functions that users register: how they are called, and where they are called.

Guarantees: an expression names a function and nothing more, so that queries and plans remain plain data; what the
function does is known only where it is called (`weft.kernels.expr.user_functions`). Functions are deterministic by
contract: the same arguments always give the same value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from weft.errors import CatalogError, QueryError
from weft.logical.expr.expression import Call, Expr, make_call, to_sql
from weft.logical.expr.functions import FUNCTIONS, SYNONYMS
from weft.logical.schema import DataType

__all__ = [
    "ConditionFigures",
    "FunctionFigures",
    "UserFunction",
    "has_user_call",
    "is_user_call",
    "user_calls",
    "user_functions",
]

# Also the functions that only plans contain, for cells and grids (`weft.logical.expr.bounds`).
_BUILT_IN = frozenset((*FUNCTIONS, *SYNONYMS, "cast", "cell", "grid"))


@dataclass(frozen=True, slots=True)
class FunctionFigures:
    """How many rows a user's function computed, and how many seconds that took in all tasks together."""

    rows: int = 0
    seconds: float = 0.0

    def __add__(self, other: FunctionFigures) -> FunctionFigures:
        return FunctionFigures(self.rows + other.rows, self.seconds + other.seconds)

    @property
    def seconds_per_row(self) -> float | None:
        """How long the function took for a row on average; None if there was no row."""
        return self.seconds / self.rows if self.rows else None


@dataclass(frozen=True, slots=True)
class ConditionFigures:
    """For how many rows a condition that calls users' functions was checked, and how many of them fulfilled it."""

    rows: int = 0
    passed: int = 0

    def __add__(self, other: ConditionFigures) -> ConditionFigures:
        return ConditionFigures(self.rows + other.rows, self.passed + other.passed)


@dataclass(frozen=True, slots=True)
class UserFunction:
    """A function's name, in lower case, its type, and how many arguments it takes (``most`` None: any number)."""

    name: str
    returns: DataType
    least: int = 1
    most: int | None = None

    def __post_init__(self) -> None:
        if self.name in _BUILT_IN:
            raise CatalogError(f"there is a function {self.name} already", hint="choose another name")
        if self.returns.name == "null":
            raise CatalogError(f"function {self.name} cannot give nothing but NULL", hint='as in "boolean"')

    def call(self, args: Sequence[Expr]) -> Expr:
        """A call with these arguments, whatever their types."""
        if len(args) < max(1, self.least) or (self.most is not None and len(args) > self.most):
            texts = ", ".join(map(to_sql, args))
            raise QueryError(f"{self.name} takes {self._count()}, not {len(args)}: {self.name}({texts})")
        return make_call(self.name, args, self.returns)

    def _count(self) -> str:
        least = max(1, self.least)
        if self.most is None:
            return f"{least} argument{'' if least == 1 else 's'} or more"
        if least == self.most:
            return f"{least} argument{'' if least == 1 else 's'}"
        return f"{least} to {self.most} arguments"


def user_calls(expr: Expr) -> Iterator[Call]:
    """The calls of users' functions in an expression, inner ones first, repeated as they are."""
    if isinstance(expr, Call):
        for arg in expr.args:
            yield from user_calls(arg)
        if is_user_call(expr):
            yield expr


def is_user_call(call: Call) -> bool:
    """Whether what is called is a function of a user's."""
    return call.function not in _BUILT_IN


def has_user_call(expr: Expr) -> bool:
    """Whether an expression calls a function of a user's.

    Such a value is computed where it is compared. It is no key by which tuples are stored or sent: if the function
    failed there, it would fail for queries that do not use it.
    """
    return any(True for _ in user_calls(expr))


def user_functions(exprs: Iterable[Expr]) -> dict[str, DataType]:
    """The names of users' functions in expressions, sorted, and the types that the functions give."""
    found = {call.function: call.type for expr in exprs for call in user_calls(expr)}
    return dict(sorted(found.items()))
