"""Turns the expressions of a syntax tree into typed ones.

Guarantees: a node is understood in full or refused; an error points at the innermost node it is about. Nesting
has a limit, and so has the size of an operand that its operator repeats (BETWEEN, CASE x WHEN).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlglot import TokenType, exp

from weft.errors import CatalogError, QueryError, SqlError
from weft.logical.expr.conversion import NULL, cast, literal
from weft.logical.expr.expression import BOOLEAN, Expr, conjuncts, count_terms, to_sql
from weft.logical.expr.functions import SYNONYMS, call, is_built_in
from weft.logical.expr.nulls import compared_rows
from weft.logical.query.grouping import AGGREGATES, WINDOW_CALLS, aggregate_name
from weft.logical.query.join_tree import PRESENT
from weft.sql.parse import parse_fragment
from weft.sql.reject import refuse_arguments, unknown_function, unsupported
from weft.sql.scope import Scope, SubSelects
from weft.sql.source import Piece, SqlText, bare_node, name_unit, operands_of
from weft.sql.statement import Statement
from weft.sql.values.constants import interval, literal_of, type_of

__all__ = ["bind_conditions", "bind_expression", "is_function_name"]


_LARGEST = 2_000

_BINARY: dict[type[exp.Expr], str] = {
    exp.EQ: "=",
    exp.NEQ: "<>",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
}
_BINARY |= {exp.IntDiv: "div", exp.BitwiseAnd: "&", exp.BitwiseOr: "|", exp.BitwiseXor: "^"}
# What holds where a comparison is FALSE.
_OPPOSITE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_BITS = (exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor)  # the parser knows no order between them
_MATCHES: dict[type[exp.Expr], str] = {exp.Like: "like", exp.ILike: "ilike", exp.RegexpLike: "rlike"}
_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim"}
_KEYWORD_CALLS: dict[type[exp.Expr], tuple[str, tuple[str, ...]]] = {
    exp.Substring: ("substring", ("this", "start", "length")),
    exp.Trim: ("trim", ("this", "expression")),
    exp.StrPosition: ("locate", ("substr", "this", "position")),
    exp.Overlay: ("overlay", ("this", "expression", "from_", "for_")),
}
_CHAINS: dict[type[exp.Expr], str] = {exp.And: "and", exp.Or: "or", exp.DPipe: "concat"}


def bind_expression(piece: Piece, scope: Scope) -> Expr:
    """The typed expression that a piece of text means."""
    return _Binder(piece, scope).bind(piece.node, 0)


def is_function_name(name: str) -> bool:
    """Whether a name, followed by arguments in parentheses, reads as the call of a function that is not built in."""
    if not (name.isascii() and name.isidentifier()):
        return False
    try:
        node = parse_fragment(f"{name}(x)").node
    except SqlError:
        return False
    return isinstance(node, exp.Anonymous) and node.name == name and not is_built_in(name.lower())


def bind_conditions(piece: Piece, scope: Scope, clause: str) -> Iterator[Expr]:
    """The predicates whose conjunction the text is."""
    for node, negated in _conjuncts(piece.node, negated=False):
        part = replace(piece, node=node)
        expr = _condition(part, scope, negated)
        if expr.type not in (BOOLEAN, NULL):
            raise part.error(
                f"{clause} needs a condition, and {to_sql(expr)} is a {expr.type}",
                "compare it with something",
            )
        yield from conjuncts(expr)


def _conjuncts(node: exp.Expr, negated: bool) -> Iterator[tuple[exp.Expr, bool]]:
    """The conditions whose conjunction a node is, and whether each is negated: AND, and OR below NOT."""
    bare = bare_node(node)
    if isinstance(bare, exp.Not) and _holds_sub_select(bare):
        yield from _conjuncts(bare.this, not negated)
    elif type(bare) is (exp.Or if negated else exp.And):
        for part in operands_of(node, type(bare)):
            yield from _conjuncts(part, negated)
    else:
        yield node, negated


def _holds_sub_select(node: exp.Expr) -> bool:
    return node.find(exp.Query) is not None


def _condition(piece: Piece, scope: Scope, negated: bool) -> Expr:
    """A condition of a conjunction, in which FALSE and NULL are the same: IN a sub-select asks for one join alone."""
    binder, node = _Binder(piece, scope), bare_node(piece.node)
    if isinstance(node, exp.In) and node.args.get("query"):
        try:
            return binder.tested("=", node, node.this, node.args["query"], negated)
        except (QueryError, CatalogError) as error:
            raise piece.source.blame(node, error) from None
    quantified = isinstance(node, exp.Binary) and isinstance(node.expression, exp.Any | exp.All)
    if isinstance(node, exp.Binary) and quantified and _BINARY.get(type(node)) in _OPPOSITE:
        try:
            return binder.quantified(node, negated)
        except (QueryError, CatalogError) as error:
            raise piece.source.blame(node, error) from None
    expr = binder.bind(piece.node, 0)
    return call("not", expr) if negated else expr


@dataclass(frozen=True, slots=True)
class _Binder:
    piece: Piece
    scope: Scope

    @property
    def source(self) -> SqlText:
        """The text that is read."""
        return self.piece.source

    def bind(self, node: exp.Expr, depth: int) -> Expr:
        handler = _HANDLERS.get(type(node))
        if handler is None:
            raise unsupported(self.source, node)
        most = self.source.limits.depth
        if depth > most:
            raise self.source.error(
                self.source.span(node),
                f"this is nested more than {most} deep",
                "compute a part of it in the stream, or make the session with limits=weft.Limits(depth=…)",
            )
        try:
            return handler(self, node, depth + 1)
        except (QueryError, CatalogError) as error:
            raise self.source.blame(node, error) from None

    def constant(self, node: Any, _: int) -> Expr:
        if isinstance(node, exp.Literal) and node.is_string and self.scope.has_column(node.name):
            self._refuse_doubt(node)
        return literal_of(node)

    def _refuse_doubt(self, node: exp.Literal) -> None:
        """Refuse ``"k"`` where k is a column: Spark reads it as a text, other databases as a name."""
        span = self.source.span(node)
        if self.source.text[span[0]] == '"':
            column, text = f"`{node.name}`", f"'{node.name}'"
            message = f"{self.source.text_of(span)} may mean a column or a text"
            raise self.source.error(span, message, f"write {column} for the column, {text} for the text")

    def paren(self, node: exp.Paren, depth: int) -> Expr:
        refuse_arguments(self.source, node, "this")
        return self.bind(node.this, depth)

    def column(self, node: exp.Column, _: int) -> Expr:
        refuse_arguments(self.source, node, "this", "table", "db", "catalog")
        parts = [node.args[key] for key in ("catalog", "db", "table", "this") if node.args.get(key)]
        for part in parts:
            if not isinstance(part, exp.Identifier):
                raise unsupported(self.source, part)
        names = [part.name for part in parts]
        if self.scope.groups is not None and (edge := self.scope.groups.named_edge(names)) is not None:
            return edge
        if len(parts) == 1:
            return self.scope.unqualified(parts[0].name)
        if names[1] == PRESENT and len(parts) == 2:
            return self.scope.column(*names)
        found, rest = self._found(parts)
        for part in rest:
            found = self._inside(found, part)
        return found

    def _found(self, parts: Sequence[exp.Expr]) -> tuple[Expr, Sequence[exp.Expr]]:
        """The column that names with dots begin with, and the names of fields after it."""
        first, second, *rest = parts
        if not self.scope.has_input(first.name) and self.scope.has_column(first.name):
            column = self.scope.unqualified(first.name)
            if column.type.is_nested:
                return column, parts[1:]
        try:
            named = self.scope.input(first.name)
        except QueryError as error:
            raise self.source.blame(first, error) from None
        try:
            return self.scope.qualified(named, second.name), rest
        except QueryError as error:
            raise self.source.blame(second, error) from None

    def _inside(self, struct: Expr, name: exp.Expr) -> Expr:
        if not isinstance(name, exp.Identifier):
            raise unsupported(self.source, name)
        try:
            return call(".", struct, literal(name.name))
        except QueryError as error:
            raise self.source.blame(name, error) from None

    def dot(self, node: exp.Dot, depth: int) -> Expr:
        refuse_arguments(self.source, node, "this", "expression")
        return self._inside(self.bind(node.this, depth), node.expression)

    def item(self, node: exp.Bracket, depth: int) -> Expr:
        refuse_arguments(self.source, node, "this", "expressions", "offset")
        if len(node.expressions) != 1:
            raise QueryError("[ ] takes one place or one key", hint="write x[0], or m['k']")
        return call("[]", self.bind(node.this, depth), self.bind(node.expressions[0], depth))

    def binary(self, node: exp.Binary, depth: int) -> Expr:
        refuse_arguments(self.source, node, "this", "expression", "typed", "safe")
        operator, right = _BINARY[type(node)], bare_node(node.expression)
        if type(node) in _BITS and type(node.this) in _BITS and type(node) is not type(node.this):
            raise QueryError("&, ^ and | are mixed", hint="write parentheses, as in (x & y) | z")
        if operator in _OPPOSITE and isinstance(right, exp.Any | exp.All):
            every = isinstance(right, exp.All)
            values, branches = self.values(node.this, depth), self.branches(right.this)
            asked = _OPPOSITE[operator] if every else operator
            found = self.sub_selects(node).compared(asked, values, branches, self.scope)
            return call("not", found) if every else found
        if operator in _OPPOSITE and isinstance(right, exp.Tuple):
            return compared_rows(operator, self.values(node.this, depth), self.values(right, depth))
        return call(operator, self.bind(node.this, depth), self.bind(node.expression, depth))

    def quantified(self, node: exp.Binary, negated: bool) -> Expr:
        """A comparison with ANY or ALL rows of a sub-select, as a condition: what it says of NULL does not matter."""
        operator, every = _BINARY[type(node)], isinstance(node.expression, exp.All)
        asked = _OPPOSITE[operator] if every else operator
        return self.tested(asked, node, node.this, node.expression.this, every != negated)

    def null_safe(self, node: exp.Binary, depth: int) -> Expr:
        refuse_arguments(self.source, node, "this", "expression")
        sides = self.values(node.this, depth), self.values(node.expression, depth)
        return compared_rows("<>" if isinstance(node, exp.NullSafeNEQ) else "=", *sides)

    def chain(self, node: exp.Binary, depth: int) -> Expr:
        refuse_arguments(self.source, node, "this", "expression", "safe")
        return call(_CHAINS[type(node)], *(self.bind(part, depth) for part in operands_of(node, type(node))))

    def negation(self, node: exp.Unary, depth: int) -> Expr:
        refuse_arguments(self.source, node, "this")
        return call("not" if isinstance(node, exp.Not) else "~", self.bind(node.this, depth))

    def minus(self, node: exp.Neg, depth: int) -> Expr:
        refuse_arguments(self.source, node, "this")
        if isinstance(node.this, exp.Literal) and not node.this.is_string:
            return literal_of(node.this, sign="-")
        return call("neg", self.bind(node.this, depth))

    def is_(self, node: exp.Is, depth: int) -> Expr:
        """IS NULL, IS TRUE and IS FALSE, with NOT."""
        refuse_arguments(self.source, node, "this", "expression", "negate")
        value, expected = self.bind(node.this, depth), node.expression
        if isinstance(expected, exp.Null):
            found = call("is null", value)
        elif isinstance(expected, exp.Boolean):
            found = call("coalesce", value if expected.this else call("not", value), literal(False))
        else:
            raise self.source.error(self.source.span(node), "IS takes NULL, TRUE or FALSE", "write x = y")
        return call("not", found) if node.args.get("negate") else found

    def like(self, node: exp.Like, depth: int) -> Expr:
        refuse_arguments(self.source, node, "this", "expression", "negate", "flag")
        found = call(_MATCHES[type(node)], self.bind(node.this, depth), self.bind(node.expression, depth))
        return call("not", found) if node.args.get("negate") else found

    def with_keywords(self, node: exp.Expr, depth: int) -> Expr:
        """A function whose arguments have keywords between them, as in POSITION(t IN s)."""
        name, keys = _KEYWORD_CALLS[type(node)]
        refuse_arguments(self.source, node, *keys, *(("position",) if name == "trim" else ()))
        name = _TRIMS.get(str(node.args.get("position") or ""), name) if name == "trim" else name
        parts = (node.args.get(key) for key in keys)
        return call(name, *(self.bind(part, depth) for part in parts if part is not None))

    def exists(self, node: exp.Exists, _: int) -> Expr:
        refuse_arguments(self.source, node, "this")
        return self.sub_selects(node).exists(self.branches(node.this), self.scope)

    def scalar(self, node: exp.Query, _: int) -> Expr:
        found = self.sub_selects(node).value(self.branches(node, often=True), self.scope)
        if found is None:
            raise unsupported(self.source, node)
        return found

    def sub_selects(self, node: exp.Expr) -> SubSelects:
        """What takes the sub-selects of this expression; they are refused where nothing does."""
        if self.scope.sub_selects is None:
            raise unsupported(self.source, node)
        return self.scope.sub_selects

    def branches(self, node: exp.Expr, *, often: bool = False) -> tuple[Statement, ...]:
        """The sub-select that a node is; DISTINCT says nothing where it does not matter how ``often`` a row comes."""
        if id(node) not in self.piece.selects:
            raise unsupported(self.source, node)
        found = self.piece.selects[id(node)]
        return found if often else tuple(replace(branch, distinct=False) for branch in found)

    def values(self, node: exp.Expr, depth: int) -> tuple[Expr, ...]:
        """The values that are compared with the columns of a sub-select: one, or several in parentheses."""
        bare = bare_node(node)
        parts = bare.expressions if isinstance(bare, exp.Tuple) else [node]
        return tuple(self.bind(part, depth) for part in parts)

    def tested(self, operator: str, node: exp.Expr, value: exp.Expr, query: exp.Expr, negated: bool) -> Expr:
        """Whether a comparison holds for some row of a sub-select or, negated, fails for every row."""
        selects = self.sub_selects(node)
        test = selects.fails_for_all if negated else selects.holds_for_some
        return test(operator, self.values(value, 1), self.branches(query), self.scope)

    def membership(self, node: exp.In, depth: int) -> Expr:
        refuse_arguments(self.source, node, "this", "expressions", "query")
        if node.args.get("query"):
            branches = self.branches(node.args["query"])
            return self.sub_selects(node).compared("=", self.values(node.this, depth), branches, self.scope)
        if not node.expressions:
            raise QueryError("IN needs a list", hint="write x IN (1, 2)")
        needle = self._repeated(node.this, depth, len(node.expressions))
        return call("in", needle, *(self.bind(option, depth) for option in node.expressions))

    def between(self, node: exp.Between, depth: int) -> Expr:
        refuse_arguments(self.source, node, "this", "low", "high")
        low, high = node.args["low"], node.args["high"]
        if not self.source.has_between(TokenType.AND, low, high):
            raise QueryError("BETWEEN needs AND", hint="write x BETWEEN 1 AND 2")
        value = self._repeated(node.this, depth, 2)
        return call(
            "and", call(">=", value, self.bind(low, depth)), call("<=", value, self.bind(high, depth))
        )

    def case(self, node: exp.Case, depth: int) -> Expr:
        refuse_arguments(self.source, node, "this", "ifs", "default")
        subject = self._repeated(node.this, depth, len(node.args["ifs"])) if node.args.get("this") else None
        args: list[Expr] = []
        for branch in node.args["ifs"]:
            refuse_arguments(self.source, branch, "this", "true")
            if not self.source.has_between(TokenType.THEN, branch.this, branch.args["true"]):
                raise QueryError("WHEN needs THEN", hint="write CASE WHEN x THEN y ELSE z END")
            when = self.bind(branch.this, depth)
            args += (call("=", subject, when) if subject else when, self.bind(branch.args["true"], depth))
        default = node.args.get("default")
        return call("case", *args, self.bind(default, depth) if default else literal_of(exp.Null()))

    def if_(self, node: exp.If, depth: int) -> Expr:
        refuse_arguments(self.source, node, "this", "true", "false")
        parts = (node.this, node.args["true"], node.args.get("false") or exp.Null())
        return call("case", *(self.bind(part, depth) for part in parts))

    def cast(self, node: exp.Cast, depth: int) -> Expr:
        refuse_arguments(self.source, node, "this", "to")
        return cast(self.bind(node.this, depth), type_of(self.source, node))

    def interval(self, node: exp.Interval, _: int) -> Expr:
        refuse_arguments(self.source, node, "this", "unit", "fraction_in_string")
        return interval(node)

    def function(self, node: exp.Anonymous, depth: int) -> Expr:
        refuse_arguments(self.source, node, "this", "expressions")
        name = node.name.lower()
        if name in AGGREGATES and self.scope.function(node.name) is None:
            return self._aggregate(node, None, depth)
        if name in WINDOW_CALLS and self.scope.groups is not None:
            return self.scope.groups.edge(name, node, self.piece)
        if is_built_in(name):
            name, args = name_unit(SYNONYMS.get(name, name), node.expressions)
            return call(name, *(self.bind(arg, depth) for arg in args))
        own = self.scope.function(node.name)
        if own is None:
            raise unknown_function(node.name, (function.name for function in self.scope.functions))
        return own.call([self.bind(arg, depth) for arg in node.expressions])

    def extract(self, node: exp.Extract, depth: int) -> Expr:
        refuse_arguments(self.source, node, "this", "expression")
        return call("date_part", literal(node.name), self.bind(node.expression, depth))

    def filtered(self, node: exp.Filter, depth: int) -> Expr:
        refuse_arguments(self.source, node, "this", "expression")
        inner, where = node.this, node.expression
        if not isinstance(inner, exp.Anonymous) or inner.name.lower() not in AGGREGATES:
            raise unsupported(self.source, node)
        return self._aggregate(inner, where.this, depth)

    def _aggregate(self, node: exp.Anonymous, where: exp.Expr | None, depth: int) -> Expr:
        """An aggregate, whose arguments may have no others in them."""
        if self.scope.groups is None:
            raise QueryError(
                f"{node.name} is an aggregate, and cannot stand here",
                hint="aggregates stand in SELECT and HAVING, and not inside each other",
            )
        inside = replace(self, scope=replace(self.scope, groups=None))
        args, distinct = node.expressions, False
        if len(args) == 1 and isinstance(args[0], exp.Distinct):
            args, distinct = args[0].expressions, True
        if len(args) == 1 and isinstance(args[0], exp.Star) and node.name.lower() == "count":
            args = []
        condition = None if where is None else inside.bind(where, depth)
        bound = [inside.bind(arg, depth) for arg in args]
        return self.scope.groups.aggregate(aggregate_name(node.name), bound, condition, distinct)

    def _repeated(self, node: exp.Expr, depth: int, times: int) -> Expr:
        """An operand that its operator repeats; a large one is refused, since nested repetition has no limit."""
        expr = self.bind(node, depth)
        if times * count_terms([expr]) > _LARGEST:
            raise self.source.error(self.source.span(node), "this is too large to be compared several times")
        return expr


_Handler = Callable[[_Binder, Any, int], Expr]
_HANDLERS: dict[type[exp.Expr], _Handler] = {
    **dict.fromkeys((exp.Literal, exp.Boolean, exp.Null), _Binder.constant),
    **dict.fromkeys(_BINARY, _Binder.binary),
    **dict.fromkeys(_CHAINS, _Binder.chain),
    **dict.fromkeys((exp.Cast, exp.TryCast), _Binder.cast),
    **dict.fromkeys((exp.NullSafeEQ, exp.NullSafeNEQ), _Binder.null_safe),
    exp.Paren: _Binder.paren,
    exp.Column: _Binder.column,
    exp.Not: _Binder.negation,
    exp.Neg: _Binder.minus,
    exp.Is: _Binder.is_,
    exp.BitwiseNot: _Binder.negation,
    **dict.fromkeys(_KEYWORD_CALLS, _Binder.with_keywords),
    **dict.fromkeys(_MATCHES, _Binder.like),
    exp.In: _Binder.membership,
    exp.Exists: _Binder.exists,
    exp.Between: _Binder.between,
    exp.Case: _Binder.case,
    exp.If: _Binder.if_,
    exp.Interval: _Binder.interval,
    exp.Extract: _Binder.extract,
    exp.Anonymous: _Binder.function,
    **dict.fromkeys((exp.Subquery, exp.Select), _Binder.scalar),
    exp.Dot: _Binder.dot,
    exp.Bracket: _Binder.item,
    exp.Filter: _Binder.filtered,
}
