"""Hypothesis strategies for catalogs, typed expressions, queries, and the calls and texts that state them.

Guarantees: what is drawn is valid: an expression has the kind asked for, a query passes its own checks.
Expressions come from the whole function table.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date, datetime, timedelta

from hypothesis import strategies as st

from weft.errors import QueryError
from weft.logical.catalog import Catalog
from weft.logical.expr.builtin.entry import Function
from weft.logical.expr.conversion import cast, literal
from weft.logical.expr.expression import Column, Expr, Literal, aliases, identifier
from weft.logical.expr.functions import FUNCTIONS, SECTIONS, call
from weft.logical.query.join_tree import ASOF, Join
from weft.logical.query.query import Input, Output, Query, make_query
from weft.logical.query.window import UNBOUNDED, Range, Rows, Window
from weft.logical.schema import Field, Schema, Stream, parse_type
from weft.sql.builder import Builder, from_

TYPES = (
    *("byte", "short", "int", "long", "float", "double", "decimal(10,2)", "decimal(38,6)"),
    *("string", "boolean", "date", "timestamp"),
)
# Sorts of values that are interchangeable as arguments.
UNTIMED = tuple(
    kind for kind in Join.KINDS if kind not in ASOF
)  # of any conditions; ASOF joins compare times
KINDS = {
    "number": ("byte", "short", "int", "long", "float", "double", "decimal"),
    "integer": ("byte", "short", "int", "long"),
    "string": ("string",),
    "boolean": ("boolean",),
    "time": ("date", "timestamp"),
    "timestamp": ("timestamp",),
    "interval": ("interval",),
}
WORDS = (
    "a",
    "b",
    "c",
    "v",
    "w",
    "x1",
    "user",
    "ts",
    "select",
    "Order",
    "date",
    "left",
    "end",
    "größe",
    "名前",
    "_x",
)

words = st.sampled_from(WORDS)
odd_names = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
durations = st.timedeltas(timedelta(microseconds=1), timedelta(days=100_000))


def alias_names(count: int) -> st.SearchStrategy[list[str]]:
    """Distinct names of inputs; some can only be written in quotes."""
    return st.lists(words | odd_names, min_size=count, max_size=count, unique_by=str.lower)


windows: st.SearchStrategy[Window] = st.one_of(
    st.just(UNBOUNDED),
    st.builds(Rows, st.integers(1, (1 << 63) - 1)),
    st.builds(Range, durations),
    st.sampled_from([Range(timedelta(minutes=10)), Rows(1000), Range(timedelta(milliseconds=1500))]),
)


@st.composite
def streams(draw: st.DrawFn, name: str) -> Stream:
    """A stream with a column of every type, in some order, under some names."""
    types = _rotated(TYPES, draw(st.integers(0, len(TYPES) - 1)))
    names = _rotated(WORDS, draw(st.integers(0, len(WORDS) - 1)))
    fields = tuple(Field(n, parse_type(t)) for n, t in zip(names, types, strict=False))
    event_time = names[types.index("timestamp")] if draw(st.booleans()) else None
    return Stream(name, Schema(fields), event_time)


def _rotated(values: Sequence[str], by: int) -> list[str]:
    return [*values[by:], *values[:by]]


@st.composite
def catalogs(draw: st.DrawFn, most: int = 3) -> Catalog:
    """One to a few streams."""
    names = draw(st.lists(words, min_size=1, max_size=most, unique_by=str.lower))
    return Catalog(tuple(draw(streams(name)) for name in names))


texts = st.one_of(
    st.sampled_from(
        ["", "a", "it's", 'say "x"', "back\\slash", "\\n", "two\nlines", "tab\t", "100%", "_", "é", "名", "`"]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=8),
)
integers = st.one_of(
    st.sampled_from([0, 1, -1, 127, 128, -128, 1 << 31, -(1 << 31), (1 << 63) - 1, -(1 << 63)]),
    st.integers(-(1 << 63), (1 << 63) - 1),
)
floats = st.one_of(
    st.sampled_from([0.0, -0.0, 1.0, 1.5, 1e-07, 1e300, -1e22, 5e-324]),
    st.floats(allow_nan=False, allow_infinity=False),
)
intervals = st.timedeltas(timedelta(days=-100_000), timedelta(days=100_000))

LITERALS: dict[str, st.SearchStrategy[Literal]] = {
    "number": (integers | floats).map(literal),
    "integer": integers.map(literal),
    "string": texts.map(literal),
    "boolean": st.booleans().map(literal),
    "time": (st.dates(date(1, 1, 1)) | st.datetimes(datetime(1, 1, 1))).map(literal),
    "timestamp": st.datetimes(datetime(1, 1, 1)).map(literal),
    "interval": intervals.map(literal),
    "bits": st.sampled_from((224, 256)).map(literal),
    "path": st.sampled_from(("$", "$.a", "$.a[0]['b c']")).map(literal),
    "format": st.sampled_from(("yyyy-MM-dd", "d.M.yy HH:mm", "''at'' h a", "yyyyMMdd HHmmss.SSS")).map(
        literal
    ),
}

# Which kinds of arguments give which kind of value; every function of the table is here.
SIGNATURES: dict[str, list[tuple[str, tuple[str, ...]]]] = {
    "number": [
        *(
            (name, ("number", "number"))
            for name in ("+", "-", "*", "/", "%", "power", "greatest", "least", "nullif")
        ),
        *(
            (name, ("number",))
            for name in ("neg", "abs", "ceil", "floor", "sign", "round", "exp", "ln", "sqrt")
        ),
        *((name, ("time",)) for name in ("year", "month", "day", "hour", "minute", "second")),
        ("round", ("number", "integer")),
        ("coalesce", ("number", "number", "number")),
        ("case", ("boolean", "number", "boolean", "number", "number")),
        ("length", ("string",)),
        ("levenshtein", ("string", "string")),
        ("unix_micros", ("timestamp",)),
        ("second_with_fraction", ("time",)),
        ("unix_timestamp", ("time",)),
        ("pmod", ("number", "number")),
        ("nanvl", ("number", "number")),
    ],
    "integer": [
        *((name, ("integer", "integer")) for name in ("&", "|", "^")),
        *((name, ("integer", "integer")) for name in ("shiftleft", "shiftright", "shiftrightunsigned")),
        ("~", ("integer",)),
        ("regexp_count", ("string", "string")),
        ("length", ("string",)),
        ("ceil", ("number",)),
        ("year", ("time",)),
    ],
    "string": [
        *((name, ("string",)) for name in ("lower", "upper", "trim", "ltrim", "rtrim", "reverse")),
        ("concat", ("string", "string", "string")),
        ("replace", ("string", "string", "string")),
        ("substring", ("string", "integer", "integer")),
        ("coalesce", ("string", "string")),
        ("case", ("boolean", "string", "string")),
        ("hex", ("string",)),
        ("date_format", ("time", "format")),
        ("sha2", ("string", "bits")),
        ("get_json_object", ("string", "path")),
        ("regexp_extract", ("string", "string")),
        ("regexp_replace", ("string", "string", "string")),
    ],
    "boolean": [
        *(
            (name, (kind, kind))
            for name in ("=", "<>", "<", "<=", ">", ">=")
            for kind in ("number", "string", "time")
        ),
        *((name, ("interval", "interval")) for name in ("=", "<", ">=")),
        *((name, ("string", "string")) for name in ("like", "startswith", "endswith", "contains")),
        *((name, ("boolean", "boolean", "boolean")) for name in ("and", "or")),
        *(("in", (kind, kind, kind)) for kind in ("number", "string", "time")),
        *(("is null", (kind,)) for kind in ("number", "string", "boolean", "time", "interval")),
        ("not", ("boolean",)),
        ("rlike", ("string", "string")),
        ("=", ("boolean", "boolean")),
    ],
    "time": [
        ("+", ("time", "interval")),
        ("+", ("interval", "time")),
        ("-", ("time", "interval")),
        ("add_months", ("time", "integer")),
        ("greatest", ("time", "time")),
        ("coalesce", ("time", "time")),
    ],
    "timestamp": [("+", ("timestamp", "interval")), ("to_timestamp", ("string", "format"))],
    "interval": [
        ("-", ("time", "time")),
        ("+", ("interval", "interval")),
        ("-", ("interval", "interval")),
        ("*", ("interval", "integer")),
        ("neg", ("interval",)),
    ],
}
DRAWN_AS = {
    **dict.fromkeys(("byte", "int", "long", "integer"), "integer"),
    **dict.fromkeys(("double", "number"), "number"),
    **dict.fromkeys(("string", "text", "binary"), "string"),
    **dict.fromkeys(("date", "time"), "time"),
    **dict.fromkeys(("boolean", "timestamp", "interval"), ""),
    "any": "number",
}


def _drawn(entry: Function) -> None:
    """Add a function to the table by its signature, with as few and with as many arguments as it takes."""
    signature = entry.signature
    if signature is None or any(entry.name == name for rows in SIGNATURES.values() for name, _ in rows):
        return
    kinds = tuple(DRAWN_AS[kind] or kind for kind in (one.lstrip("=") for one in signature.kinds))
    result = signature.kinds[0] if signature.result == "first" else signature.result
    for count in {signature.least, len(kinds)}:
        SIGNATURES[DRAWN_AS.get(result, "") or result].append((entry.name, kinds[:count]))


for _entry in FUNCTIONS.values():
    _drawn(_entry)
# What becomes another expression when it is bound, what takes the name of a unit, and what has values inside, which
# `tests/unit/sql/test_inside.py` prints and reads.
OTHERWISE = {name for name, entry in FUNCTIONS.items() if entry.rewritten} | {"timestampadd", "timestampdiff"}
OTHERWISE |= {"array", "named_struct", ".", "[]", "json_object_keys"} | {
    entry.name for entry in SECTIONS["Functions of lists"]
}
UNTESTED = set(FUNCTIONS) - OTHERWISE - {name for rows in SIGNATURES.values() for name, _ in rows}


@st.composite
def leaves(draw: st.DrawFn, inputs: Sequence[Input], kind: str) -> Expr:
    """A column of the kind, or a constant."""
    if kind in ("format", "bits", "path"):
        return draw(LITERALS[kind])
    columns = [column for input_ in inputs for column in input_.columns if column.type.name in KINDS[kind]]
    luck = draw(st.integers(0, 80))
    if columns and luck % 4:
        return draw(st.sampled_from(columns))
    return draw(LITERALS[kind]) if luck else literal(None)


@st.composite
def expressions(draw: st.DrawFn, inputs: Sequence[Input], kind: str, depth: int = 4) -> Expr:
    """A typed expression over the inputs, at most so deep."""
    if depth <= 1 or kind in ("format", "bits", "path") or not draw(st.integers(0, 3)):
        return draw(leaves(inputs, kind))
    function, kinds = draw(st.sampled_from([*SIGNATURES[kind], ("cast", ())]))
    try:
        if function == "cast":
            return draw(casts(inputs, kind, depth - 1))
        return call(function, *(draw(expressions(inputs, argument, depth - 1)) for argument in kinds))
    except QueryError:  # two types that do not meet, or a constant out of range
        return draw(leaves(inputs, kind))


@st.composite
def casts(draw: st.DrawFn, inputs: Sequence[Input], kind: str, depth: int) -> Expr:
    """A cast to a type of the kind."""
    names = [name for name in TYPES if parse_type(name).name in KINDS[kind]]
    if not names:
        return draw(leaves(inputs, kind))
    sources = {"time": ["time"], "timestamp": ["time"], "boolean": ["string", "number"]}.get(
        kind, ["number", "string"]
    )
    inner = draw(expressions(inputs, draw(st.sampled_from(sources)), depth))
    return cast(inner, parse_type(draw(st.sampled_from(names))))


@st.composite
def links(draw: st.DrawFn, left: Sequence[Input], right: Sequence[Input]) -> Expr:
    """A predicate that mentions an input of either side."""
    one, other = draw(st.sampled_from(left)), draw(st.sampled_from(right))
    kind = draw(st.sampled_from(["number", "string", "time"]))
    sides = [draw(expressions([input_], kind, 2)) for input_ in (one, other)]
    columns = [draw(st.sampled_from(_of_kind(input_, kind))) for input_ in (one, other)]
    sides = [side if aliases(side) else column for side, column in zip(sides, columns, strict=True)]
    function = draw(st.sampled_from(["=", "=", "=", "<", "<="]))
    try:
        return call(function, *sides)
    except QueryError:
        return call(function, *columns)


def _of_kind(input_: Input, kind: str) -> list[Column]:
    return [column for column in input_.columns if column.type.name in KINDS[kind]]


@st.composite
def conditions(draw: st.DrawFn, inputs: Sequence[Input], most: int = 3, depth: int = 4) -> list[Expr]:
    """Some predicates over some of the inputs."""
    found = draw(st.lists(expressions(inputs, "boolean", depth), max_size=most))
    # A constant among the conjuncts says nothing about any stream, and is refused.
    return [expr for expr in found if _about_streams(expr)]


def _about_streams(expr: Expr) -> bool:
    terms = expr.args if not isinstance(expr, Column | Literal) and expr.function == "and" else (expr,)
    return all(aliases(term) for term in terms)


@st.composite
def input_lists(draw: st.DrawFn, catalog: Catalog, least: int = 2, most: int = 5) -> list[Input]:
    """Inputs with distinct aliases; streams may repeat."""
    names = draw(alias_names(draw(st.integers(least, most))))
    return [draw(one_input(catalog, name)) for name in names]


@st.composite
def one_input(draw: st.DrawFn, catalog: Catalog, name: str) -> Input:
    """A stream through a window, which may count per some of its columns."""
    stream, window = draw(st.sampled_from(catalog.streams)), draw(windows)
    if isinstance(window, Rows) and draw(st.booleans()):
        per = draw(st.lists(st.sampled_from(stream.schema.names), unique=True, max_size=3))
        window = Rows(window.count, tuple(sorted(per)))
    return Input(name, stream, window)


@st.composite
def projections(draw: st.DrawFn, inputs: Sequence[Input]) -> list[Output]:
    """A few named expressions."""
    names = draw(alias_names(draw(st.integers(1, 3))))
    kinds = st.sampled_from(["number", "string", "boolean", "time", "interval"])
    return [Output(name, draw(expressions(inputs, draw(kinds), 3))) for name in names]


@st.composite
def queries(draw: st.DrawFn, catalog: Catalog, least: int = 2, most: int = 5) -> Query:
    """An inner join, now and then with a cross product."""
    inputs = draw(input_lists(catalog, least, most))
    crossed = draw(st.integers(0, 9)) == 0
    where = [] if crossed else [draw(links(inputs[:i], [inputs[i]])) for i in range(1, len(inputs))]
    where += draw(conditions(inputs))
    return make_query(inputs, where, draw(projections(inputs)), cross=crossed)


@st.composite
def outer_queries(draw: st.DrawFn, catalog: Catalog, most: int = 4) -> Query:
    """A query with at least one outer join, nested either way."""
    inputs = draw(input_lists(catalog, 2, most))
    tree = draw(join_trees(inputs, UNTIMED[1:]))
    seen = _seen(inputs, tree)
    where = draw(conditions(seen, 1, 3))
    return make_query(inputs, where, draw(projections(seen)), outer=tree, cross=True)


@st.composite
def join_trees(draw: st.DrawFn, inputs: Sequence[Input], kinds: Sequence[str]) -> Join:
    """A join tree over the inputs, in order; its root is of one of the kinds."""
    cut = draw(st.integers(1, len(inputs) - 1))
    sides = [
        draw(join_trees(part, UNTIMED)) if len(part) > 1 else part[0].alias
        for part in (inputs[:cut], inputs[cut:])
    ]
    kind = draw(st.sampled_from(list(kinds)))
    left, right = (_seen(inputs, side) for side in sides)
    on = [draw(links(left, right))] if kind != "inner" or draw(st.booleans()) else []
    return Join(kind, sides[0], sides[1], (*on, *draw(conditions([*left, *right], 1, 2))))


def _seen(inputs: Sequence[Input], node: Join | str) -> list[Input]:
    shown = node.visible if isinstance(node, Join) else (node,)
    return [input_ for input_ in inputs if input_.alias in shown]


def to_builder(query: Query) -> Builder:
    """The builder's calls that state a query."""
    builder = _outer_builder(query, query.outer) if query.outer else _inner_builder(query)
    builder = builder.select(*(f"{output.expr} AS {identifier(output.name)}" for output in query.projection))
    equalities = (equality for key in query.keys for equality in key.equalities())
    builder = builder.where(*map(str, (*query.conditions, *equalities)))
    return builder.cross() if query.cross else builder


def _inner_builder(query: Query) -> Builder:
    builder = Builder()
    for input_ in query.inputs:
        builder = builder.from_(input_.stream.name, alias=input_.alias, window=input_.window)
    return builder


def _outer_builder(query: Query, node: Join | str) -> Builder:
    if isinstance(node, str):
        input_ = query.input(node)
        return from_(input_.stream.name, alias=input_.alias, window=input_.window)
    left, right = _outer_builder(query, node.left), _outer_builder(query, node.right)
    on = " AND ".join(f"({expr})" for expr in node.on) or None
    return left.join(right, on=on, kind=node.kind)
