"""What tasks of a batch tell later hops: notes, which the driver never sees.

Guarantees: as those of reports: a note is immutable, and `from_message(note.to_message())` equals it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from weft.bucket.bucket import Bucket
from weft.runtime.state.open_segments import Run, Underway
from weft.runtime.state.partition_manifest import StoredRun
from weft.runtime.wire.encoded_report import EncodedReport
from weft.runtime.wire.messages import NOTE

__all__ = ["HopLeft", "TuplesCounted"]


@dataclass(frozen=True, slots=True)
class TuplesCounted(EncodedReport):
    """How many tuples of counted inputs a read task admitted, by input; every task needs it to number tuples."""

    kind = f"{NOTE}counts"
    task: int
    rows: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class HopLeft(EncodedReport):
    """What a batch has done so far in a partition, for the next hop, which runs in another process."""

    kind = f"{NOTE}left"
    partition: int
    underway: Underway = field(default_factory=Underway)

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        done = self.underway
        return {
            "partition": self.partition,
            "added": [[*place, list(map(_plain, runs))] for place, runs in done.added.items()],
            "settled": {store: list(map(_plain, runs)) for store, runs in done.settled.items()},
            "segments": done.segments,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> HopLeft:
        """What `to_dict` made, also after a way through JSON."""
        added: dict[tuple[str, str], list[Run]] = {
            (store, start): list(map(StoredRun.from_list, runs)) for store, start, runs in data["added"]
        }
        settled: dict[str, list[Run]] = {
            store: list(map(StoredRun.from_list, runs)) for store, runs in data["settled"].items()
        }
        return cls(data["partition"], Underway(added, settled, dict(data["segments"])))


def _plain(run: Run) -> list[Any]:
    if isinstance(run, Bucket):
        raise TypeError("a run is in no segment, so no other process can see it")
    return run.to_list()
