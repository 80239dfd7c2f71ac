"""What tasks of a batch tell later hops: notes, which the driver never sees.

Guarantees: as those of reports: a note is immutable, and `from_message(note.to_message())` equals it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

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


class _UnderwayForm:
    """What a batch has done so far in a partition, as plain data: only runs that are in segments, which others see."""

    def encode(self, value: Underway) -> dict[str, Any]:
        return {
            "added": [[*place, list(map(_plain, runs))] for place, runs in value.added.items()],
            "settled": {store: list(map(_plain, runs)) for store, runs in value.settled.items()},
            "segments": value.segments,
        }

    def decode(self, data: Mapping[str, Any]) -> Underway:
        added: dict[tuple[str, str], list[Run]] = {
            (store, start): list(map(StoredRun.from_list, runs)) for store, start, runs in data["added"]
        }
        settled: dict[str, list[Run]] = {
            store: list(map(StoredRun.from_list, runs)) for store, runs in data["settled"].items()
        }
        return Underway(added, settled, dict(data["segments"]))


def _plain(run: Run) -> list[Any]:
    if isinstance(run, Bucket):
        raise TypeError("a run is in no segment, so no other process can see it")
    return run.to_list()


@dataclass(frozen=True, slots=True)
class HopLeft(EncodedReport):
    """What a batch has done so far in a partition, for the next hop, which runs in another process."""

    kind = f"{NOTE}left"
    partition: int
    underway: Annotated[Underway, _UnderwayForm()] = field(default_factory=Underway)
