"""Arguments that users give, checked by the types that functions and values are annotated with.

Guarantees: what does not have the type of its parameter is refused by a `WeftError` that names the parameter, what was
given and what is expected, before anything of the function runs. Whole numbers have 64 bits, numbers are not NaN, and
texts can be written as UTF-8. A number may stand where a fraction is expected, True and False may not. What Python does
not know at run time (a class that is imported for type checkers alone) is not checked.
"""

from __future__ import annotations

import functools
import inspect
import math
import numbers
import os
import reprlib
import sys
import types
import typing
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

from weft.errors import WeftError

__all__ = ["check_fields", "checked", "shown"]

_F = TypeVar("_F", bound=Callable[..., Any])
Test: typing.TypeAlias = Callable[[Any], bool]
_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
_SHOWN = {
    str: "a text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    type(None): "None",
    Path: "a path",
    timedelta: "a timedelta",
    datetime: "a datetime",
    date: "a date",
}


def checked(error: type[WeftError], but: Collection[str] = ()) -> Callable[[_F], _F]:
    """A decorator that has the arguments of a function checked; what is wrong is refused by this kind of error.

    Whether there are too many arguments or too few is left to Python; what the function checks itself (``but``), to it.
    """

    def decorate(function: _F) -> _F:
        parameters = inspect.signature(function).parameters.values()
        in_a_row = [one.name for one in parameters if one.kind <= inspect.Parameter.POSITIONAL_OR_KEYWORD]
        others = {one.kind: one.name for one in parameters}
        rest, by_name = (others.get(kind, "") for kind in (_REST, _BY_NAME))
        named = {one.name for one in parameters if one.kind not in (_REST, _BY_NAME)}
        passed = {*but, ""}
        called = function.__qualname__.removesuffix(".__init__").rpartition("<locals>.")[2]

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            tests = _tests(function)
            for place, value in enumerate(args):
                name = in_a_row[place] if place < len(in_a_row) else rest
                if name not in passed and name in tests and not tests[name](value):
                    raise _refusal(function, name, name, value, error, called)
            for name, value in kwargs.items():
                kind = name if name in named else by_name
                if kind not in passed and kind in tests and not tests[kind](value):
                    raise _refusal(function, kind, name, value, error, called)
            return function(*args, **kwargs)

        return typing.cast("_F", call)

    return decorate


_REST, _BY_NAME = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD


def _refusal(owner: Any, kind: str, name: str, value: object, error: type[WeftError], what: str) -> WeftError:
    expected = _described(_hints(owner)[kind])
    return error(f"{what}: {name} cannot be {shown(value)}", hint=f"use {expected}")


def check_fields(value: Any, error: type[WeftError]) -> None:
    """Refuse a dataclass that is just being made, if a field has not the type that it is annotated with."""
    kind: Any = type(value)
    for name, fits in _tests(kind).items():
        if not fits(getattr(value, name)):
            raise _refusal(kind, name, name, getattr(value, name), error, kind.__name__)


def shown(value: object) -> str:
    """A value as an error shows it: short, and whatever it is."""
    try:
        return reprlib.repr(value).encode(errors="backslashreplace").decode()
    except Exception:
        return f"a {type(value).__name__}"


@functools.cache
def _tests(owner: Any) -> dict[str, Test]:
    """By name, how the parameters of a function, or the fields of a dataclass, are tested."""
    wanted = (
        {one.name for one in fields(owner)} if isinstance(owner, type) else set(_hints(owner)) - {"return"}
    )
    return {name: _test_of(hint) for name, hint in _hints(owner).items() if name in wanted}


@functools.cache
def _hints(owner: Any) -> dict[str, Any]:
    """The types that parameters of a function, or fields of a class, are annotated with, as far as they are known."""
    found: dict[str, Any] = {}
    owners = reversed(owner.__mro__) if isinstance(owner, type) else (owner,)
    for one in owners:
        names = vars(sys.modules[one.__module__]) if one.__module__ in sys.modules else {}
        for name, annotation in inspect.get_annotations(one).items():
            found[name] = _resolved(annotation, names)
    return found


def _resolved(annotation: Any, names: Mapping[str, Any]) -> Any:
    """A type of which the text is given; Any if a name in it is not known at run time."""
    while isinstance(annotation, str | typing.ForwardRef):
        text = annotation if isinstance(annotation, str) else annotation.__forward_arg__
        try:
            annotation = eval(text, dict(names))  # our own annotations
        except (NameError, TypeError, SyntaxError):
            return Any
    return annotation


def _test_of(hint: Any) -> Test:
    """Whether a value has a type, as a function."""
    if hint is None or hint is type(None):
        return lambda value: value is None
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        tests = [_test_of(one) for one in inner]
        return lambda value: any(test(value) for test in tests)
    if isinstance(origin, type):
        return _generic_test(origin, inner)
    if not isinstance(hint, type) or hint in (Any,):
        return _PLAIN[object]  # Any, a type variable
    return _PLAIN[hint] if hint in _PLAIN else functools.partial(_is_a, kind=hint)


def _generic_test(origin: type, inner: tuple[Any, ...]) -> Test:
    """Whether a value is a mapping, a sequence or a function of a kind, and all that is in it is of its kind."""
    if issubclass(origin, Callable):  # type: ignore[arg-type]
        return callable
    tests = [_test_of(one) for one in inner if one is not ...]

    def test(value: Any) -> bool:
        if not isinstance(value, origin) or isinstance(value, str | bytes):
            return False
        if isinstance(value, Mapping):
            return all(tests[0](key) and tests[1](one) for key, one in value.items())
        if not isinstance(value, Sequence | set | frozenset):
            return True  # what can be gone through once is not gone through here
        if origin is tuple and ... not in inner:
            return len(value) == len(tests) and all(fits(one) for fits, one in zip(tests, value, strict=True))
        return all(tests[0](one) for one in value)

    return test


def _is_a(value: Any, kind: type) -> bool:
    return isinstance(value, kind) and not isinstance(value, type)


def _is_whole(value: Any) -> bool:
    return (
        isinstance(value, numbers.Integral) and not isinstance(value, bool) and _LEAST <= int(value) <= _MOST
    )


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return False
    try:
        return not math.isnan(float(value))
    except OverflowError:
        return False


def _is_text(value: Any) -> bool:
    try:
        return isinstance(value, str) and value.encode() is not None
    except UnicodeEncodeError:
        return False


def _is_path(value: Any) -> bool:
    return isinstance(value, os.PathLike) and "\0" not in os.fspath(value)


_PLAIN: dict[Any, Test] = {
    int: _is_whole,
    float: _is_number,
    bool: lambda value: isinstance(value, bool),
    str: _is_text,
    Path: _is_path,
    object: lambda value: True,  # noqa: ARG005
}


def _described(hint: Any) -> str:
    """What a type expects, for people."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        return " or ".join(dict.fromkeys(_described(one) for one in inner))
    if origin is Callable:
        return "a function"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return f"a dictionary from {_described(inner[0])} to {_described(inner[1])}"
    if isinstance(origin, type) and inner:
        return f"several ({'tuple' if origin is tuple else 'list'}), each {_described(inner[0])}"
    if hint is None:
        return "None"
    return _SHOWN.get(hint, getattr(hint, "__name__", "another value"))
