"""Functions of lists, and the sizes of maps."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from weft.errors import QueryError
from weft.logical.expr.builtin.entry import Function, define
from weft.logical.expr.builtin.patterns import translated
from weft.logical.expr.conversion import INT, LONG, STRING, coerce
from weft.logical.expr.expression import BOOLEAN, Expr, Literal, make_call
from weft.logical.expr.rules import TypingRule, fitted, mismatch, same_type
from weft.logical.schema import DataType

__all__ = ["LISTS", "joined_lists", "turned_list"]

_INSIDE = "elements that are arrays, maps or structs cannot be compared; take what is inside, as in x[0]"


def element_of(function: str, args: Sequence[Expr], place: int = 0) -> DataType:
    """The type of the elements of an argument that is a list."""
    if args[place].type.kind != "array":
        raise mismatch(function, args, "it takes an array; split(s, ',') makes one of a text")
    return args[place].type.inside[0][1]


def _compared(function: str, args: Sequence[Expr], place: int = 0) -> DataType:
    """The type of elements that can be compared."""
    element = element_of(function, args, place)
    if element.is_nested:
        raise mismatch(function, args, _INSIDE)
    return element


def _of_list(result: Callable[[DataType], DataType], compared: bool = True) -> TypingRule:
    """The rule of a function of one list, by the type of its elements."""

    def rule(function: str, args: Sequence[Expr]) -> Expr:
        element = _compared(function, args) if compared else element_of(function, args)
        return make_call(function, args, result(element))

    return rule


def _list(element: DataType) -> DataType:
    return DataType(f"array<{element}>")


def _with_value(result: Callable[[DataType], DataType]) -> TypingRule:
    """The rule of a function of a list and a value that is compared with its elements, or put among them."""

    def rule(function: str, args: Sequence[Expr]) -> Expr:
        element = element_of(function, args)
        if function not in ("array_append", "array_prepend"):
            _compared(function, args)
        if args[1].type != element and args[1].type.name != "null" and not _fits(args[1], element):
            raise mismatch(function, args, f"the elements are {element}; CAST the value")
        return make_call(function, (args[0], coerce(args[1], element)), result(element))

    return rule


def _fits(value: Expr, element: DataType) -> bool:
    """Whether a value becomes an element without loss: a number of a type that is not wider."""
    order = ["byte", "short", "int", "long", "float", "double"]
    names = (value.type.name, element.name)
    return all(name in order for name in names) and order.index(names[0]) <= order.index(names[1])


def _two_lists(result: Callable[[DataType], DataType]) -> TypingRule:
    def rule(function: str, args: Sequence[Expr]) -> Expr:
        elements = {_compared(function, args, place) for place in (0, 1)}
        if len(elements) > 1:
            raise mismatch(function, args, "both arrays must have elements of one type")
        return make_call(function, args, result(elements.pop()))

    return rule


def _size(_function: str, args: Sequence[Expr]) -> Expr:
    if args[0].type.kind not in ("array", "map"):
        raise mismatch("size", args, "it takes an array or a map; length(s) is that of a text")
    return make_call("size", args, INT)


def _element_at(function: str, args: Sequence[Expr]) -> Expr:
    """An element counted from 1, or the value of a map, which is what `[ ]` gives."""
    if args[0].type.kind == "map":
        (_, key), (_, value) = args[0].type.inside
        return make_call("[]", (args[0], coerce(args[1], key)), value)
    element = element_of(function, args)
    return make_call(function, (args[0], _whole(function, args, 1)), element)


def _whole(function: str, args: Sequence[Expr], place: int) -> Expr:
    if not (args[place].type.is_integer or args[place].type.name == "null"):
        raise mismatch(function, args, "places and sizes are whole numbers")
    return coerce(args[place], LONG)


def _get(function: str, args: Sequence[Expr]) -> Expr:
    return make_call("[]", (args[0], _whole(function, args, 1)), element_of(function, args))


def _slice(function: str, args: Sequence[Expr]) -> Expr:
    element = element_of(function, args)
    places = (_whole(function, args, 1), _whole(function, args, 2))
    return make_call(function, (args[0], *places), _list(element))


def _join(function: str, args: Sequence[Expr]) -> Expr:
    if element_of(function, args) != STRING:
        raise mismatch(function, args, "it takes an array of texts")
    others = [text for arg in args[1:] if (text := fitted(arg, "string")) is not None]
    if not all(isinstance(other, Literal) for other in others[1:]):
        raise QueryError(f"{function} needs a constant for NULL: {others[1]}", hint="write the text itself")
    return make_call(function, (args[0], *others), STRING)


def _sort(function: str, args: Sequence[Expr]) -> Expr:
    element = _compared(function, args)
    if len(args) > 1 and not (isinstance(args[1], Literal) and args[1].type == BOOLEAN):
        raise QueryError(f"{function} needs a constant: {args[1]}", hint="write TRUE or FALSE")
    return make_call(function, args, _list(element))


def _split(function: str, args: Sequence[Expr]) -> Expr:
    """SPLIT by a pattern that matches something, and wherever it stands."""
    text, pattern = fitted(args[0], "string"), args[1]
    limit = args[2].value if len(args) > 2 and isinstance(args[2], Literal) else -1
    constant = isinstance(pattern, Literal) and (len(args) < 3 or isinstance(args[2], Literal))
    if text is None or not constant or not isinstance(limit, int) or not isinstance(pattern, Literal):
        raise QueryError(f"{function} needs a constant pattern and limit", hint="write split(s, ',')")
    if not isinstance(pattern.value, str):
        raise QueryError(f"{function} needs a pattern", hint="write one instead of NULL")
    translated(pattern.value)
    if re.search(pattern.value.replace("(?<", "(?P<").replace("\\z", "\\Z"), ""):
        raise QueryError(f"the pattern {pattern.value!r} also matches nothing", hint="use + in place of *")
    if re.search(r"(?<![\[\\])\^|\\[bBA]", pattern.value):
        raise QueryError(f"the pattern {pattern.value!r} asks what is before it", hint="leave out ^ and \\b")
    return make_call(function, (text, pattern, Literal(limit, INT)), _list(STRING))


def joined_lists(function: str, args: Sequence[Expr]) -> Expr:
    """CONCAT of lists of one type."""
    same = same_type(args, function)
    element_of(function, same)
    return make_call(function, same, same[0].type)


def turned_list(function: str, args: Sequence[Expr]) -> Expr:
    """REVERSE of a list."""
    return make_call(function, args, args[0].type)


def _flatten(function: str, args: Sequence[Expr]) -> Expr:
    inner = element_of(function, args)
    if inner.kind != "array":
        raise mismatch(function, args, "it takes an array of arrays")
    return make_call(function, args, inner)


LISTS: tuple[Function, ...] = (
    define(
        "split",
        (_split, 2, 3),
        "split(s, pattern), split(s, pattern, n)",
        "The parts of a text between matches of a pattern, or the first n - 1 and the rest.",
        r"split('a, b,c', ',\\s*') → ['a', 'b', 'c']",
        "split('a-b-c', '-', 2) → ['a', 'b-c']",
    ),
    define(
        "size",
        (_size, 1, 1),
        "size(x)",
        "How many elements an array, or entries a map has.",
        "size(array(5, 6)) → 2",
        also="cardinality array_size",
    ),
    define(
        "element_at",
        (_element_at, 2, 2),
        "element_at(x, i)",
        "An element counted from 1, or from the end if i is negative; the value of a map under a key.",
        "element_at(array(5, 6), 1) → 5",
        "element_at(array(5, 6), -1) → 6",
    ),
    define(
        "get",
        (_get, 2, 2),
        "get(x, i)",
        "An element counted from 0.",
        "get(array(5, 6), 1) → 6",
        rewritten=True,
    ),
    define(
        "array_contains",
        (_with_value(lambda _: BOOLEAN), 2, 2),
        "array_contains(x, v)",
        "Whether a value is an element; NULL if it is not, but NULL is one.",
        "array_contains(array(5, 6), 6) → True",
        "array_contains(array(5, NULL), 6) → None",
    ),
    define(
        "array_position",
        (_with_value(lambda _: LONG), 2, 2),
        "array_position(x, v)",
        "Where a value first stands, counted from 1; 0 if nowhere.",
        "array_position(array(5, 6), 6) → 2",
    ),
    define(
        "array_remove",
        (_with_value(_list), 2, 2),
        "array_remove(x, v)",
        "Without the elements that are equal to a value.",
        "array_remove(array(5, 6, 5), 5) → [6]",
    ),
    define(
        "array_append",
        (_with_value(_list), 2, 2),
        "array_append(x, v)",
        "With a value at the end.",
        "array_append(array(5), 6) → [5, 6]",
        strict=False,
    ),
    define(
        "array_prepend",
        (_with_value(_list), 2, 2),
        "array_prepend(x, v)",
        "With a value at the beginning.",
        "array_prepend(array(5), 6) → [6, 5]",
        strict=False,
    ),
    define(
        "array_compact",
        (_of_list(_list, compared=False), 1, 1),
        "array_compact(x)",
        "Without the elements that are NULL.",
        "array_compact(array(5, NULL)) → [5]",
    ),
    define(
        "array_distinct",
        (_of_list(_list), 1, 1),
        "array_distinct(x)",
        "Every value once, where it first stands.",
        "array_distinct(array(6, 5, 6)) → [6, 5]",
    ),
    define(
        "array_max",
        (_of_list(lambda element: element), 1, 1),
        "array_max(x)",
        "The greatest element; NULLs are skipped.",
        "array_max(array(5, 6)) → 6",
    ),
    define(
        "array_min",
        (_of_list(lambda element: element), 1, 1),
        "array_min(x)",
        "The least element; NULLs are skipped.",
        "array_min(array(5, 6)) → 5",
    ),
    define(
        "sort_array",
        (_sort, 1, 2),
        "sort_array(x), sort_array(x, FALSE)",
        "Sorted, with NULLs first; or downwards, with NULLs last.",
        "sort_array(array(6, NULL, 5)) → [None, 5, 6]",
        "sort_array(array(6, NULL, 5), FALSE) → [6, 5, None]",
    ),
    define(
        "array_sort",
        (_of_list(_list), 1, 1),
        "array_sort(x)",
        "Sorted, with NULLs last.",
        "array_sort(array(6, NULL, 5)) → [5, 6, None]",
    ),
    define(
        "slice",
        (_slice, 3, 3),
        "slice(x, i, n)",
        "Up to n elements from the i-th on, counted from 1, or from the end if i is negative.",
        "slice(array(5, 6, 7), 2, 5) → [6, 7]",
    ),
    define(
        "array_join",
        (_join, 2, 3),
        "array_join(x, t), array_join(x, t, null)",
        "The texts with t between them; NULLs are left out, or are written as a text.",
        "array_join(array('a', NULL, 'b'), '-') → a-b",
        "array_join(array('a', NULL), '-', '?') → a-?",
    ),
    define(
        "arrays_overlap",
        (_two_lists(lambda _: BOOLEAN), 2, 2),
        "arrays_overlap(x, y)",
        "Whether two arrays have an element in common; NULL if they do not, but NULL is in one of them.",
        "arrays_overlap(array(5, 6), array(6)) → True",
    ),
    define(
        "array_union",
        (_two_lists(_list), 2, 2),
        "array_union(x, y)",
        "What is in one of two arrays, once.",
        "array_union(array(5, 6), array(6, 7)) → [5, 6, 7]",
    ),
    define(
        "array_intersect",
        (_two_lists(_list), 2, 2),
        "array_intersect(x, y)",
        "What is in both arrays, once.",
        "array_intersect(array(5, 6), array(6, 7)) → [6]",
    ),
    define(
        "array_except",
        (_two_lists(_list), 2, 2),
        "array_except(x, y)",
        "What is in the first array and not in the second, once.",
        "array_except(array(5, 6), array(6, 7)) → [5]",
    ),
    define(
        "flatten",
        (_flatten, 1, 1),
        "flatten(x)",
        "The elements of all arrays in an array; NULL if one of them is NULL.",
        "flatten(array(array(5), array(6, 7))) → [5, 6, 7]",
    ),
)
