"""The most memory that a process and all processes it started had at a time.

Guarantees: the figure is the sum of resident memory, as the kernel counts it, over the whole session of processes:
Python, the JVM, and Spark's Python workers, which leave their parent's group but not its session. Pages that forked
workers share are counted for each of them. Samples are taken ten times a second. The figure is None where there is no
/proc.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

_PAGE = os.sysconf("SC_PAGE_SIZE")
_SESSION, _RESIDENT = 3, 21  # fields of /proc/N/stat after the name, which may hold anything


def resident(session: int, root: Path = Path("/proc")) -> int:
    """The resident bytes of a session's processes now."""
    total = 0
    for entry in root.glob("[0-9]*/stat"):
        try:
            fields = entry.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        except OSError:  # the process has ended meanwhile
            continue
        if int(fields[_SESSION]) == session:
            total += int(fields[_RESIDENT]) * _PAGE
    return total


class PeakMemory:
    """Measures memory while its `with` block runs."""

    def __init__(self) -> None:
        self.bytes: int | None = None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> PeakMemory:
        if Path("/proc/self/stat").exists():
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        if self._thread.is_alive():
            self._thread.join()

    def _watch(self) -> None:
        session = os.getsid(0)
        while not self._done.wait(0.1):
            self.bytes = max(self.bytes or 0, resident(session))
