"""What tasks tell the driver of ordered results: the runs that they found, and what came of merging ranges of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from weft.runtime.log.values import HeldRun
from weft.runtime.wire.encoded_report import EncodedReport
from weft.runtime.wire.exchange import Sender
from weft.runtime.wire.sorted_runs import SortedRun
from weft.stats.histogram import Latency

__all__ = ["Collected", "RunsFound"]


@dataclass(frozen=True, slots=True)
class RunsFound(EncodedReport):
    """Sorted runs of an ordered query's results that a task wrote to files of the batch."""

    kind = "runs"
    query: str
    sender: Sender
    runs: tuple[SortedRun, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        runs = [run.to_dict() for run in self.runs]
        return {"query": self.query, "sender": list(self.sender), "runs": runs}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> RunsFound:
        """What `to_dict` made, also after a way through JSON."""
        return cls(data["query"], Sender(*data["sender"]), tuple(map(SortedRun.from_dict, data["runs"])))


@dataclass(frozen=True, slots=True)
class Collected(EncodedReport):
    """A range of an ordered query's results was merged: the one of number ``place``.

    Of results that leave: ``rows`` is how many, ``part`` the part of the sink that was written or ``files`` those with
    results for the driver, ``marks`` are the rows and marks of punctuations, or ``marked`` names the file that has
    them, ``ages`` how old results by event time are, and ``cuts`` says of every run that was held before where its
    first row is that stays, and its time. Of results that stay, ``held`` are the runs that were written.
    """

    kind = "collected"
    query: str
    place: int
    rows: int = 0
    part: str = ""
    files: tuple[str, ...] = ()
    marks: tuple[tuple[int, ...], tuple[int, ...]] = ((), ())
    marked: str = ""
    ages: Latency = field(default_factory=Latency)
    cuts: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    held: tuple[HeldRun, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        plain = {name: getattr(self, name) for name in Collected.__slots__}
        return {**plain, "ages": self.ages.to_dict(), "held": [asdict(run) for run in self.held]}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Collected:
        """What `to_dict` made, also after a way through JSON."""
        rows, marks = data["marks"]
        made = {
            "files": tuple(data["files"]),
            "marks": (tuple(rows), tuple(marks)),
            "ages": Latency.from_dict(data["ages"]),
            "cuts": {name: (row, time) for name, (row, time) in data["cuts"].items()},
            "held": tuple(map(HeldRun.from_dict, data["held"])),
        }
        return cls(**{**data, **made})
