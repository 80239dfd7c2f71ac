"""Users' functions on their way to the tasks that call them.

Guarantees: a function does what it did when it was registered; a process unpickles it once, however many tasks call it.
A checkpoint does not hold functions: a session that resumes must register them again, and if one is missing, the start
is refused.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from weft.errors import FunctionError, StateError, nearest
from weft.logical.expr.user_functions import UserFunction, user_functions
from weft.logical.query.query import Query
from weft.logical.schema import DataType

__all__ = ["PackedFunction", "callable_functions", "check_registered"]


@dataclass(frozen=True, slots=True)
class PackedFunction:
    """A registered function: its declaration, and its pickle or, if it is called in this process only, the function."""

    declared: UserFunction
    data: bytes | Callable[..., Any]


def callable_functions(functions: Mapping[str, bytes | Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The functions by name, as something to call; those given as bytes are unpickled when they are first called."""
    return {name: _Lazy(name, data) if isinstance(data, bytes) else data for name, data in functions.items()}


class _Lazy:
    """A function that is unpickled when it is first called, since a task needs only some of the functions."""

    def __init__(self, name: str, data: bytes) -> None:
        self.name, self.data = name, data

    def __call__(self, *columns: Any) -> Any:
        return _unpickled(self.name, self.data)(*columns)


@lru_cache(maxsize=256)
def _unpickled(name: str, data: bytes) -> Callable[..., Any]:
    try:
        function: Callable[..., Any] = pickle.loads(data)
    except Exception as error:
        raise FunctionError(
            f"function {name} cannot be made in a worker: {type(error).__name__}: {error}",
            hint="the modules it uses must be installed where Spark's workers run",
        ) from None
    return function


def check_registered(queries: Mapping[str, Query], registered: Mapping[str, PackedFunction]) -> None:
    """Refuse queries of a checkpoint that call functions which are not registered, or are with another type."""
    known: dict[str, DataType] = {name: one.declared.returns for name, one in registered.items()}
    for query, one in sorted(queries.items()):
        for name, type_ in user_functions(one.expressions()).items():
            if name not in known:
                raise StateError(
                    f"query {query} of the checkpoint calls a function {name}, which is not registered",
                    hint=f"session.function({name!r}, …, returns={str(type_)!r}) before start(); "
                    + nearest(name, known),
                )
            if known[name] != type_:
                raise StateError(
                    f"query {query} of the checkpoint calls a function {name} that gives {type_}, not {known[name]}",
                    hint="register it as it was, or use a new checkpoint directory",
                )
