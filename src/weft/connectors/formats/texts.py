"""Texts and wide numbers become values of the declared types.

Guarantees: a text is read as CAST reads it (`weft.kernels.expr.parse_texts`) or marked bad. A number is bad where its
type cannot hold it: too large, too small, or with more digits than a decimal's scale.
"""

from __future__ import annotations

from binascii import a2b_base64
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weft.connectors.formats.columns import Column, Mask
from weft.kernels.expr.arrow import arrow_type
from weft.kernels.expr.datum import null_unless
from weft.kernels.expr.parse_texts import parse
from weft.kernels.expr.print_texts import utf8_or_null
from weft.logical.schema import DataType

__all__ = ["as_text", "doubles_to", "integers_to", "read_texts"]

_BASE64 = r"^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def as_text(values: Any) -> Column:
    """Bytes as texts; what is no UTF-8 is bad."""
    texts = utf8_or_null(values)
    return Column(texts, _lost(values, texts), values)


def read_texts(texts: Any, type_: DataType, *, base64: bool = False) -> Column:
    """A column of texts as values of the type; `base64` says that binary values are written so."""
    if type_.name == "string":
        return Column(texts)
    if type_.name == "binary":
        values = _from_base64(texts) if base64 else pc.cast(texts, pa.binary())
    else:
        values = parse(texts, arrow_type(type_), exact=True)
    return Column(values, _lost(texts, values), texts)


def _lost(before: Any, after: Any) -> Mask | None:
    """Which rows had a value before a conversion and have none after it; None: no row."""
    if before.null_count == after.null_count:
        return None
    lost: Mask = pc.and_(before.is_valid(), after.is_null()).to_numpy(zero_copy_only=False)
    return lost


def _from_base64(texts: Any) -> Any:
    """The bytes that texts stand for; NULL where a text is not of the standard alphabet, or not padded."""
    sound = null_unless(pc.match_substring_regex(texts, _BASE64), texts).to_pylist()
    return pa.array([None if text is None else a2b_base64(text) for text in sound], pa.binary())


def integers_to(values: Any, type_: DataType) -> Column:
    """Whole numbers of 64 bits as those of the type."""
    kind = arrow_type(type_)
    if values.type == kind:
        return Column(values)
    limits = np.iinfo(kind.to_pandas_dtype())
    inside = pc.and_(pc.greater_equal(values, int(limits.min)), pc.less_equal(values, int(limits.max)))
    if pc.all(inside, min_count=0).as_py():
        return Column(pc.cast(values, kind, safe=False))
    bad = pc.fill_null(pc.invert(inside), False).to_numpy(False)
    kept = pc.if_else(inside, values, pa.scalar(None, values.type))
    return Column(pc.cast(kept, kind, safe=False), bad, values)


def doubles_to(values: Any, type_: DataType) -> Column:
    """Doubles as numbers of the type, float or double; what only a double can hold is bad as a float."""
    if type_.name == "double":
        return Column(values)
    narrow = pc.cast(values, pa.float32(), safe=False)
    lost = pc.and_not(pc.fill_null(pc.is_inf(narrow), False), pc.fill_null(pc.is_inf(values), False))
    if not pc.any(lost, min_count=0).as_py():
        return Column(narrow)
    return Column(narrow, lost.to_numpy(False), values)
