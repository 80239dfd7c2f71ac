"""Points to wait for: callers wait until all input that was there at a moment has been processed.

Guarantees: a wait point is reached when all input that was there when it was set is committed, including files that
were not complete yet, and when no batch is due; not before. What was there is told by a look that began after the wait
point was set, never by one that was under way. What is gone, or is no file any more, is not waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from weft.ports.source import Offer
from weft.runtime.loop.intake.cursors import Intake

__all__ = ["WaitPoint", "WaitPoints"]


@dataclass(eq=False)
class WaitPoint:
    """A moment that a caller waits for, by its event ``reached``.

    ``target`` is how many parts of every stream have to be committed; None until the loop has looked. ``unfinished``
    are the files, with their stream, that were not complete then; the target grows when they are. ``last`` is the batch
    after which nothing was left to do, and which has to be committed; None until there is one. ``tried`` says whether
    what cannot go on has been tried again since.
    """

    reached: threading.Event = field(default_factory=threading.Event)
    target: dict[str, int] | None = None
    unfinished: frozenset[tuple[str, str]] = frozenset()
    last: int | None = None
    tried: bool = False


class WaitPoints:
    """The wait points that are not reached yet; `add` may be called by any thread, all else by the loop's."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._waiting: list[WaitPoint] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self) -> WaitPoint:
        """A new wait point for the input that is there now."""
        point = WaitPoint()
        self._waiting.append(point)
        return point

    def look(self) -> None:
        """Have the streams looked at, and set the targets of the wait points that were there before.

        The target of a wait point is set again if some of the files that it waits for are now complete.
        """
        before = list(self._waiting)
        self._intake.look()
        offers = self._intake.offers
        unfinished = frozenset(
            (name, file.name) for name, offer in offers.items() for file in offer.unfinished if file.awaited
        )
        for point in before:
            if point.target is None:
                point.target, point.unfinished = self._intake.waiting(), unfinished
                continue
            left = frozenset(
                one for one in point.unfinished if one in unfinished or _is_cut(offers.get(one[0]))
            )
            if left != point.unfinished:
                point.target, point.unfinished = self._intake.waiting(), left

    def release(
        self,
        last_run: int,
        last_committed: int,
        is_due: Callable[[], bool],
        try_again: Callable[[], bool] = lambda: False,
    ) -> None:
        """Set the events of wait points that are reached; ``is_due`` says whether there is something left to do.

        Once for each wait point, ``try_again`` has all sinks and streams tried that failed before, and says if there
        are any.
        """
        for point in list(self._waiting):
            if point.target is None or not self._intake.has_released(point.target):
                continue
            if not point.tried:
                point.tried = True
                if try_again():
                    point.target = None  # what they offer counts, too
                    continue
            if point.last is None and not (point.unfinished or is_due()):
                point.last = last_run
            if point.last is not None and last_committed >= point.last:
                self._waiting.remove(point)
                point.reached.set()


def _is_cut(offer: Offer | None) -> bool:
    """Whether more waits than an offer lists, so that it says nothing of files that it does not name."""
    return offer is not None and len(offer.parts) < offer.backlog[0]
