"""Marks, by which callers wait until all input of a moment has been processed.

Guarantees: a mark is reached when all input that was there when it was set is committed, including files that were not
complete yet, and when no batch is due; not before.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from weft.runtime.loop.intake import Intake

__all__ = ["Mark", "Marks"]


@dataclass(eq=False)
class Mark:
    """A moment that a caller waits for, by its event ``reached``.

    ``target`` is how many parts of every stream have to be committed; None until the loop has looked. ``unfinished``
    are the files, with their stream, that were not complete then; the target grows when they are. ``last`` is the batch
    after which nothing was left to do, and which has to be committed; None until there is one.
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
        """A new mark for the input that is there now."""
        mark = Mark()
        self._waiting.append(mark)
        return mark

    def aim(self) -> None:
        """Set the targets of new marks by the last look, and again for marks some of whose files are now complete."""
        offers = self._intake.offers.items()
        unfinished = frozenset((name, one.name) for name, offer in offers for one in offer.unfinished)
        for mark in list(self._waiting):
            if mark.target is None:
                mark.target, mark.unfinished = self._intake.waiting(), unfinished
            elif mark.unfinished - unfinished:
                mark.target, mark.unfinished = self._intake.waiting(), mark.unfinished & unfinished

    def release(self, last_run: int, last_committed: int, is_due: Callable[[], bool]) -> None:
        """Set the events of marks that are reached; ``is_due`` says whether there is something left to do."""
        for mark in list(self._waiting):
            if mark.target is None or not self._intake.has_released(mark.target):
                continue
            if mark.last is None and not (mark.unfinished or is_due()):
                mark.last = last_run
            if mark.last is not None and last_committed >= mark.last:
                self._waiting.remove(mark)
                mark.reached.set()
