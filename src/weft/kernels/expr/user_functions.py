"""Functions that users wrote, called on whole columns.

Guarantees: a function is given one Arrow array per argument, all of one length, with NULLs left in, and never more than
`MOST` rows at a time. A call gives an array of that length and of the declared type, or raises a `FunctionError` that
names the function and the first arguments it fails on. The rows computed and the seconds spent are counted.

Whoever runs a task declares the functions with `calling`, for as long as the task runs. Expressions are evaluated in
many places, and so only `weft.kernels.expr.select` has to know of them.
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from weft.errors import FunctionError, nearest
from weft.kernels.expr.datum import as_array
from weft.logical.expr.expression import Call, Expr, to_sql
from weft.logical.expr.user_functions import ConditionFigures, FunctionFigures

__all__ = [
    "MOST",
    "CallCounts",
    "Function",
    "FunctionCalls",
    "call_user",
    "calling",
    "count_checked",
    "current",
]

Function = Callable[..., Any]

MOST = 1 << 16  # rows that a function is given at once


@dataclass(slots=True)
class CallCounts:
    """The counts of functions, by their names, and of the conditions that call them, by their texts."""

    functions: dict[str, FunctionFigures] = field(default_factory=dict)
    conditions: dict[str, ConditionFigures] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.functions or self.conditions)

    def plus(self, more: CallCounts) -> CallCounts:
        """Both together."""
        if not (self and more):
            return self or more
        functions, conditions = dict(self.functions), dict(self.conditions)
        for name, spent in more.functions.items():
            functions[name] = functions.get(name, FunctionFigures()) + spent
        for text, checked in more.conditions.items():
            conditions[text] = conditions.get(text, ConditionFigures()) + checked
        return CallCounts(functions, conditions)


@dataclass(slots=True)
class FunctionCalls:
    """The functions that may be called, the counts of their calls, and the queries stopped by a failed call."""

    functions: Mapping[str, Function]
    counts: CallCounts = field(default_factory=CallCounts)
    failed: dict[str, FunctionError] = field(default_factory=dict)

    def take_counts(self) -> CallCounts:
        """The counts since the last call of this method, which starts them anew."""
        counts, self.counts = self.counts, CallCounts()
        return counts

    def take_failed(self) -> dict[str, FunctionError]:
        """The queries that failed since the last call of this method, with their errors."""
        failed, self.failed = self.failed, {}
        return failed


_CALLS: ContextVar[FunctionCalls] = ContextVar("calls")


@contextmanager
def calling(functions: Mapping[str, Function]) -> Iterator[FunctionCalls]:
    """Let expressions call these functions inside the `with` block."""
    before, calls = _CALLS.get(None), FunctionCalls(functions)
    _CALLS.set(calls)
    try:
        yield calls
    finally:
        _CALLS.set(before or FunctionCalls({}))


def current() -> FunctionCalls:
    """The functions that may be called now, with their counts."""
    calls = _CALLS.get(None)
    if calls is None:
        calls = FunctionCalls({})
        _CALLS.set(calls)
    return calls


def count_checked(condition: Expr, rows: int, passed: int) -> None:
    """Count the rows for which a condition that calls functions was checked, and those that passed."""
    conditions, text = current().counts.conditions, to_sql(condition)
    conditions[text] = conditions.get(text, ConditionFigures()) + ConditionFigures(rows, passed)


def call_user(call: Call, args: Sequence[Any], kind: pa.DataType) -> Any:
    """The values of a call, for columns and constants of which at least one is a column."""
    calls = current()
    function = calls.functions.get(call.function)
    if function is None:
        raise FunctionError(
            f"there is no function {call.function} here",
            hint=f"register it with session.function; {nearest(call.function, calls.functions)}",
        )
    rows = next(len(arg) for arg in args if not isinstance(arg, pa.Scalar))
    columns = [as_array(arg, rows) for arg in args]
    parts = [_Part(call, function, kind, columns, first) for first in range(0, rows, MOST)]
    began = perf_counter()
    values = [part.values() for part in parts]
    spent, counted = FunctionFigures(rows, perf_counter() - began), calls.counts.functions
    counted[call.function] = counted.get(call.function, FunctionFigures()) + spent
    return values[0] if len(values) == 1 else pa.concat_arrays(values) if values else pa.nulls(0, kind)


class _Wrong(Exception):  # noqa: N818 — becomes a `FunctionError` once it is known where
    """A function gave something other than an array of the right length and type."""


@dataclass(frozen=True, slots=True)
class _Part:
    """A call of a function for as many rows as it is given at once."""

    call: Call
    function: Function
    kind: pa.DataType
    columns: Sequence[Any]
    first: int

    def values(self) -> Any:
        rows = min(MOST, len(self.columns[0]) - self.first)
        try:
            return self._tried(rows)
        except FunctionError:  # it could not even be made
            raise
        except Exception as error:
            raise self._failure(error, rows) from error

    def _tried(self, rows: int) -> Any:
        """The values for the first so many rows."""
        found = self.function(*(column.slice(self.first, rows) for column in self.columns))
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        if not isinstance(found, pa.Array):
            raise _Wrong(f"gave {reprlib.repr(found)}, not an Arrow array")
        if len(found) != rows:
            raise _Wrong(f"gave {len(found)} values for {rows} rows")
        try:
            return found if found.type == self.kind else pc.cast(found, self.kind, safe=True)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise _Wrong(f"gave {found.type}, which is no {self.call.type}: {error}") from None

    def _failure(self, error: Exception, rows: int) -> FunctionError:
        """The error with the first arguments that make the function fail, which are found by halving the rows."""
        fails, error = self._first_failing(error, rows)
        at = self.first + fails - 1
        texts = map(to_sql, self.call.args)
        given = [
            f"{text} = {reprlib.repr(column[at].as_py())}"
            for text, column in zip(texts, self.columns, strict=True)
        ]
        what = str(error) if isinstance(error, _Wrong) else f"raised {type(error).__name__}: {error}"
        return FunctionError(
            f"function {self.call.function} {what}, first for {', '.join(given)}",
            hint="it takes Arrow arrays, with NULLs, and gives one of the same length and of its declared type",
        )

    def _first_failing(self, error: Exception, rows: int) -> tuple[int, Exception]:
        """The least number of first rows for which the function fails, and its error there.

        The search assumes that a function which fails for some rows also fails when it is given more after them.
        """
        passes, fails = 0, rows
        while fails - passes > 1:
            middle = (passes + fails) // 2
            try:
                self._tried(middle)
                passes = middle
            except Exception as other:
                fails, error = middle, other
        return fails, error
