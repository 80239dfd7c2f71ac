"""Generated data that changes while it is generated: a dial that somebody turns, and columns that follow it.

Guarantees: where the dial stood is written into every part, with the plan of its batch. So a batch that is repeated
has the same rows, wherever the dial stands by then, and tasks never look at the dial. A dial may be turned from any
thread. Where it stands is not kept: a run that is started again begins with the dial at 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from weft.errors import SourceError
from weft.logical.arguments import checked, shown
from weft.logical.schema import DataType

if TYPE_CHECKING:
    from weft.connectors.generate.rate import Kind, Numbers

__all__ = [
    "Dial",
    "Drifting",
    "drifting",
]


class Dial:
    """A number from 0 to 1 that can be turned while rows are generated.

    >>> dial = Dial()
    >>> dial.turn(0.5)
    >>> dial.position
    0.5
    """

    def __init__(self) -> None:
        self._position = 0.0

    @property
    def position(self) -> float:
        """Where the dial stands."""
        return self._position

    def turn(self, position: float) -> None:
        """Turn the dial; parts that are offered from now on follow it."""
        if not isinstance(position, int | float) or not 0 <= position <= 1:
            raise SourceError(
                f"a dial cannot be turned to {shown(position)}", hint="use a number from 0 to 1"
            )
        self._position = float(position)


@dataclass(frozen=True, slots=True)
class Drifting:
    """A column whose values are drawn from one kind while the dial is at 0, from another at 1, and mixed in between."""

    first: Kind
    second: Kind

    def __post_init__(self) -> None:
        for kind in (self.first, self.second):
            if not isinstance(getattr(kind, "type", None), DataType) or not callable(
                getattr(kind, "values", None)
            ):
                raise SourceError(
                    f"a column cannot drift by {shown(kind)}", hint="use two kinds, as weft.uniform(10)"
                )
        if self.first.type != self.second.type:
            raise SourceError(
                f"a column cannot drift from {self.first.type} to {self.second.type}",
                hint="use two kinds of the same type",
            )

    @property
    def type(self) -> DataType:
        return self.first.type

    def values(self, rows: Numbers, words: Numbers, per_second: int, position: float = 0.0) -> Any:
        """The values of rows, each of the second kind with the probability that the position of the dial is."""
        if position in (0.0, 1.0):
            return (self.second if position else self.first).values(rows, words, per_second)
        before, after = (kind.values(rows, words, per_second) for kind in (self.first, self.second))
        return pc.if_else(pa.array(_shares(words) < position), after, before)


@checked(SourceError)
def drifting(first: Kind, second: Kind) -> Drifting:
    """A column that goes from the ``first`` kind to the ``second`` as the dial of its source is turned from 0 to 1."""
    return Drifting(first, second)


def _shares(words: Numbers) -> NDArray[np.float64]:
    """A number from 0 to below 1 for each word, which says nothing about the value that is drawn by the word."""
    mixed = (words ^ (words >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xC4CEB9FE1A85EC53)
    shares: NDArray[np.float64] = (mixed >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return shares
