"""How many generated rows have been taken.

Guarantees: rows come in the order of their numbers, each once, as fast as the rate says, counted from the first look
after the start or a restart: the time between two runs brings no rows. Rows that were not taken in time wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.connectors.generate.drift import Dial
from weft.ports.source import Offer, Part, Place

__all__ = ["RateCursor"]

_MOST_ROWS = 1 << 15  # in one part


class RateCursor:
    """The number of the next row, and how many the clock has brought.

    ``oldest`` says before which time no row from a number on can be; None: that is not known. Parts say where the
    ``dial`` stood when they were offered, unless it stood at 0.
    """

    def __init__(
        self,
        rows_per_second: int,
        bytes_per_row: int,
        place: Place,
        oldest: Callable[[int], int | None] = lambda _: None,
        dial: Dial | None = None,
    ) -> None:
        self._rate, self._row_bytes, self._most_bytes = rows_per_second, bytes_per_row, place.most_bytes
        self._position = self._start = self._end = int(place.state.get("position", 0))
        self._began: float | None = None
        self._oldest, self._dial = oldest, dial

    def look(self, now: float) -> Offer:
        """The rows that the clock has brought and that were not taken."""
        if self._began is None:
            self._began = now
        self._end = max(self._end, self._start + int((now - self._began) * self._rate))
        waiting = self._end - self._position
        most = min(waiting, max(1, self._most_bytes // self._row_bytes))
        turned = {"dial": self._dial.position} if self._dial is not None and self._dial.position else {}
        parts = [
            Part(
                {"first": first, "rows": rows, **turned},
                rows * self._row_bytes,
                rows,
                self._oldest(first),
                (self._due(first), self._due(first + rows - 1)),
            )
            for first in range(self._position, self._position + most, _MOST_ROWS)
            if (rows := min(_MOST_ROWS, self._position + most - first))
        ]
        return Offer(tuple(parts), backlog=(-(-waiting // _MOST_ROWS), waiting * self._row_bytes))

    def _due(self, row: int) -> int:
        """When the clock brought a row, in microseconds."""
        return round(((self._began or 0.0) + (row - self._start + 1) / self._rate) * 1e6)

    def take(self, parts: Sequence[Part]) -> None:
        """Go on behind these parts, which are the first that were offered."""
        for part in sorted(parts, key=lambda part: int(part.what["first"])):
            if part.what["first"] != self._position:
                raise ValueError(f"rows from {self._position} on were passed over")
            self._position += part.what["rows"]
            self._end = max(self._end, self._position)

    def state(self) -> dict[str, Any]:
        """The number of the next row."""
        return {"position": self._position, "blobs": []}

    def release(self, parts: Sequence[Part]) -> None:
        """Do nothing: rows can be generated again at any time, so nothing is kept."""

    def catch_up(self) -> None:
        """Do nothing: the next look sees what the clock has brought."""

    def close(self) -> None:
        """Do nothing: nothing is open."""
