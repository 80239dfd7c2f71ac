"""What SELECT gives, under which names, and in which order.

Guarantees: every column of the result has a name of its own. The rule: a name after AS stands as it is; `*` and
`v.*` name their columns alias_column, in the order of FROM; a plain column keeps its name unless another column
of the result has it too, then it is alias_column; any other expression is col_N, N being its position, from 1.
A column is called as its stream spells it, or as AS or a sub-select in FROM names it.

Where FROM has USING, `*` gives the columns that SQL gives: those of USING first, once each, then the others from left
to right. They keep their names; of several with one name that of USING keeps it, and the others are alias_column.

In ORDER BY a number is the place of a column; a name alone is a column of the result if one has it, as in Spark; any
other expression is over columns of the result and of FROM, in a SELECT with groups over keys and aggregates. What is
not selected becomes a hidden column of the result.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import count

from sqlglot import exp

from weft.errors import QueryError, SqlError, nearest
from weft.logical.expr.expression import Call, Column, Expr, Literal, columns, to_sql
from weft.logical.names import identifier
from weft.logical.query.query import PRESENT, Output, with_distinct_names
from weft.logical.query.sorting import Sorting, SortKey, hidden_name
from weft.sql.expressions import bind_expression
from weft.sql.reject import refuse_arguments, unsupported
from weft.sql.scope import PROVENANCE, Given, Merged, Scope, Shown
from weft.sql.source import Piece, SqlText, bare_node
from weft.sql.statement import Item, Statement

__all__ = ["bind_outputs", "bind_sorting"]


@dataclass(frozen=True, slots=True)
class _Draft:
    """A column of the result, with the name that it must have or the one that it has if no other column wants it."""

    item: Item
    expr: Expr
    name: str | None = None
    wish: str | None = None
    fallback: str | None = None  # the name it has if its wish is not granted

    @property
    def taken(self) -> str:
        """The name that this column must or may have, in lower case; empty if there is none."""
        return (self.name or self.wish or "").lower()


def bind_outputs(items: Sequence[Item], scope: Scope, *, plain: bool = False) -> tuple[Output, ...]:
    """The columns of the result; if they are ``plain``, as those of a sub-select, ``*`` keeps their names."""
    drafts = [draft for item in items for draft in _drafts(item, scope, plain)]
    taken = [draft.taken for draft in drafts]
    outputs: dict[str, Output] = {}
    for position, draft in enumerate(drafts, start=1):
        output = Output(_final_name(draft, position, taken), draft.expr)
        if output.name.lower() in outputs:
            first = list(outputs).index(output.name.lower())
            raise _twice(output.name, (first + 1, drafts[first]), (position, draft), {*outputs, *taken})
        outputs[output.name.lower()] = output
    return tuple(outputs.values())


def _final_name(draft: _Draft, position: int, taken: list[str]) -> str:
    if draft.name is not None:
        return draft.name
    if draft.wish is not None and taken.count(draft.wish.lower()) == 1:
        return draft.wish
    if draft.fallback is not None:
        return draft.fallback
    if isinstance(draft.expr, Column) and draft.expr.alias:
        return f"{draft.expr.alias}_{draft.expr.name}"
    return f"col_{position}"


def _wish(expr: Expr, written: str, shown: Iterable[Shown]) -> str | None:
    """The name of the column that an expression reads, as its stream or sub-select spells it; None if it reads none."""
    if isinstance(expr, Call) and expr.function == "." and isinstance(expr.args[1], Literal):
        return str(expr.args[1].value)
    same = [one for one in shown if one.name.lower() == written and not isinstance(one, Column)]
    given = next((one.name for one in same if isinstance(one, Given) and one.expr == expr), None)
    read = [column.name for column in columns(expr)]
    plain = next((name for name in read if name != PRESENT), None)
    if given or plain or isinstance(expr, Column):
        return given or plain or PRESENT
    return next((one.name for one in same), PROVENANCE if read else None)


def _twice(
    name: str, first: tuple[int, _Draft], second: tuple[int, _Draft], taken: Collection[str]
) -> SqlError:
    """The error for two columns of one name; it says which they are, and what to write for the second."""
    (one, draft), (other, again) = first, second
    known = to_sql(draft.expr) == to_sql(again.expr)
    which = f"both are {to_sql(draft.expr)}" if known else f"{to_sql(draft.expr)} and {to_sql(again.expr)}"
    free = next(new for number in count(2) if (new := f"{name}_{number}").lower() not in taken)
    leave = "leave one out, or " if known else ""
    hint = f"{leave}name one with AS, as in {to_sql(again.expr)} AS {identifier(free)}"
    message = f"columns {one} and {other} of the result are both called {name}: {which}"
    place = again.item.alias or again.item.value
    return place.error(message, hint)


def _drafts(item: Item, scope: Scope, plain: bool) -> Iterator[_Draft]:
    node, source = item.value.node, item.value.source
    is_star = isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))
    if not is_star:
        expr = bind_expression(item.value, scope)
        wish = _wish(expr, node.name.lower(), scope.shown) if isinstance(node, exp.Column) else None
        yield _Draft(item, expr, item.alias.text if item.alias else None, wish)
        return
    if item.alias is not None:
        raise item.alias.error("* cannot have a name", "name the columns one by one")
    qualified = isinstance(node, exp.Column)
    shown: Iterable[Shown] = scope.shown
    if qualified:
        refuse_arguments(source, node, "this", "table")
        try:
            shown = scope.input(node.args["table"].name).shown
        except QueryError as error:
            raise source.blame(node.args["table"], error) from None
        node = node.this
    if not isinstance(node, exp.Star):
        raise unsupported(source, node)
    refuse_arguments(source, node, "except_")
    kept = _without(source, node, tuple(shown))
    if plain:
        yield from (_Draft(item, _value(column), None, column.name, _long_name(column)) for column in kept)
        return
    for output in _star(kept):
        yield _Draft(item, output.expr, output.name)


def _without(source: SqlText, star: exp.Star, shown: tuple[Shown, ...]) -> tuple[Shown, ...]:
    """The columns but for those that EXCEPT lists."""
    for node in star.args.get("except_") or ():
        name, table = node.name.lower(), node.text("table").lower()
        left_out = [c for c in shown if c.name.lower() == name and (not table or table in _owners(c))]
        if not left_out:
            hint = nearest(node.name, (column.name for column in shown))
            raise source.error(source.span(node), f"* gives no column {node.name}", hint)
        shown = tuple(column for column in shown if column not in left_out)
    if not shown:
        raise source.error(source.span(star), "EXCEPT leaves no column", "name what to select")
    return shown


def _owners(column: Shown) -> set[str]:
    names = column.aliases if isinstance(column, Merged) else {column.alias}
    return {name.lower() for name in names}


def _value(column: Shown) -> Expr:
    return column if isinstance(column, Column) else column.expr


def _long_name(column: Shown) -> str:
    """The name of a column whose own name another has, too."""
    owner = min(column.aliases) if isinstance(column, Merged) else column.alias
    return f"{owner}_{column.name}"


def _star(shown: Sequence[Shown]) -> tuple[Output, ...]:
    """The columns of ``*`` under their names: short ones where USING says that equal names mean one column."""
    if not any(isinstance(column, Merged) for column in shown):
        return with_distinct_names((_long_name(column), _value(column)) for column in shown)
    of_using = Counter(column.name.lower() for column in shown if isinstance(column, Merged))
    of_all = Counter(column.name.lower() for column in shown)
    named: list[tuple[str, Expr]] = []
    for column in shown:
        name, rivals = column.name.lower(), of_using if isinstance(column, Merged) else of_all
        expr = _value(column)
        first = next(columns(expr)) if not isinstance(column, Given) else column
        named.append((first.name if rivals[name] == 1 else f"{first.alias}_{first.name}", expr))
    return with_distinct_names(named)


def bind_sorting(
    statement: Statement, outputs: Sequence[Output], scope: Scope
) -> tuple[tuple[Output, ...], Sorting | None]:
    """The hidden columns that ORDER BY needs beside those of the result, and how rows are sorted and cut."""
    if not statement.order and statement.limit is None and not statement.offset:
        return (), None
    every, keys = list(outputs), list[SortKey]()
    for item in statement.order:
        expr = _meant(item.value, outputs, scope)
        if isinstance(expr, Literal):
            continue  # it is the same for all rows
        if isinstance(expr, Output):
            name, kind = expr.name, expr.expr.type
        else:
            name, kind = _sorted_by(expr, every), expr.type
        if kind.is_nested:
            raise item.value.error(
                f"rows cannot be sorted by a {kind}", "sort by a field or an element of it"
            )
        if name == hidden_name(len(every)) and not isinstance(expr, Output):
            if statement.distinct:
                raise item.value.error(
                    "ORDER BY of SELECT DISTINCT names what is not selected", "select it, too"
                )
            every.append(Output(name, expr))
        if all(key.column != name for key in keys):
            keys.append(SortKey(name, item.descending, item.nulls_first))
    return tuple(every[len(outputs) :]), Sorting(tuple(keys), statement.limit, statement.offset)


def _meant(piece: Piece, outputs: Sequence[Output], scope: Scope) -> Output | Expr:
    """What a key of ORDER BY means: a column of the result, or an expression."""
    node = bare_node(piece.node)
    if isinstance(node, exp.Literal) and not node.is_string and node.name.isdigit():
        if not 1 <= int(node.name) <= len(outputs):
            raise piece.error(
                f"the result has no column {node.name}", f"write a number from 1 to {len(outputs)}"
            )
        return outputs[int(node.name) - 1]
    if isinstance(node, exp.Column) and not node.table:
        named = [output for output in outputs if output.name.lower() == node.name.lower()]
        if named:
            return named[0]
    # an aggregate is over columns of FROM, whatever the result calls its own
    free = [one for one in outputs if scope.groups is None or not scope.has_column(one.name)]
    return bind_expression(piece, replace(scope, selected={one.name.lower(): one.expr for one in free}))


def _sorted_by(expr: Expr, outputs: Sequence[Output]) -> str:
    """The name of the column of a result that is this expression; a new one if there is none."""
    same = (output.name for output in outputs if output.expr == expr)
    return next(same, hidden_name(len(outputs)))
