"""How much a task looks at together: any answer must be the same, whatever that is."""

from __future__ import annotations

import random

from weft.runtime.model.limits import PORTION_BYTES

__all__ = ["SIZES", "random_portion"]

# A row at a time, about seven rows, some dozens, and as often what is usual: with so little data, all at once.
SIZES = (1, 300, 3_000, PORTION_BYTES, PORTION_BYTES, PORTION_BYTES)


def random_portion(case: object) -> int:
    """The size of portions for a case, in bytes: for the same case the same."""
    return random.Random(str(case)).choice(SIZES)
