"""States of rows that occur many times in a join, without the join being made (design, D9).

Guarantees: the state of a row that is repeated n times is the one that merging n states of it gives, so a sum over
rows with their repetitions is exactly the sum over all rows of the join. Counts and sums multiply; the least and the
largest value and the set of different values are what they were. States that are neither are not repeatable, and their
rows have to be made.
"""

from __future__ import annotations

import pyarrow as pa

from weft.bucket.columns import longs
from weft.bucket.compiled import Longs
from weft.kernels.groups.exact_sums import carried
from weft.kernels.groups.states import (
    AggregateState,
    Columns,
    Dispersion,
    Distinct,
    Extreme,
    FloatSum,
    ValueCount,
    WholeSum,
)

__all__ = ["MOST_REPEATS", "is_repeatable", "repeat_states"]

MOST_REPEATS = 1 << 30  # so a limb of 32 bits times a number of repetitions is a word

_ALIKE = (Extreme, Distinct)
_ADDED = (ValueCount, FloatSum, Dispersion)


def is_repeatable(state: AggregateState) -> bool:
    """Whether the state of a row that is repeated follows from that of the row."""
    return isinstance(state, (*_ALIKE, *_ADDED, WholeSum))


def repeat_states(state: AggregateState, states: Columns, repeats: Longs) -> Columns:
    """The states of rows that are each repeated so many times, fewer than `MOST_REPEATS`."""
    if isinstance(state, _ALIKE):
        return states
    found = {
        suffix: pa.array(longs(values) * repeats) if _is_added(suffix) else values
        for suffix, values in states.items()
    }
    if isinstance(state, WholeSum):
        limbs = carried([longs(found[f"s{place}"]) for place in range(state.limbs)])
        found |= {f"s{place}": pa.array(limb) for place, limb in enumerate(limbs)}
    return found


def _is_added(suffix: str) -> bool:
    """Whether a column of states is added up: a count, a limb or a digit, but no place of a digit or mark."""
    return suffix == "n" or suffix[1:].isdigit()
