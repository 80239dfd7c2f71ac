"""Access to the compiler (Numba), with types.

Guarantees: what is decorated with `compiled` keeps its Python signature, is compiled on first use, cached on disk, and
releases the interpreter lock while it runs. The cache is beside the function's file; where that cannot be written to,
in the user's home; else among temporary files, in a directory that only this user can write to. Nothing else in Weft
imports Numba.

Cached code is used only if nothing that it was compiled from has changed: neither its own file, which is all that Numba
checks, nor the compiled functions and constants that this file imports from others (`_origins`).
"""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import config, njit, types
from numba.core.cgutils import raw_memcpy
from numba.core.dispatcher import Dispatcher
from numba.extending import intrinsic
from numpy.typing import NDArray

__all__ = [
    "Array",
    "Bytes",
    "Floats",
    "Ints",
    "Longs",
    "Mask",
    "compiled",
    "copy_bytes",
    "frozen",
    "inner",
    "load64",
    "load_f32",
    "load_i8",
    "load_i16",
    "load_i32",
    "load_i64",
    "mix",
]

F = TypeVar("F", bound=Callable[..., Any])

Integer = int | np.integer[Any]
Array = NDArray[Any]
Mask = NDArray[np.bool_]
Bytes = NDArray[np.uint8]
Ints = NDArray[np.int32]
Longs = NDArray[np.int64]
Floats = NDArray[np.float64]

_config: Any = config  # its types omit what is set here


def compiled(function: F) -> F:
    """The function as machine code; a division by zero raises nothing, as in NumPy."""
    options = {"error_model": "numpy", "no_cfunc_wrapper": True}  # only Python and compiled functions call it
    try:
        made = cast(Any, njit)(cache=True, nogil=True, **options)(function)
    except RuntimeError:  # neither beside the file nor in the home directory can a cache be written
        if not _config.CACHE_DIR and (place := _temporary_place()) is not None:
            _config.CACHE_DIR = str(place)
            return compiled(function)
        return cast(F, cast(Any, njit)(nogil=True, **options)(function))
    _notice_changes_elsewhere(made)
    return cast(F, made)


def _temporary_place() -> Path | None:
    """A directory among temporary files that only this user can write to; None if there is none."""
    if not hasattr(os, "getuid"):
        return None
    place = Path(tempfile.gettempdir(), f"weft-{os.getuid()}", "kernels")
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        for one in (place.parent, place):
            status = one.lstat()
            if (
                status.st_uid != os.getuid()
                or stat.S_IMODE(status.st_mode) & 0o022
                or not stat.S_ISDIR(status.st_mode)
            ):
                return None
    except OSError:
        return None
    return place


def _notice_changes_elsewhere(made: Any) -> None:
    """Make the cache of a function discard code that was compiled from sources that have changed since.

    Numba compares a stamp of the function's file with the stamp in the cache. This adds `_origins` to the stamp.
    """
    try:
        file = made._cache._cache_file
        file._source_stamp = (file._source_stamp, _origins(made.py_func.__globals__))
    except AttributeError:  # this Numba keeps its stamp elsewhere: run `make clean` after an edit
        return


_known_origins: dict[str, bytes] = {}


def _origins(names: Mapping[str, Any]) -> bytes:
    """A digest of everything that the compiled functions of a module are made of, given the names in the module.

    It covers this file, the module's own file, the files of modules that it imports compiled functions from (and the
    files these import from), and constants. It is computed when the first function of the module is compiled, since
    everything has been imported by then.
    """
    file = names["__file__"]
    if file not in _known_origins:
        digest = hashlib.sha256(Path(__file__).read_bytes() + Path(file).read_bytes())
        for name, value in sorted(names.items()):
            if isinstance(value, Dispatcher) and value.py_func.__globals__ is not names:
                digest.update(_origins(value.py_func.__globals__))
            elif isinstance(value, int | float | np.generic | np.ndarray):
                digest.update(f"{name} {np.asarray(value).dtype} {np.asarray(value).tolist()}".encode())
        _known_origins[file] = digest.digest()
    return _known_origins[file]


def inner(function: F) -> F:
    """Mark a function that only compiled functions call: it becomes part of them, and Python cannot call it."""
    options = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}  # the type of `njit` omits these
    return cast(F, cast(Any, njit)(nogil=True, error_model="numpy", **options)(function))


def frozen(array: Array) -> Array:
    """A view of the array that cannot be written to, contiguous.

    Numba compiles a function once for writable and once for read-only arrays; the buffers of Arrow are read-only, so
    arrays that are passed in their place are made read-only too.
    """
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _load64(_context: Any, data: Any, _offset: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        address = builder.gep(array.data, [args[1]])
        return builder.load(builder.bitcast(address, ir.IntType(64).as_pointer()), align=1)

    return types.uint64(data, types.int64), generate


def _load_at(kind: Any, bits: Any) -> Any:
    def typing(_context: Any, _address: Any, _index: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            pointer = builder.inttoptr(args[0], bits.as_pointer())
            return builder.load(builder.gep(pointer, [args[1]]))

        return kind(types.int64, types.int64), generate

    return typing


def _copy_bytes(_context: Any, _out: Any, _place: Any, _address: Any, _size: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        array = context.make_array(signature.args[0])(context, builder, args[0])
        target = builder.gep(array.data, [args[1]])
        source = builder.inttoptr(args[2], ir.IntType(8).as_pointer())
        cast(Any, raw_memcpy)(builder, target, source, args[3], ir.Constant(ir.IntType(64), 1))
        return context.get_dummy_value()

    return types.void(_out, types.int64, types.int64, types.int64), generate


# Copies so many bytes from an address to a place of a byte array; the caller keeps inside both.
copy_bytes = cast(Callable[[Bytes, Integer, Integer, Integer], None], intrinsic(_copy_bytes))

# 8 bytes of a byte array from any offset, as one unaligned load; the caller keeps inside the array.
load64 = cast(Callable[[Bytes, Integer], np.uint64], intrinsic(_load64))

# Element `index` of the array of that type which starts at an address; its owner must be kept alive meanwhile.
Loader = Callable[[Integer, Integer], Any]
load_i8 = cast(Loader, intrinsic(_load_at(types.int8, ir.IntType(8))))
load_i16 = cast(Loader, intrinsic(_load_at(types.int16, ir.IntType(16))))
load_i32 = cast(Loader, intrinsic(_load_at(types.int32, ir.IntType(32))))
load_i64 = cast(Loader, intrinsic(_load_at(types.int64, ir.IntType(64))))
load_f32 = cast(Loader, intrinsic(_load_at(types.float32, ir.FloatType())))

_FIRST, _SECOND = np.uint64(0x3C79AC492BA7B653), np.uint64(0x1C69B3F74AC4AE35)
_27, _33 = np.uint64(27), np.uint64(33)


@compiled
def mix(word: Integer) -> np.uint64:
    """A bijection of 64-bit words whose every output bit depends on every input bit (Evensen's moremur).

    Being a bijection, it has no collisions: for keys that fit a word, the hash *is* the key.
    """
    bits = np.uint64(word)
    bits ^= bits >> _27
    bits *= _FIRST
    bits ^= bits >> _33
    bits *= _SECOND
    return bits ^ (bits >> _27)
