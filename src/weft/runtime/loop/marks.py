"""Moments that somebody waits for: when all that was there has been processed.

Guarantees: a mark is reached when all that could be read when it was set is committed, what was not complete by then
included, and when nothing more was to be done; not before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from weft.runtime.loop.intake import Intake

__all__ = ["Mark", "Marks"]


@dataclass(eq=False)
class Mark:
    """A moment: ``target`` is how many parts of every stream had come by then, as soon as the loop has looked.

    ``unfinished`` is what could not be read by then; once it can be, it counts too. ``last`` is the batch by which
    nothing more was to be done, and which has to be committed.
    """

    reached: threading.Event = field(default_factory=threading.Event)
    target: dict[str, int] | None = None
    unfinished: frozenset[tuple[str, str]] = frozenset()
    last: int | None = None


class Marks:
    """The marks that are not reached yet; `add` may be called by any thread, all else by the loop's."""

    def __init__(self, intake: Intake) -> None:
        self._intake = intake
        self._waiting: list[Mark] = []

    def add(self) -> Mark:
        """A mark for what is there now."""
        mark = Mark()
        self._waiting.append(mark)
        return mark

    def aim(self) -> None:
        """Marks that are new are reached when what was seen last is committed, and what becomes complete of it."""
        offers = self._intake.offers.items()
        unfinished = frozenset((name, one.name) for name, offer in offers for one in offer.unfinished)
        for mark in list(self._waiting):
            if mark.target is None:
                mark.target, mark.unfinished = self._intake.waiting(), unfinished
            elif mark.unfinished - unfinished:
                mark.target, mark.unfinished = self._intake.waiting(), mark.unfinished & unfinished

    def release(self, last_run: int, last_committed: int, is_due: Callable[[], bool]) -> None:
        """Wake up who waits for marks that are reached; ``is_due`` says whether there is something left to do."""
        for mark in list(self._waiting):
            if mark.target is None or not self._intake.has_released(mark.target):
                continue
            if mark.last is None and not (mark.unfinished or is_due()):
                mark.last = last_run
            if mark.last is not None and last_committed >= mark.last:
                self._waiting.remove(mark)
                mark.reached.set()
