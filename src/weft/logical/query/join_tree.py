"""The tree of joins of a query that has outer ones, and its normal form.

Guarantees: every ON mentions only inputs that its join brings together. A join without predicates is one ON TRUE: every
pair of rows inside each other's windows matches. A semi or an anti join only asks whether there is a partner, so the
joins above it cannot name the inputs on its right. A mark join keeps every row of its left side once, and says whether
it has a partner: of its right side, the column `PRESENT` alone can be named above, which is NULL where there is none.

`simplify_joins` gives a tree with the same rows as the one written, WHERE applied. It has no right joins, and no outer
join that pads rows which a condition above it rejects. Such a condition is a term of WHERE, of ON of an inner or semi
join above, or of ON of a left, semi or anti join on the right of which the padded rows are: a row that it rejects finds
no partner and is lost. Windows change nothing: whether two rows match does not depend on what else there is, and a
padded row that is never made is one that would have been dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from weft.errors import QueryError
from weft.logical.expr.conditions import sort_predicates, terms_of
from weft.logical.expr.expression import Expr, aliases, all_of, columns, rename, to_sql
from weft.logical.expr.nulls import rejects_null

__all__ = [
    "ASOF",
    "LACKS_LEFT",
    "LACKS_RIGHT",
    "MARK",
    "PRESENT",
    "TESTS",
    "Join",
    "only_inner",
    "simplify_joins",
    "unseen",
]


# The column that no stream has: TRUE for every tuple, NULL where a row has none.
PRESENT = "$present"

# The join that keeps every row of its left side once, and marks those that have a partner.
MARK = "mark"

# The joins that only test whether there is a partner.
TESTS = ("semi", "anti", MARK)

# The joins with one version of several; all but the first keep rows of a side, or of both, that are not joined.
ASOF = ("asof", "asof left", "asof right", "asof full")

# The joins whose rows may lack their left side, and those whose rows may lack their right side.
LACKS_LEFT = ("right", "full", "asof right", "asof full")
LACKS_RIGHT = ("left", "full", "asof left", "asof full")


@dataclass(frozen=True, slots=True)
class Join:
    """A written join, kept as written because an outer join's place matters; a leaf is an alias.

    ``on`` are the predicates of this join alone, in normal form once `make_query` has seen them; none where every pair
    matches.
    """

    kind: str
    left: Join | str
    right: Join | str
    on: tuple[Expr, ...]

    KINDS = ("inner", "left", "right", "full", *TESTS, *ASOF)

    def __post_init__(self) -> None:
        if self.kind not in self.KINDS:
            raise QueryError(f"unknown join {self.kind!r}")
        sides = (self.left, self.right)
        seen = {name for side in sides for name in _visible(side)}
        marked = {name for side in sides if isinstance(side, Join) for name in side.marked}
        for expr in self.on:
            hidden = unseen(expr, seen, marked)
            if hidden:
                raise QueryError(f"ON {expr} mentions {min(hidden)}, which is not to be seen there")

    @property
    def aliases(self) -> tuple[str, ...]:
        """The inputs below, as written."""
        sides = (self.left, self.right)
        return tuple(name for side in sides for name in (side.aliases if isinstance(side, Join) else (side,)))

    @property
    def visible(self) -> tuple[str, ...]:
        """The inputs below whose columns the join gives, as written."""
        right = () if self.kind in TESTS else _visible(self.right)
        return (*_visible(self.left), *right)

    @property
    def marked(self) -> tuple[str, ...]:
        """The inputs below of which mark joins say whether a row has a partner among them."""
        sides = (self.left,) if self.kind in TESTS else (self.left, self.right)
        below = [name for side in sides if isinstance(side, Join) for name in side.marked]
        return (*below, *(_visible(self.right) if self.kind == MARK else ()))

    @property
    def conditions(self) -> tuple[Expr, ...]:
        """The predicates of this join and of all below."""
        below = (side.conditions for side in (self.left, self.right) if isinstance(side, Join))
        return (*self.on, *(expr for exprs in below for expr in exprs))

    @property
    def edges(self) -> tuple[frozenset[str], ...]:
        """The sets of inputs that ON connects; the two sides of a join with ON are connected whatever it says."""
        below = [edge for side in (self.left, self.right) if isinstance(side, Join) for edge in side.edges]
        across = [frozenset((self.aliases[0], self.aliases[-1]))] if self.on else []
        return (*below, *across, *(aliases(expr) for expr in self.on))

    def normal(self) -> Join:
        """The join with each ON taken apart, sorted and without repetition."""
        left, right = (side.normal() if isinstance(side, Join) else side for side in (self.left, self.right))
        return Join(self.kind, left, right, sort_predicates(terms_of(self.on, "nothing is joined")))

    def renamed(self, names: Mapping[str, str]) -> Join:
        """The join with other aliases."""
        left, right = (
            side.renamed(names) if isinstance(side, Join) else names.get(side, side)
            for side in (self.left, self.right)
        )
        return Join(self.kind, left, right, tuple(rename(expr, names) for expr in self.on))

    def to_sql(self, inputs: Mapping[str, str]) -> str:
        """The join as it stands after FROM, given how each input is written there."""
        left, right = (
            side.to_sql(inputs) if isinstance(side, Join) else inputs[side]
            for side in (self.left, self.right)
        )
        word = {"inner": "JOIN" if self.on else "CROSS JOIN"}
        word |= {kind: f"{kind.upper()} JOIN" for kind in (*TESTS, *ASOF)} | {MARK: "LEFT MARK JOIN"}
        kind = word.get(self.kind, f"{self.kind.upper()} OUTER JOIN")
        nested = f"({right})" if isinstance(self.right, Join) else right
        on = f" ON {to_sql(all_of(self.on))}" if self.on or self.kind != "inner" else ""
        return f"{left} {kind} {nested}{on}"


def unseen(expr: Expr, seen: Collection[str], marked: Collection[str]) -> set[str]:
    """The inputs that an expression mentions and cannot see; of the marked ones it sees `PRESENT` alone."""
    return {
        column.alias
        for column in columns(expr)
        if column.alias not in seen and not (column.alias in marked and column.name == PRESENT)
    }


def _visible(side: Join | str) -> tuple[str, ...]:
    return side.visible if isinstance(side, Join) else (side,)


def simplify_joins(node: Join, where: Sequence[Expr]) -> Join:
    """The join, reduced by conditions that all its rows must fulfil."""
    node = _reduced(_turned(node), where)
    own = (*where, *node.on)
    above: dict[str, tuple[Sequence[Expr], Sequence[Expr]]] = {
        "inner": (own, own),
        "left": (where, node.on),
        "semi": (own, node.on),
        "anti": (where, node.on),
        MARK: (where, node.on),
    }
    left, right = above.get(node.kind, ((), ()))
    return Join(node.kind, _side(node.left, left), _side(node.right, right), node.on)


def only_inner(node: Join) -> bool:
    """Whether a join and all below it are inner joins, so that their order does not matter."""
    below = [side for side in (node.left, node.right) if isinstance(side, Join)]
    return node.kind == "inner" and all(map(only_inner, below))


def _side(side: Join | str, where: Sequence[Expr]) -> Join | str:
    return simplify_joins(side, where) if isinstance(side, Join) else side


def _turned(node: Join) -> Join:
    return Join("left", node.right, node.left, node.on) if node.kind == "right" else node


def _reduced(node: Join, where: Sequence[Expr]) -> Join:
    """An outer join without the padded rows that cannot fulfil the conditions."""
    if node.kind not in ("left", "full"):
        return node
    lonely_right = node.kind == "full" and not _rejected(node.left, where)
    lonely_left = not _rejected(node.right, where)
    kind = {(True, True): "full", (True, False): "left", (False, True): "right", (False, False): "inner"}
    return _turned(Join(kind[lonely_left, lonely_right], node.left, node.right, node.on))


def _rejected(side: Join | str, where: Sequence[Expr]) -> bool:
    """Whether a row without this side fails one of the conditions."""
    missing = frozenset(side.visible if isinstance(side, Join) else (side,))
    return any(rejects_null(term, missing) for term in where)
