"""Lists, maps and structs: how they are made, and how what is inside is reached."""

from __future__ import annotations

from collections.abc import Sequence

from weft.errors import QueryError, nearest
from weft.logical.expr.builtin.entry import Function, define
from weft.logical.expr.conversion import LONG, coerce
from weft.logical.expr.expression import Expr, Literal, make_call, to_sql
from weft.logical.expr.rules import mismatch, same_type
from weft.logical.schema import DataType

__all__ = ["NESTED"]


def field(function: str, args: Sequence[Expr]) -> Expr:
    """A field of a struct, by its name, upper or lower case."""
    struct, name = args
    if struct.type.kind != "struct" or not isinstance(name, Literal):
        raise QueryError(
            f"{to_sql(struct)} is a {struct.type}, and has no fields",
            hint="only a struct has fields; write x[0] for an element of an array, x['k'] for a value of a map",
        )
    for known, type_ in struct.type.inside:
        if known.lower() == str(name.value).lower():
            return make_call(function, (struct, Literal(known, name.type)), type_)
    names = [known for known, _ in struct.type.inside]
    raise QueryError(f"{to_sql(struct)} has no field {name.value}", hint=nearest(str(name.value), names))


def item(function: str, args: Sequence[Expr]) -> Expr:
    """An element of an array by its place, from 0, or a value of a map by its key."""
    many, place = args
    if many.type.kind == "array":
        if not (place.type.is_integer or place.type.name == "null"):
            raise QueryError(
                f"{to_sql(place)} is a {place.type}, and no place in an array", hint="use a whole number"
            )
        return make_call(function, (many, coerce(place, LONG)), many.type.inside[0][1])
    if many.type.kind == "map":
        (_, key), (_, value) = many.type.inside
        return make_call(function, (many, coerce(place, key)), value)
    if many.type.kind == "struct" and isinstance(place, Literal):
        return field(".", args)
    raise mismatch("[ ]", args, "it takes an element of an array, or a value of a map")


def array(function: str, args: Sequence[Expr]) -> Expr:
    """A list of values of one type."""
    same = same_type(args, function)
    return make_call(function, same, DataType(f"array<{same[0].type}>"))


def named_struct(function: str, args: Sequence[Expr]) -> Expr:
    """A struct of names and values by turns."""
    names, values = args[::2], args[1::2]
    texts = [name.value for name in names if isinstance(name, Literal) and isinstance(name.value, str)]
    if len(texts) < len(names) or len(names) > len(values) or not all(text.isidentifier() for text in texts):
        raise QueryError(
            "named_struct takes names, which are constant texts, and values by turns",
            hint="write named_struct('a', x, 'b', y)",
        )
    if len({text.lower() for text in texts}) < len(texts):
        raise QueryError("two fields of a struct have one name", hint="choose another name")
    inside = ",".join(f"{name}:{value.type}" for name, value in zip(texts, values, strict=True))
    return make_call(function, args, DataType(f"struct<{inside}>"))


NESTED: tuple[Function, ...] = (
    define(
        "array",
        (array, 1, None),
        "array(x, …)",
        "A list of values of one type.",
        "array(1, 2) → [1, 2]",
        "array(1, NULL)[1] → None",
        strict=False,
    ),
    define(
        "named_struct",
        (named_struct, 2, None),
        "named_struct('a', x, 'b', y, …)",
        "A struct of fields with these names and values.",
        "named_struct('a', 1, 'b', 'x') → {'a': 1, 'b': 'x'}",
        strict=False,
    ),
    define(
        ".",
        (field, 2, 2),
        "s.name",
        "A field of a struct.",
        "named_struct('a', 1).a → 1",
    ),
    define(
        "[]",
        (item, 2, 2),
        "x[i]",
        "An element of an array, counted from 0, or the value of a map under a key; NULL where there is none.",
        "array(5, 6)[1] → 6",
        "array(5, 6)[7] → None",
    ),
)
