"""What a task of a hop is sent: parcels, what earlier hops left, and counts of tuples.

Guarantees: what is made of the messages does not depend on the order in which they came.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from weft.runtime.hop.admit import renumbered
from weft.runtime.model.batch_order import BatchOrder, Count
from weft.runtime.state.open_segments import Underway
from weft.runtime.wire.exchange import SentParcel
from weft.runtime.wire.messages import Message
from weft.runtime.wire.notes import HopLeft, TuplesCounted
from weft.runtime.wire.task_input import Job

__all__ = ["Arrived"]

ByEdge = dict[str, list[pa.RecordBatch]]


@dataclass
class Arrived:
    """The messages of a task of a hop; ``counts`` of tuples are by input and read task, ``underway`` by partition."""

    job: Job
    task: int
    parcels: list[SentParcel] = field(default_factory=list)
    underway: dict[int, Underway] = field(default_factory=dict)
    counts: dict[str, dict[int, int]] = field(default_factory=dict)

    def take(self, hop: int, message: Message) -> bool:
        """Keep a message if it is for this hop, and return whether it need not be passed on.

        Counts of tuples are kept and passed on, since later hops need them too.
        """
        if message.is_for_driver:
            return False
        if TuplesCounted.is_in(message):
            counted = TuplesCounted.from_message(message)
            for alias, rows in counted.rows.items():
                self.counts.setdefault(alias, {})[counted.task] = rows
            return False
        if HopLeft.is_in(message):
            left = HopLeft.from_message(message)
            self.underway[left.partition] = left.underway
            return True
        parcel = SentParcel.from_message(message)
        if self.job.program.edges[parcel.edge].hop != hop:
            return False
        self.parcels.append(parcel)
        return True

    def batches(self, before: Mapping[str, int]) -> dict[int, ByEdge]:
        """The batches by partition and edge, with the final numbers of tuples.

        ``before`` is how many tuples of each counted input came in earlier batches.
        """
        partitions, program = self.job.partitions_of(self.task), self.job.program
        found: dict[int, ByEdge] = {partition: {} for partition in partitions}
        for parcel in sorted(self.parcels, key=lambda parcel: (parcel.edge, parcel.sender)):
            batches = parcel.packed.batches()
            alias = program.starts[parcel.edge]
            if parcel.sender.hop == 0 and alias in self.counts:
                first = before[alias] + self._ahead(alias, parcel.sender.task)
                batches = [renumbered(alias, batch, first) for batch in batches]
            divided = parcel.divided(batches, len(partitions))
            for partition, mine in zip(partitions, divided, strict=False):  # the last ones may not exist
                if mine:
                    found[partition].setdefault(parcel.edge, []).extend(mine)
        return found

    def _ahead(self, alias: str, task: int) -> int:
        return sum(rows for other, rows in self.counts[alias].items() if other < task)

    def before(self) -> dict[str, int]:
        """How many tuples of the counted inputs came in earlier batches."""
        program, manifest = self.job.program, self.job.before
        return {a: manifest.arrived.get(program.graph.input(a).stream.name, 0) for a in program.counted}

    def counted(self, batch_order: BatchOrder, before: Mapping[str, int]) -> BatchOrder:
        """The batch's place in the total order, with the counts of its tuples."""
        counted = self.job.program.counted
        counts = {a: Count(before[a], sum(self.counts.get(a, {}).values())) for a in counted}
        return replace(batch_order, counts=counts)
