"""Checksums, digests and Base64 of texts and bytes, by compiled loops."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from weft.bucket.compiled import Longs
from weft.bucket.memory import fresh, zeros
from weft.bucket.words import text_buffers
from weft.kernels.expr.datum import ColumnFunction, constant_of, null_unless, valid_rows, with_nulls
from weft.kernels.expr.loops import hash_loops, text_loops
from weft.kernels.expr.texts import built, check_sizes

__all__ = ["FUNCTIONS"]


def _checksum(args: Sequence[Any], kind: pa.DataType) -> Any:
    out = fresh(len(args[0]), np.int64)
    hash_loops.checksums(*text_buffers(args[0]), out)
    return with_nulls(out, valid_rows(args), kind)


def _digests(size: int, loop: Callable[..., None]) -> ColumnFunction:
    """Digests of so many bytes, as texts of small hexadecimal digits."""

    def rule(args: Sequence[Any], _kind: pa.DataType) -> Any:
        rows = len(args[0])
        out, digits = fresh(rows * size, np.uint8), fresh(rows * size * 2, np.uint8)
        loop(*text_buffers(args[0]), out.reshape(rows, size))
        text_loops.encode_hex(out, digits)
        digits |= 0x20  # of capital letters, the small ones; digits stay as they are
        return _made(args[:1], built(np.arange(rows + 1) * (2 * size), digits))

    return rule


def _made(args: Sequence[Any], texts: Any) -> Any:
    valid = valid_rows(args)
    return texts if valid is None else null_unless(pa.array(valid), texts)


_SHA2 = {
    224: _digests(28, lambda starts, content, out: hash_loops.digests_sha2(starts, content, True, out)),
    256: _digests(32, lambda starts, content, out: hash_loops.digests_sha2(starts, content, False, out)),
}


def _sha2(args: Sequence[Any], kind: pa.DataType) -> Any:
    bits = constant_of(args[1])
    return pa.nulls(len(args[0]), kind) if bits is None else _SHA2[bits](args, kind)


def _base64(args: Sequence[Any], _kind: pa.DataType) -> Any:
    starts, content = text_buffers(args[0])
    sizes: Longs = (starts[1:].astype(np.int64) - starts[:-1].astype(np.int64) + 2) // 3 * 4
    check_sizes("base64", sizes)
    ends = zeros(sizes.size + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    out = fresh(int(ends[-1]), np.uint8)
    hash_loops.encode_base64(starts, content, ends, out)
    return _made(args, built(ends, out))


FUNCTIONS: Mapping[str, ColumnFunction] = {
    "crc32": _checksum,
    "md5": _digests(16, hash_loops.digests_md5),
    "sha1": _digests(20, hash_loops.digests_sha1),
    "sha2": _sha2,
    "base64": _base64,
}
