"""Expressions in normal form.

Guarantees: two spellings of one expression are equal values. `make_call` sorts the operands of commutative operators,
constants last, and of chains of integer + and *; flattens AND and OR; gathers `x = 1 OR x = 2` into IN; turns > and ≥
around; pushes NOT inwards; decides comparisons of constants; and writes the distance of two times in one way
(`weft.logical.expr.bands`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta

from weft.logical.expr.bands import band
from weft.logical.expr.node import (
    BOOLEAN,
    Call,
    Column,
    Expr,
    Literal,
    Value,
    identifier,
    to_sql,
    type_sql,
)
from weft.logical.schema import DataType

__all__ = [
    "BOOLEAN",
    "Call",
    "Column",
    "Expr",
    "Literal",
    "Replaced",
    "Value",
    "aliases",
    "all_of",
    "columns",
    "conjuncts",
    "count_terms",
    "grown_terms",
    "identifier",
    "make_call",
    "rename",
    "substituted",
    "to_sql",
    "transform",
    "type_sql",
]


_COMMUTATIVE = frozenset({"=", "<>", "+", "*"})
_FLIPPED = {">": "<", ">=": "<="}
_NEGATED = {"=": "<>", "<>": "=", "<": "<=", "<=": "<"}


# A longer chain is left as it is written; its text would be nested too deeply to be read back.
_LONGEST_CHAIN = 90
_WIDTHS = {"byte": 8, "short": 16, "int": 32, "long": 64}


def make_call(function: str, args: Iterable[Expr], type_: DataType) -> Expr:
    """The normal form of a call; the caller has seen to the types of the arguments."""
    operands = tuple(args)
    if function in ("and", "or"):
        return _connective(function, operands)
    if function == "not":
        return _negation(operands[0])
    if function in _FLIPPED:
        function, operands = _FLIPPED[function], operands[::-1]
    if function in _COMMUTATIVE:
        operands = tuple(sorted(operands, key=_constants_last))
    if function in _NEGATED:
        return _comparison(function, operands[0], operands[1], type_)
    if function in ("+", "*") and type_.is_integer:
        return _chain(function, operands, type_)
    if function == "in":
        return _membership(operands, type_)
    return Call(function, operands, type_)


def _constants_last(operand: Expr) -> tuple[bool, str]:
    return isinstance(operand, Literal), to_sql(operand)


def _comparison(function: str, left: Expr, right: Expr, type_: DataType) -> Expr:
    if isinstance(left, Literal) and isinstance(right, Literal):
        decided = _decided(function, left, right)
        return Call(function, (left, right), type_) if decided is None else Literal(decided, BOOLEAN)
    if function in ("<", "<="):
        return _distance(function, left, right) or Call(function, (left, right), type_)
    if left.type == BOOLEAN and isinstance(right, Literal) and isinstance(right.value, bool):
        return left if right.value == (function == "=") else _negation(left)
    return Call(function, (left, right), type_)


def _decided(function: str, left: Literal, right: Literal) -> bool | None:
    """What a comparison of constants gives; None if that is NULL, or is only known at run time."""
    one, other = left.value, right.value
    if one is None or other is None or left.type != right.type or type(one) is not type(other):
        return None
    if function in ("=", "<>"):
        return (one == other) == (function == "=")
    less: bool = one < other  # type: ignore[operator]
    return less or (function == "<=" and one == other)


def _distance(function: str, left: Expr, right: Expr) -> Expr | None:
    """A comparison of times or intervals as bounds of their distance, without abs."""
    for this, that in ((left, right), (right, left)):
        span = that.value if isinstance(that, Literal) else None
        if isinstance(this, Call) and this.function == "abs" and isinstance(span, timedelta):
            (inner,), least, most = this.args, Literal(-span, this.type), Literal(span, this.type)
            inside = this is left
            below = make_call(function, (least, inner) if inside else (inner, least), BOOLEAN)
            above = make_call(function, (inner, most) if inside else (most, inner), BOOLEAN)
            return make_call("and" if inside else "or", (below, above), BOOLEAN)
    return band(function, left, right)


def _chain(function: str, operands: tuple[Expr, ...], type_: DataType) -> Expr:
    """A sum or a product of integers, its operands sorted; the widest first, so that every step is as wide as all."""
    flat = [leaf for operand in operands for leaf in _links(function, operand, type_)]
    widest = [leaf for leaf in flat if leaf.type == type_]
    if not 2 < len(flat) <= _LONGEST_CHAIN or not widest:
        return Call(function, operands, type_)
    first, *rest = sorted(flat, key=lambda leaf: (-_WIDTHS.get(leaf.type.name, 0), *_constants_last(leaf)))
    for leaf in rest:
        first = Call(function, (first, leaf), type_)
    return first


def _links(function: str, expr: Expr, type_: DataType) -> Iterator[Expr]:
    if isinstance(expr, Call) and expr.function == function and expr.type == type_:
        for arg in expr.args:
            yield from _links(function, arg, type_)
    else:
        yield expr


def _connective(function: str, operands: Iterable[Expr]) -> Expr:
    flat: dict[Expr, None] = {}
    for operand in operands:
        nested = isinstance(operand, Call) and operand.function == function
        flat |= dict.fromkeys(operand.args if nested and isinstance(operand, Call) else (operand,))
    neutral = Literal(function == "and", BOOLEAN)
    absorbing = Literal(function == "or", BOOLEAN)
    if absorbing in flat:
        return absorbing
    flat.pop(neutral, None)
    if function == "or":
        flat = dict.fromkeys(_gathered(flat))
    if not flat:
        return neutral
    if len(flat) == 1:
        return next(iter(flat))
    return Call(function, tuple(sorted(flat, key=to_sql)), BOOLEAN)


def _gathered(operands: Iterable[Expr]) -> Iterator[Expr]:
    """Operands of OR, with those that compare one thing with constants made one IN."""
    options: dict[Expr, list[Expr]] = {}
    for operand in operands:
        if isinstance(operand, Call) and operand.function in ("=", "in"):
            needle, *found = operand.args
            if _has_list(needle) and all(isinstance(option, Literal) for option in found):
                options.setdefault(needle, []).extend(found)
                continue
        yield operand
    for needle, found in options.items():
        yield make_call("in", (needle, *found), BOOLEAN)


def _has_list(needle: Expr) -> bool:
    """Whether comparing this with constants has the normal form IN; `1 = 1` is decided, and `x = TRUE` is x."""
    return needle.type != BOOLEAN and not isinstance(needle, Literal)


def _negation(operand: Expr) -> Expr:
    """NOT pushed inwards; valid under SQL's three-valued logic and Spark's total order of floats."""
    if isinstance(operand, Literal) and isinstance(operand.value, bool):
        return Literal(not operand.value, BOOLEAN)
    if not isinstance(operand, Call):
        return Call("not", (operand,), BOOLEAN)
    if operand.function == "not":
        return operand.args[0]
    if operand.function in ("and", "or"):
        dual = "or" if operand.function == "and" else "and"
        return make_call(dual, map(_negation, operand.args), BOOLEAN)
    if operand.function in _NEGATED:
        flip = operand.function in ("<", "<=")
        args = operand.args[::-1] if flip else operand.args
        return make_call(_NEGATED[operand.function], args, BOOLEAN)
    return Call("not", (operand,), BOOLEAN)


def _membership(operands: tuple[Expr, ...], type_: DataType) -> Expr:
    needle, *options = operands
    options = sorted(dict.fromkeys(options), key=to_sql)
    if len(options) == 1:
        return make_call("=", (needle, options[0]), type_)
    if _has_list(needle) and all(isinstance(option, Literal) for option in options):
        return Call("in", (needle, *options), type_)
    return make_call("or", (make_call("=", (needle, option), type_) for option in options), type_)


def transform(expr: Expr, leaf: Callable[[Column | Literal], Expr]) -> Expr:
    """The expression with every leaf replaced, in normal form again."""
    if isinstance(expr, Call):
        return make_call(expr.function, (transform(arg, leaf) for arg in expr.args), expr.type)
    return leaf(expr)


def rename(expr: Expr, names: Mapping[str, str]) -> Expr:
    """The expression with aliases renamed."""

    def leaf(node: Column | Literal) -> Expr:
        if isinstance(node, Column) and node.alias in names:
            return Column(names[node.alias], node.name, node.type)
        return node

    return transform(expr, leaf)


def columns(expr: Expr) -> Iterator[Column]:
    """All columns in the expression, left to right, repeated as they are."""
    if isinstance(expr, Column):
        yield expr
    elif isinstance(expr, Call):
        for arg in expr.args:
            yield from columns(arg)


def aliases(expr: Expr) -> frozenset[str]:
    """The inputs an expression mentions."""
    return frozenset(column.alias for column in columns(expr))


def conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """The predicates whose conjunction the expression is; none for TRUE."""
    if expr == Literal(True, BOOLEAN):
        return ()
    if isinstance(expr, Call) and expr.function == "and":
        return expr.args
    return (expr,)


def all_of(predicates: Iterable[Expr]) -> Expr:
    """The conjunction of predicates; TRUE for none."""
    return make_call("and", predicates, BOOLEAN)


def count_terms(exprs: Iterable[Expr]) -> int:
    """How many columns, constants and calls there are in some expressions."""
    count, pending = 0, list(exprs)
    while pending:
        node = pending.pop()
        count += 1
        if isinstance(node, Call):
            pending += node.args
    return count


# By alias and name of a column: the expression that it stands for.
Replaced = Mapping[str, Mapping[str, Expr]]


def substituted(expr: Expr, replaced: Replaced) -> Expr:
    """The expression with columns replaced by what they stand for; one that nothing is given for stays as it is."""

    def leaf(node: Column | Literal) -> Expr:
        if isinstance(node, Column):
            return replaced.get(node.alias, {}).get(node.name, node)
        return node

    return transform(expr, leaf)


def grown_terms(exprs: Iterable[Expr], replaced: Replaced) -> int:
    """By how many terms expressions would grow if their columns were replaced, beyond each replacement's own once."""
    sizes = {
        (alias, name): count_terms([expr])
        for alias, of_alias in replaced.items()
        for name, expr in of_alias.items()
    }
    uses_of_columns = [(column.alias, column.name) for expr in exprs for column in columns(expr)]
    return sum(
        (sizes[name] - 1) * (uses - 1) for name, uses in Counter(uses_of_columns).items() if name in sizes
    )
