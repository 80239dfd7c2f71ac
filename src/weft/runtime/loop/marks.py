"""Marks, by which callers wait until all input of a moment has been processed.

Guarantees: a mark is reached when all input that was there when it was set is committed, including files that were not
complete yet, and when no batch is due; not before. What was there is told by a look that began after the mark was set,
never by one that was under way. What is gone, or is no file any more, is not waited for.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from weft.ports.source import Offer
from weft.runtime.loop.intake import Intake

__all__ = ["Mark", "Marks"]


@dataclass(eq=False)
class Mark:
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


class Marks:
    """The marks that are not reached yet; `add` may be called by any thread, all else by the loop's."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._waiting: list[Mark] = []

    def add(self) -> Mark:
        """A new mark for the input that is there now."""
        mark = Mark()
        self._waiting.append(mark)
        return mark

    def look(self) -> None:
        """Have the streams looked at, and set the targets of the marks that were there before.

        The targets of marks are set again if some of the files that they wait for are now complete.
        """
        before = list(self._waiting)
        self._intake.look()
        offers = self._intake.offers
        unfinished = frozenset((name, one.name) for name, offer in offers.items() for one in offer.unfinished)
        for mark in before:
            if mark.target is None:
                mark.target, mark.unfinished = self._intake.waiting(), unfinished
                continue
            left = frozenset(
                one for one in mark.unfinished if one in unfinished or _is_cut(offers.get(one[0]))
            )
            if left != mark.unfinished:
                mark.target, mark.unfinished = self._intake.waiting(), left

    def release(
        self,
        last_run: int,
        last_committed: int,
        is_due: Callable[[], bool],
        try_again: Callable[[], bool] = lambda: False,
    ) -> None:
        """Set the events of marks that are reached; ``is_due`` says whether there is something left to do.

        Once for each mark, ``try_again`` has all sinks and streams tried that failed before, and says if there are any.
        """
        for mark in list(self._waiting):
            if mark.target is None or not self._intake.has_released(mark.target):
                continue
            if not mark.tried:
                mark.tried = True
                if try_again():
                    mark.target = None  # what they offer counts, too
                    continue
            if mark.last is None and not (mark.unfinished or is_due()):
                mark.last = last_run
            if mark.last is not None and last_committed >= mark.last:
                self._waiting.remove(mark)
                mark.reached.set()


def _is_cut(offer: Offer | None) -> bool:
    """Whether more waits than an offer lists, so that it says nothing of files that it does not name."""
    return offer is not None and len(offer.parts) < offer.backlog[0]
