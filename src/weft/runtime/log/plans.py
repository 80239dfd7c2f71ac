"""The plans of batches in a log.

Guarantees: the first plan of a batch is put if absent, so one session decides what it does. A session replaces that
plan only under a name that has its epoch, and one that finds plans which are not committed puts them under its own
epoch before it runs them. Of several entries the one of the highest epoch counts: so whatever a session does that was
paused past its lease, it cannot replace the plan by which its follower runs. The entries are:

    plan/N.json      the plan of batch N, as it was first decided
    plan/N-E.json    the plan of batch N, as the session of epoch E runs it, or takes its input back
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.logical.codec import decode, encode
from weft.runtime.log.entries import entry, read_record
from weft.runtime.log.ownership import Ownership
from weft.runtime.log.values import BatchPlan
from weft.storage.storage import Storage

__all__ = ["Plans"]

_FOLDER = "plan"


class Plans:
    """The plans of a log, for one session; ``known`` are those that were read or written."""

    def __init__(self, storage: Storage, ownership: Ownership) -> None:
        self.known: dict[int, BatchPlan] = {}
        self._storage, self._ownership = storage, ownership
        self._entries: dict[int, list[str]] | None = (
            None  # by batch, the one that counts last; None: not settled
        )

    def find(self, number: int) -> BatchPlan | None:
        """The plan of a batch; None if it has not been planned."""
        if number not in self.known:
            names = self._found().get(number)
            data = read_record(self._storage, names[-1]) if names else None
            if data is None:
                return None
            self.known[number] = decode(BatchPlan, data)
        return self.known[number]

    def last(self, committed: int) -> BatchPlan | None:
        """The last plan of those that follow a committed batch without a gap; None if there is none."""
        planned, number = None, committed
        while (plan := self.find(number := number + 1)) is not None:
            planned = plan
        return planned

    def numbers(self) -> list[int]:
        """The batches that have plans, in their order."""
        return sorted(self._found())

    def settle(self, committed: int, *, flush: bool) -> None:
        """Make the plans that follow the last committed batch this session's own.

        Plans after a gap are deleted: the batch of the missing one will be planned anew, and may take other input, so
        they no longer fit. From now on, no other session's plans are looked for.
        """
        self._entries, expected = self._found(), committed + 1
        for number in sorted(self._entries):
            if number == expected:
                expected += 1
                self._adopt(number, flush)
            elif number > committed:
                self.delete(number)

    def _adopt(self, number: int, flush: bool) -> None:
        plan = self.find(number)
        if plan is not None and self._ownership.lease.epoch:
            self._put(self._own(number), plan, flush)

    def put(self, plan: BatchPlan, *, flush: bool) -> None:
        """Fix what a batch will do, or replace what this session has fixed."""
        again = plan.number in self.known
        self._put(self._own(plan.number) if again else entry(_FOLDER, plan.number), plan, flush)

    def _put(self, name: str, plan: BatchPlan, flush: bool) -> None:
        self._ownership.lease.put_first(name, encode(plan), flush=flush)
        if self._entries is not None:
            names = self._entries.setdefault(plan.number, [])
            names += [name] if name not in names else []

    def delete(self, number: int) -> None:
        """Delete the plan of a batch."""
        self.known.pop(number, None)
        names = self._found().get(number, []) if self._entries is None else self._entries.pop(number, [])
        for name in names:
            self._storage.delete(name)

    def _own(self, number: int) -> str:
        return f"{_FOLDER}/{number}-{self._ownership.lease.epoch}.json"

    def _found(self) -> dict[int, list[str]]:
        return _by_batch(self._storage.list(_FOLDER)) if self._entries is None else self._entries


def _by_batch(names: Iterable[str]) -> dict[int, list[str]]:
    """The entries of each batch by their epochs, the last of which counts, given the names in the folder."""
    found: dict[int, list[tuple[int, str]]] = {}
    for name in names:
        number, _, epoch = name.removesuffix(".json").partition("-")
        if number.isdigit() and (epoch.isdigit() or not epoch) and name.endswith(".json"):
            found.setdefault(int(number), []).append((int(epoch or -1), f"{_FOLDER}/{name}"))
    return {number: [name for _, name in sorted(entries)] for number, entries in found.items()}
