"""What tasks tell the driver of ordered results: the runs that they found, and what came of merging ranges of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

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
