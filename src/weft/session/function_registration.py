"""A function that a user registers, checked.

Guarantees: what comes out can be named in queries and sent to Spark's workers; what cannot is refused at once, by name,
with the remedy. The function is taken as it is now: what happens later to the names it uses changes nothing.
"""

from __future__ import annotations

import inspect
import reprlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from weft.errors import CatalogError, FunctionError, StatisticsError
from weft.logical.expr.node import BOOLEAN
from weft.logical.expr.user_functions import UserFunction
from weft.logical.schema import DataType, parse_type
from weft.runtime.wire.functions import PackedFunction
from weft.session.validation import check
from weft.sql.expressions import is_function_name
from weft.stats.statistics import Statistics

__all__ = ["declare_function", "pack_function", "with_expectations"]

_TAKES = "it takes one Arrow array per argument and gives one of the same length"


def declare_function(name: str, function: Callable[..., Any], returns: str | DataType) -> UserFunction:
    """The declaration of a function, from its name, its signature and the type that it gives."""
    check(name, str, FunctionError, "a function's name", 'use a text, as in "similar"')
    check(returns, str | DataType, FunctionError, "a function's type", 'use a text, as in "boolean"')
    if not callable(function):
        raise FunctionError(f"function {name} cannot be {reprlib.repr(function)}", hint=_TAKES)
    if not is_function_name(name):
        raise FunctionError(
            f"a function cannot be called {name!r}",
            hint="use letters, digits and underscores, and no word or function of SQL",
        )
    try:
        type_ = parse_type(returns) if isinstance(returns, str) else returns
        return UserFunction(name.lower(), type_, *_arguments(name, function))
    except CatalogError as error:
        raise FunctionError(f"function {name}: {error.message}", hint=error.hint) from None


def _arguments(name: str, function: Callable[..., Any]) -> tuple[int, int | None]:
    """The least and the largest number of arguments; any, if the function does not say."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (ValueError, TypeError):
        return 1, None
    places = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    for parameter in parameters:
        if parameter.kind == parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
            raise FunctionError(f"function {name} needs {parameter.name} by name", hint=_TAKES)
    endless = any(p.kind == p.VAR_POSITIONAL for p in parameters)
    if not places and not endless:
        raise FunctionError(f"function {name} takes no argument", hint=_TAKES)
    return max(1, sum(p.default is p.empty for p in places)), None if endless else len(places)


def with_expectations(
    known: Statistics, function: UserFunction, selectivity: float | None, cost: float | None
) -> Statistics:
    """The statistics with what is said of a function; what cannot be true of it is refused."""
    check(selectivity, int | float | None, StatisticsError, "a selectivity", "use a number between 0 and 1")
    check(cost, int | float | None, StatisticsError, "a cost", "use a number of seconds per row")
    if selectivity is not None and function.returns != BOOLEAN:
        raise StatisticsError(
            f"function {function.name} gives a {function.returns} and is no condition, so it has no selectivity",
            hint=f'session.selectivity("{function.name}(…) > 0.5", …) takes a condition',
        )
    costs = {} if cost is None else {function.name: cost}
    likely = {} if selectivity is None else {function.name: selectivity}
    return replace(known, costs={**known.costs, **costs}, likely={**known.likely, **likely})


def pack_function(name: str, function: Callable[..., Any], returns: str | DataType) -> PackedFunction:
    """A function's declaration, and the function as bytes from which another process can make it again."""
    declaration = declare_function(name, function, returns)
    from pyspark import cloudpickle  # functions travel as Spark's own; planning without them needs no Spark

    try:
        return PackedFunction(declaration, cloudpickle.dumps(function))  # type: ignore[no-untyped-call]
    except Exception as error:
        raise FunctionError(
            f"function {name} cannot be sent to Spark's workers: {error}",
            hint="it refers to what only this process has, such as a lock, an open file or a Spark session",
        ) from None
