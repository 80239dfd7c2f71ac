"""Which column a name means.

Guarantees: names are found upper or lower case, and come out in the catalog's spelling; a name that means
nothing, or more than one thing, is an error that lists what there is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weft.errors import QueryError, nearest
from weft.logical.expr.conversion import literal
from weft.logical.expr.expression import Column, Expr
from weft.logical.expr.functions import call
from weft.logical.expr.user_functions import UserFunction
from weft.logical.query.query import Input

__all__ = ["PROVENANCE", "Merged", "Scope", "Shown", "using_first"]

PROVENANCE = "provenance"

_TESTED = "a SEMI or ANTI JOIN asks whether its right side has a partner, and gives none of its columns"


@dataclass(frozen=True, slots=True)
class Merged:
    """The one column that USING makes of columns of several inputs."""

    name: str
    aliases: frozenset[str]
    expr: Expr

    def takes_in(self, other: Shown) -> bool:
        """Whether another column of FROM is one of those that this one stands for."""
        same = other.name.lower() == self.name
        return same and not self.aliases.isdisjoint(
            other.aliases if isinstance(other, Merged) else {other.alias}
        )


# A column that a part of FROM gives to ``SELECT *``.
Shown = Merged | Column


def using_first(using: Sequence[Merged], others: Iterable[Shown]) -> tuple[Shown, ...]:
    """The columns of a join: first those of its USING, in the order in which it names them, then all others."""
    rest = (one for one in others if not any(merged.takes_in(one) for merged in using))
    return (*using, *rest)


@dataclass(frozen=True, slots=True)
class Scope:
    """The inputs that an expression may name.

    ``beyond`` are the other inputs of the query, which ON may also name as long as all joins are inner: its conditions
    are then one pool with those of WHERE. If some joins are not inner, the other inputs are ``hidden``; ``tested`` are
    those to the right of a semi or anti join below, which has no columns of them. Where outer joins pad rows with NULLs
    (``padded``), rows have a `provenance`. ``functions`` are those that users registered. ``shown`` are the columns
    that ``*`` gives, in their order.
    """

    inputs: tuple[Input, ...]
    merged: tuple[Merged, ...] = ()
    beyond: tuple[Input, ...] = ()
    hidden: tuple[Input, ...] = ()
    tested: tuple[Input, ...] = ()
    padded: bool = False
    functions: tuple[UserFunction, ...] = ()
    shown: tuple[Shown, ...] = ()

    def input(self, name: str) -> Input:
        """The input that goes by this name."""
        folded = name.lower()
        everywhere = (*self.inputs, *self.beyond)
        for input_ in everywhere:
            if input_.alias.lower() == folded:
                return input_
        if any(input_.alias.lower() == folded for input_ in self.tested):
            raise QueryError(f"{name} cannot be seen here", hint=_TESTED)
        if any(input_.alias.lower() == folded for input_ in self.hidden):
            raise QueryError(
                f"{name} cannot be seen here",
                hint="ON sees only the streams that its own join brings together",
            )
        renamed = next((i.alias for i in everywhere if i.stream.name.lower() == folded), None)
        hint = f"it goes by the name {renamed} here" if renamed else _listing(name, everywhere)
        raise QueryError(f"there is no {name} in FROM", hint=hint)

    def function(self, name: str) -> UserFunction | None:
        """The function that a user registered under this name, if there is one."""
        folded = name.lower()
        return next((function for function in self.functions if function.name == folded), None)

    def qualified(self, input_: Input, name: str) -> Column:
        """A column of one input."""
        field = input_.stream.schema.find(name)
        unnamed = next((one for one in input_.unnamed if one.name == name), None)
        if field is None and unnamed is not None:
            return unnamed
        if field is None:
            hint = nearest(name, input_.stream.shown)
            raise QueryError(f"{input_.alias} has no column {name}", hint=hint)
        return input_.column(name)

    def has_column(self, name: str) -> bool:
        """Whether a stream that can be named here has a column of that name."""
        return any(input_.stream.schema.find(name) for input_ in (*self.inputs, *self.beyond))

    def unqualified(self, name: str) -> Expr:
        """The only column of that name."""
        for inputs in (self.inputs, self.beyond):
            found = self._candidates(name, inputs)
            if len(found) > 1:
                listing = " or ".join(sorted(map(str, found)))
                raise QueryError(f"column {name} is ambiguous", hint=f"write {listing}")
            if found:
                return found[0]
        if self.padded and name.lower() == PROVENANCE:
            return provenance(self.inputs)
        if any(input_.stream.schema.find(name) for input_ in self.tested):
            raise QueryError(f"{name} cannot be seen here", hint=_TESTED)
        every = {one for input_ in (*self.inputs, *self.beyond) for one in input_.stream.shown}
        raise QueryError(f"there is no column {name}", hint=nearest(name, every))

    def _candidates(self, name: str, inputs: Sequence[Input]) -> list[Expr]:
        having = [input_ for input_ in inputs if input_.stream.schema.find(name)]
        found: list[Expr] = []
        for merged in self.merged:
            if merged.name == name.lower() and any(i.alias in merged.aliases for i in having):
                having = [input_ for input_ in having if input_.alias not in merged.aliases]
                found.append(merged.expr)
        return found + [input_.column(name) for input_ in having]

    def merge_using(self, right: Scope, name: str, kind: str) -> tuple[Merged, Expr]:
        """The one column that USING makes of those of a name here and to the right, and the equality of the two."""
        sides = self.unqualified(name), right.unqualified(name)
        both = (*self.inputs, *right.inputs)
        owners = frozenset(input_.alias for input_ in both if input_.stream.schema.find(name))
        return Merged(name.lower(), owners, _merge(kind, *sides)), call("=", *sides)


def provenance(inputs: Iterable[Input]) -> Expr:
    """The names of those inputs that a row has a tuple of, as in ``'v, w'``."""
    parts = (call("case", input_.present, literal(f", {input_.alias}"), literal("")) for input_ in inputs)
    return call("substring", call("concat", *parts), literal(len(", ") + 1))


def _merge(kind: str, left: Expr, right: Expr) -> Expr:
    """The value of a column after USING: whichever side is there."""
    if kind == "full":
        return call("coalesce", left, right)
    return right if kind == "right" else left


def _listing(name: str, inputs: Sequence[Input]) -> str:
    return nearest(name, (input_.alias for input_ in inputs))
