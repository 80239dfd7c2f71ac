"""Join keys: which expressions of the inputs must be equal.

Guarantees: equalities are closed under transitivity, so that a = b AND b = c and a = b AND a = c give one `Key`. Which
expression stands for an input does not depend on the input's alias.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from weft.errors import QueryError
from weft.logical.expr.expression import BOOLEAN, Call, Expr, Literal, aliases, make_call, rename, to_sql
from weft.logical.expr.user_functions import has_user_call

__all__ = ["Key", "equality_classes"]


@dataclass(frozen=True, slots=True)
class Key:
    """Expressions that are equal in every result: one per input, of one type, sorted by alias."""

    members: tuple[Expr, ...]

    def __post_init__(self) -> None:
        names = [next(iter(aliases(member)), "") for member in self.members]
        if len(names) < 2 or names != sorted(set(names)):
            raise QueryError(f"not a join key: {', '.join(map(str, self.members))}")

    @property
    def aliases(self) -> tuple[str, ...]:
        """The inputs that share the key, sorted."""
        return tuple(next(iter(aliases(member))) for member in self.members)

    def restrict(self, kept: frozenset[str]) -> Key | None:
        """The key among fewer inputs, if two at least still share it."""
        members = tuple(member for member in self.members if aliases(member) <= kept)
        return Key(members) if len(members) > 1 else None

    def equalities(self) -> Iterator[Expr]:
        """The equalities between neighbours; they imply all the others."""
        for left, right in zip(self.members, self.members[1:], strict=False):
            yield make_call("=", (left, right), BOOLEAN)

    def __str__(self) -> str:
        return " = ".join(map(str, self.members))


def equality_classes(terms: list[Expr]) -> tuple[tuple[Key, ...], tuple[Expr, ...]]:
    """Transitive classes of the equalities between inputs, and all other predicates.

    Where one input has several members of a class, its first stands for it and the others become filters; a constant
    that one member equals is a filter on all of them.
    """
    groups, rest = _union(terms)
    constants = _constants(rest)
    keys, extra = [], []
    for group in groups:
        firsts: dict[str, Expr] = {}
        for member in sorted(group, key=_anonymous):
            (alias,) = aliases(member)
            first = firsts.setdefault(alias, member)
            if first is not member:
                extra.append(make_call("=", (first, member), BOOLEAN))
        keys.append(Key(tuple(firsts[alias] for alias in sorted(firsts))))
        values = [value for member in group for value in constants.get(member, ())]
        extra += [make_call("=", (m, v), BOOLEAN) for m in firsts.values() for v in values]
    return tuple(sorted(keys, key=str)), (*rest, *extra)


def _anonymous(expr: Expr) -> str:
    """The text of an expression over one input, whatever its alias: an order that renaming keeps."""
    return to_sql(rename(expr, dict.fromkeys(aliases(expr), "_")))


def _union(terms: list[Expr]) -> tuple[list[set[Expr]], list[Expr]]:
    groups: list[set[Expr]] = []
    local: list[Expr] = []
    rest: list[Expr] = []
    for term in terms:
        sides = _single_sides(term)
        if sides is None:
            rest.append(term)
        elif len(aliases(term)) == 1:
            local.append(term)
        else:
            touching = [group for group in groups if group & set(sides)]
            groups = [group for group in groups if not group & set(sides)]
            groups.append(set(sides).union(*touching))
    return _with_local(groups, local, rest)


def _with_local(
    groups: list[set[Expr]], local: list[Expr], rest: list[Expr]
) -> tuple[list[set[Expr]], list[Expr]]:
    """Equalities within one input (a.x = a.y) widen the classes they touch; the others are filters."""
    pending = local
    while True:
        left: list[Expr] = []
        for term in pending:
            sides = set(_single_sides(term) or ())
            touching = [group for group in groups if group & sides]
            if not touching:
                left.append(term)
                continue
            groups = [group for group in groups if not group & sides]
            groups.append(sides.union(*touching))
        if len(left) == len(pending):
            return groups, rest + left
        pending = left


def _single_sides(term: Expr) -> tuple[Expr, Expr] | None:
    """The sides of an equality that can be a key: each is about one input, and calls no user function."""
    if isinstance(term, Call) and term.function == "=" and not has_user_call(term):
        left, right = term.args
        if len(aliases(left)) == 1 and len(aliases(right)) == 1:
            return left, right
    return None


def _constants(filters: Iterable[Expr]) -> dict[Expr, list[Literal]]:
    """The constants that expressions are equal to."""
    fixed: dict[Expr, list[Literal]] = {}
    for term in filters:
        if isinstance(term, Call) and term.function == "=" and len(aliases(term)) == 1:
            for one, other in (term.args, term.args[::-1]):
                if isinstance(other, Literal):
                    fixed.setdefault(one, []).append(other)
    return fixed
