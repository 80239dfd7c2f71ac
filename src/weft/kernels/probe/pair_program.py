"""Predicates as programs of the `machine`.

Guarantees: a program means what `select.holds` means. Not every predicate has one: texts, decimals, arithmetic of
32-bit floats and the rarer functions are left to `select` (`program` gives None).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import lru_cache
from typing import Any

import numpy as np

from weft.bucket.compiled import Array, Ints, Longs
from weft.bucket.memory import fresh
from weft.bucket.words import flatten
from weft.kernels.expr.arrow import arrow_type
from weft.kernels.expr.datum import as_type
from weft.kernels.expr.select import ColumnKey
from weft.kernels.probe.machine import BLOCK, OPERATIONS, Banks, run
from weft.logical.expr.expression import Call, Column, Expr, Literal

__all__ = ["Loaded", "PairProgram", "program"]

_BITS = {"byte": 8, "short": 16, "int": 32}
_PLAIN = ("byte", "short", "int", "long", "boolean", "date", "timestamp", "interval")
_FLOATS = ("float", "double")
_DAY = 86_400_000_000
_FEW = 16  # the most options of an IN that a program has


class _Unsupported(Exception):  # noqa: N818 — not an error: the predicate is computed in another way
    pass


@dataclass(frozen=True, slots=True, eq=False)
class PairProgram:
    """Instructions, the columns they load, and the constants that registers hold from the start."""

    code: Longs
    columns: tuple[Column, ...]
    constants: tuple[tuple[int, Any], ...]
    registers: int

    def bind(self, ours: Mapping[ColumnKey, Any], theirs: Mapping[ColumnKey, Any]) -> Loaded:
        """The program with the columns of the probe tuples and of the stored rows."""
        found = [_located(column, ours, theirs) for column in self.columns]
        table = np.array([entry for entry, _ in found], np.int64).reshape(-1, 5)
        shape = (self.registers, BLOCK)
        values, truth, valid = np.zeros(shape, np.int64), np.zeros(shape, np.uint8), np.ones(shape, np.uint8)
        floats = values.view(np.float64)
        for register, value in self.constants:
            bank: Array = floats if isinstance(value, float) else truth if isinstance(value, bool) else values
            bank[register] = 0 if value is None else value
            valid[register] = value is not None
        return Loaded(self.code, table, (values, floats, truth, valid), tuple(array for _, array in found))


@dataclass(frozen=True, slots=True, eq=False)
class Loaded:
    """A program that can run: with addresses of columns, and with registers."""

    code: Longs
    table: Longs
    banks: Banks
    alive: tuple[Any, ...]  # the arrays that the addresses point into

    def keep(self, probe: Ints, stored: Ints) -> tuple[Ints, Ints]:
        """The pairs of rows for which the predicate is true."""
        out_probe, out_stored = fresh(probe.size, np.int32), fresh(probe.size, np.int32)
        kept = run(self.code, self.table, self.banks, probe, stored, out_probe, out_stored)
        return out_probe[:kept], out_stored[:kept]


def _located(
    column: Column, ours: Mapping[ColumnKey, Any], theirs: Mapping[ColumnKey, Any]
) -> tuple[list[int], Any]:
    """A column as (side, width, address, address of the validity, offset), and the array that these describe."""
    key = (column.alias, column.name)
    side = 0 if key in ours else 1
    array = as_type(flatten(theirs[key] if side else ours[key]), arrow_type(column.type))
    validity, data = array.buffers()
    width = {"boolean": 0, "float": -1}.get(column.type.name, array.type.bit_width // 8)
    known = validity.address if validity is not None and array.null_count else 0
    return [side, width, data.address if data is not None else 0, known, array.offset], array


@lru_cache(maxsize=256)
def program(predicate: Expr) -> PairProgram | None:
    """The program of a predicate, if it has one."""
    writer = _Writer()
    try:
        result = writer.write(predicate)
    except _Unsupported:
        return None
    if not writer.code or writer.code[-1][1] != result:
        return None  # the predicate is a constant
    code = np.array(writer.code, np.int64).reshape(-1, 5)
    return PairProgram(code, tuple(writer.columns), tuple(writer.constants), writer.registers)


class _Writer:
    """Writes one program; equal parts of a predicate are computed once."""

    def __init__(self) -> None:
        self.code: list[tuple[int, int, int, int, int]] = []
        self.columns: list[Column] = []
        self.constants: list[tuple[int, Any]] = []
        self.registers = 0
        self.known: dict[Expr, int] = {}

    def write(self, expr: Expr) -> int:
        """The register that holds the value of an expression."""
        if expr not in self.known:
            if expr.type.name not in (*_PLAIN, *_FLOATS):
                raise _Unsupported
            self.known[expr] = self._write(expr)
        return self.known[expr]

    def _write(self, expr: Expr) -> int:
        if isinstance(expr, Column):
            self.columns.append(expr)
            return self.emit("load", len(self.columns) - 1)
        if isinstance(expr, Literal):
            return self.constant(_plain_value(expr))
        return self._call(expr)

    def emit(self, operation: str, left: int, right: int | None = None, extra: int = 64) -> int:
        """Append an instruction and return the register that holds its result, which no other instruction writes."""
        out = self.registers
        self.registers += 1
        self.code.append((OPERATIONS[operation], out, left, left if right is None else right, extra))
        return out

    def constant(self, value: Any) -> int:
        """A register that holds a constant."""
        self.constants.append((self.registers, value))
        self.registers += 1
        return self.registers - 1

    def _call(self, call: Call) -> int:
        name, args = call.function, call.args
        if name in ("and", "or"):
            return self._fold(name, [self.write(arg) for arg in args])
        if name == "not":
            return self.emit("not", self.write(args[0]))
        if name == "is null":
            return self.emit("is_null", self.write(args[0]))
        if name in ("=", "<>", "<", "<="):
            return self._comparison(name, args[0], args[1])
        if name == "in" and len(args) <= _FEW:
            return self._fold("or", [self._comparison("=", args[0], option) for option in args[1:]])
        if name == "cast":
            return self._cast(args[0], call)
        if name in _INTEGER or name == "/":
            return self._arithmetic(name, call)
        raise _Unsupported

    def _fold(self, name: str, registers: list[int]) -> int:
        result = registers[0]
        for register in registers[1:]:
            result = self.emit(name, result, register)
        return result

    def _comparison(self, name: str, left: Expr, right: Expr) -> int:
        if (left.type.name in _FLOATS) != (right.type.name in _FLOATS):
            raise _Unsupported
        suffix = "_float" if left.type.name in _FLOATS else ""
        operation = {"=": "equal", "<>": "equal", "<": "less", "<=": "less_equal"}[name] + suffix
        result = self.emit(operation, self._as_number(left), self._as_number(right))
        return self.emit("not", result) if name == "<>" else result

    def _arithmetic(self, name: str, call: Call) -> int:
        if call.type.name == "float":
            raise _Unsupported  # its results are rounded to 32 bits
        double = call.type.name == "double"
        operands = [self._as_double(arg) if double else self._instant(arg, call) for arg in call.args]
        if name == "neg":
            operands = [self.constant(-0.0 if double else 0), *operands]
        operation = _DOUBLE[name] if double else _INTEGER[name]
        extra = _BITS.get(call.type.name, 64)
        return self.emit(operation, operands[0], operands[1] if len(operands) > 1 else None, extra)

    def _as_number(self, expr: Expr) -> int:
        register = self.write(expr)
        return self.emit("number", register) if expr.type.name == "boolean" else register

    def _as_double(self, expr: Expr) -> int:
        register = self._as_number(expr)
        return register if expr.type.name in _FLOATS else self.emit("float", register)

    def _instant(self, expr: Expr, call: Call) -> int:
        """The register of a point in time: a date is days, or microseconds where it meets intervals or timestamps."""
        if expr.type.name in _FLOATS or expr.type.name == "boolean":
            raise _Unsupported
        register = self.write(expr)
        if expr.type.name == "date" and call.type.name in ("timestamp", "interval"):
            return self.emit("multiply", register, self.constant(_DAY))
        return register

    def _cast(self, operand: Expr, call: Call) -> int:
        source, target = operand.type, call.type
        if target.name == "double" and (source.is_integer or source.name in ("boolean", "float")):
            return self._as_double(operand)
        if target.is_integer and (source.is_integer or source.name == "boolean"):
            return self.emit("within", self._as_number(operand), extra=_BITS.get(target.name, 64))
        if (source.name, target.name) == ("date", "timestamp"):
            return self._instant(operand, call)
        raise _Unsupported


_INTEGER = {
    "+": "add",
    "-": "subtract",
    "*": "multiply",
    "%": "remainder",
    "neg": "subtract",
    "abs": "absolute",
}
_DOUBLE = {
    "+": "add_float",
    "-": "subtract_float",
    "*": "multiply_float",
    "/": "divide",
    "%": "remainder_float",
}
_DOUBLE |= {"neg": "subtract_float", "abs": "absolute_float"}


def _plain_value(expr: Literal) -> Any:
    """A constant as the machine stores it."""
    value = expr.value
    if isinstance(value, datetime):
        return (value - datetime(1970, 1, 1)) // timedelta(microseconds=1)
    if isinstance(value, date):
        return (value - date(1970, 1, 1)).days
    if isinstance(value, timedelta):
        return value // timedelta(microseconds=1)
    return value
