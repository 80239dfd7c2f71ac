"""The time of the processor that a session's processes use while it runs, by what they do.

Guarantees: the figures are the kernel's, in its ticks (a hundredth of a second each), for this process, Java, Spark's
Python workers and the planner in the background; what processes used that have ended in between two samples is left
out from the last sample on. Samples are taken forty times a second, and between two of them time goes evenly.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

KINDS = ("driver", "java", "workers", "planner")
_TICK = 1 / os.sysconf("SC_CLK_TCK")
_PARENT, _USER, _SYSTEM = 1, 11, 12  # fields of /proc/N/stat after the name, which may hold anything
_EVERY, _SEARCH = 0.025, 8  # seconds between two samples, and samples between two searches for new processes


class ProcessorTime:
    """Notes what each kind of process has used so far, while its `with` block runs."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._used: list[tuple[float, ...]] = []
        self._kinds: dict[int, str] = {}
        self._last: dict[int, float] = {}
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> ProcessorTime:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def used(self, moments: Sequence[float]) -> dict[str, list[float]]:
        """The seconds that each kind had used at moments of `time.perf_counter`."""
        columns = np.array(self._used).T
        return {
            kind: np.interp(moments, self._times, column).tolist()
            for kind, column in zip(KINDS, columns, strict=True)
        }

    def _watch(self) -> None:
        count = 0
        while not self._done.wait(_EVERY):
            if count % _SEARCH == 0:
                self._kinds = _descendants(os.getpid())
            count += 1
            for process in self._kinds:
                self._last[process] = max(_seconds(process), self._last.get(process, 0.0))
            sums = dict.fromkeys(KINDS, 0.0)
            for process, seconds in self._last.items():
                sums[self._kinds.get(process, "driver")] += seconds
            self._times.append(time.perf_counter())
            self._used.append(tuple(sums.values()))


def _fields(process: int) -> list[str]:
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:  # it has ended meanwhile
        return []
    return text.rpartition(")")[2].split()


def _seconds(process: int) -> float:
    fields = _fields(process)
    return (int(fields[_USER]) + int(fields[_SYSTEM])) * _TICK if fields else 0.0


def _descendants(root: int) -> dict[int, str]:
    """A process and all that it started, and what they do."""
    parents = {int(entry): _fields(int(entry)) for entry in os.listdir("/proc") if entry.isdigit()}
    children: dict[int, list[int]] = {}
    for process, fields in parents.items():
        if fields:
            children.setdefault(int(fields[_PARENT]), []).append(process)
    found, waiting = {root: "driver"}, [root]
    while waiting:
        process = waiting.pop()
        for child in children.get(process, ()):
            found[child] = _kind(child, found[process])
            waiting.append(child)
    return found


def _kind(process: int, parent: str) -> str:
    try:
        words = Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return parent
    if b"weft.adapting.background" in words:
        return "planner"
    if parent == "driver":
        return "java" if b"java" in words.partition(b"\0")[0] or b"spark-submit" in words else "driver"
    return "workers" if b"python" in words.partition(b"\0")[0] else parent
