"""Base64, a column at a time.

Guarantees: texts in the standard alphabet, padded to a multiple of four, are decoded by table look-ups over the
whole column; any other text is bad.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from weft.sources.columns import Mask

__all__ = ["from_base64"]

_ALPHABET = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
_TABLE = np.full(256, 255, np.uint8)
_TABLE[np.frombuffer(_ALPHABET, np.uint8)] = np.arange(64, dtype=np.uint8)
_TABLE[ord("=")] = 0

_SHAPE = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def from_base64(texts: Any) -> tuple[Any, Mask | None]:
    """The bytes the texts stand for, and which rows stand for none."""
    good = pc.match_substring_regex(texts, _SHAPE)
    wrong = pc.fill_null(pc.invert(good), False)
    bad: Mask | None = wrong.to_numpy(False) if pc.any(wrong, min_count=0).as_py() else None
    kept = pc.if_else(pc.fill_null(good, False), texts, "")
    lengths = pc.binary_length(kept).to_numpy(False).astype(np.int64)
    padding = _padding(kept)
    sizes = lengths // 4 * 3 - padding
    content = _decoded(np.frombuffer(b"".join(_chunks(kept)), np.uint8), lengths, padding)
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int32)
    valid = pc.and_kleene(texts.is_valid(), pc.invert(wrong))
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(content)]
    values = pa.Array.from_buffers(pa.binary(), len(texts), buffers)
    return pc.if_else(valid, values, pa.scalar(None, pa.binary())), bad


def _chunks(kept: Any) -> list[bytes]:
    """The texts one after another, without what surrounds a slice."""
    joined = pc.binary_join(pa.ListArray.from_arrays([0, len(kept)], kept), "")
    return [joined[0].as_buffer().to_pybytes()] if len(kept) else []


def _padding(kept: Any) -> NDArray[np.int64]:
    counted = pc.add(
        pc.cast(pc.ends_with(kept, "="), pa.int64()), pc.cast(pc.ends_with(kept, "=="), pa.int64())
    )
    padding: NDArray[np.int64] = counted.to_numpy(False)
    return padding


def _decoded(
    letters: NDArray[np.uint8], lengths: NDArray[np.int64], padding: NDArray[np.int64]
) -> NDArray[np.uint8]:
    """Three bytes from every four letters, without those that padding stands for."""
    quads = _TABLE[letters].reshape(-1, 4).astype(np.uint32)
    word = quads[:, 0] << 18 | quads[:, 1] << 12 | quads[:, 2] << 6 | quads[:, 3]
    out = np.stack([word >> 16, word >> 8 & 255, word & 255], axis=1).astype(np.uint8).reshape(-1)
    keep = np.ones(len(out), np.bool_)
    ends = np.cumsum(lengths // 4 * 3)
    keep[ends[padding >= 1] - 1] = False
    keep[ends[padding == 2] - 2] = False
    return out[keep]
