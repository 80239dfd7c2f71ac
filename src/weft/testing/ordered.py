"""Whether results are in order, from the definitions (design, section 3; SplitJoin, section 5.1).

Guarantees: shares no code with the runtime; looks at whole columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, nearest

__all__ = ["is_ordered"]

Numbers = NDArray[np.int64]


def is_ordered(
    tuples: Mapping[str, Any],
    order: str,
    precision: int = 1,
    *,
    numbers: Mapping[str, Any] | None = None,
) -> bool:
    """Whether results are in an order that a query can ask for.

    ``tuples`` says, for each input in the order of FROM, which tuple every result has: its place in the total order of
    arrival over all inputs or, for "event", its time. ``numbers`` are the places among the tuples of its own stream;
    without them, "inner" is checked by the places among all, which is the same with a precision of 1.

    >>> is_ordered({"a": [0, 2, 2], "b": [1, 1, 0]}, "outer")
    True
    >>> is_ordered({"a": [0, 2, 2], "b": [1, 1, 0]}, "inner")
    False
    """
    columns = {name: np.asarray(values, np.int64) for name, values in tuples.items()}
    last: Numbers = np.max(list(columns.values()), axis=0)
    if order == "event":
        return _ascends([last])
    if order == "outer":
        return _ascends([last // precision])
    if order != "inner":
        raise ConfigError(f"there is no order {order!r}", hint=nearest(order, ("outer", "inner", "event")))
    own = columns if numbers is None else {name: np.asarray(numbers[name], np.int64) for name in columns}
    partners = [np.where(columns[name] == last, 0, own[name] // precision) for name in columns]
    return _ascends([last, *partners])


def _ascends(keys: Sequence[Numbers]) -> bool:
    """Whether no row is before the one ahead of it, the first key deciding."""
    undecided = np.ones(max(0, keys[0].size - 1), np.bool_)
    for key in keys:
        before, after = key[:-1], key[1:]
        if bool(np.any(undecided & (after < before))):
            return False
        undecided &= after == before
    return True
