"""Prints which files a query passes until it is a plan, and a batch in this process, and what the rooms are made of.

    python -m tests.house.trace_paths             # the paths in short, and the measures of the rooms
    python -m tests.house.trace_paths --files     # every file of both paths, in the order of its first call
    python -m tests.house.trace_paths --json      # all figures, to compare two checkouts

It measures the package that is imported, so with ``PYTHONPATH`` it measures any other checkout. A file is *passed* if a
function of it is called; what a module does while it is imported does not count. A room is *entered* when a function
of it is called from another room. What is called inside other libraries and comes back counts as called from them.
"""

from __future__ import annotations

import argparse
import inspect
import json
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import weft
from tests.house.measures import House
from weft.testing import LocalRun

__all__ = ["Trace", "trace_batch", "trace_query"]

PACKAGE = Path(weft.__file__).parent
SCHEMA = "k INT, l INT, ts TIMESTAMP"
THREE_WAY = (
    "SELECT a.k, c.l FROM a [RANGE 1 MINUTE], b [RANGE 1 MINUTE], c [RANGE 1 MINUTE] "
    "WHERE a.k = b.k AND b.l = c.l"
)


@dataclass
class Trace:
    """The files of the package that functions were called in, in the order of their first calls."""

    files: dict[str, int] = field(default_factory=dict)  # how often each was entered from another file
    entered: Counter[str] = field(default_factory=Counter)  # how often each room was, from another room

    def see(self, frame: FrameType, event: str, _argument: Any) -> None:
        """Take note of a call; for `sys.setprofile`."""
        if event != "call" or not frame.f_code.co_flags & inspect.CO_OPTIMIZED:
            return
        file = _file_of(frame)
        if file is None:
            return
        caller = _file_of(frame.f_back) if frame.f_back is not None else None
        self.files.setdefault(file, 0)
        if caller != file:
            self.files[file] += 1
        if caller is None or _room(caller) != _room(file):
            self.entered[_room(file)] += 1

    @property
    def calls_by_room(self) -> dict[str, int]:
        """How often the files of each room are entered from another file, of their own room or not."""
        calls: Counter[str] = Counter()
        for file, count in self.files.items():
            calls[_room(file)] += count
        return dict(sorted(calls.items()))

    @property
    def rooms(self) -> dict[str, int]:
        """How many files of each room are passed."""
        return dict(sorted(Counter(map(_room, self.files)).items()))


_KNOWN: dict[str, str | None] = {}


def _file_of(frame: FrameType) -> str | None:
    """The file of a frame as a path inside the package; None if it is elsewhere."""
    name = frame.f_code.co_filename
    if name not in _KNOWN:
        path = Path(name)
        inside = path.is_relative_to(PACKAGE) and path.suffix == ".py"
        _KNOWN[name] = str(path.relative_to(PACKAGE)) if inside else None
    return _KNOWN[name]


def _room(file: str) -> str:
    """The room that a file is in; what is directly in the package is at the top level."""
    return file.split("/", maxsplit=1)[0] if "/" in file else "(top level)"


@contextmanager
def tracing() -> Iterator[Trace]:
    """What is called inside, in this thread and in those that begin meanwhile."""
    trace = Trace()
    threading.setprofile(trace.see)
    sys.setprofile(trace.see)
    try:
        yield trace
    finally:
        sys.setprofile(None)
        threading.setprofile(None)


def _session() -> weft.Session:
    session = weft.Session(adapt="off")  # a search for a better plan is no part of either path
    for name in "abc":
        session.stream(name, weft.files("json", f"{name}/", schema=SCHEMA), event_time="ts")
    return session


def trace_query() -> Trace:
    """The path of a three-way query from `Session.query` until it is a plan."""
    session = _session()
    with tracing() as trace:
        session.query(THREE_WAY, name="q")
    return trace


def trace_batch() -> Trace:
    """The path of a batch of a three-way query on the local executor; the batch before it has prepared all of that."""
    session = _session()
    session.query(THREE_WAY, name="q", sink=weft.to_console())
    run = LocalRun(session)
    run.batch(dict.fromkeys("abc", _rows(0)))
    with tracing() as trace:
        run.batch(dict.fromkeys("abc", _rows(40)))
    return trace


def _rows(first: int) -> list[dict[str, Any]]:
    noon = datetime(2026, 1, 1, 12)
    numbers = range(first, first + 40)
    return [{"k": n % 7, "l": n % 5, "ts": noon + timedelta(seconds=n)} for n in numbers]


def _figures() -> dict[str, Any]:
    """All figures as plain data."""
    house = House(PACKAGE)
    paths = {}
    for name, trace_of in _PATHS.items():
        trace = trace_of()
        paths[name] = {
            "files": len(trace.files),
            "rooms": trace.rooms,
            "entered": dict(sorted(trace.entered.items())),
            "calls between files": trace.calls_by_room,
            "path": list(trace.files),
        }
    return {
        "paths": paths,
        "rooms": {room or "(top level)": list(sizes) for room, sizes in house.rooms.items()},
        "modules": sum(not module.is_package for module in house.modules.values()),
        "lines": sum(module.lines for module in house.modules.values()),
        "folders above a dozen": house.crowded,
        "one importer, a neighbour": len(house.with_one_importer),
        "of these under 100 lines": len(house.fragments),
        "public class names twice": {name: len(where) for name, where in house.names_twice.items()},
    }


_PATHS: dict[str, Callable[[], Trace]] = {"query": trace_query, "batch": trace_batch}


def _print_path(name: str, path: dict[str, Any], *, files: bool) -> None:
    entered, calls = path["entered"], path["calls between files"]
    print(
        f"\nA {name} passes {path['files']} files; calls into a room from other rooms, and into its files from others:"
    )
    for room, count in path["rooms"].items():
        print(f"  {room:14} {count:4} files {entered.get(room, 0):6} {calls[room]:6}")
    if files:
        print("  " + "\n  ".join(path["path"]))


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("--files", action="store_true", help="also print every file of both paths")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON")
    options = parser.parse_args()
    figures = _figures()
    if options.json:
        print(json.dumps(figures, indent=2))
        return
    print(f"{figures['modules']} modules, {figures['lines']} lines; files and lines per room:")
    for room, (files, lines) in figures["rooms"].items():
        print(f"  {room:14} {files:4} {lines:7}")
    for title in ("folders above a dozen", "public class names twice"):
        print(f"{title}: {', '.join(f'{name} {count}' for name, count in figures[title].items()) or 'none'}")
    for title in ("one importer, a neighbour", "of these under 100 lines"):
        print(f"{title}: {figures[title]}")
    for name, path in figures["paths"].items():
        _print_path(name, path, files=options.files)


if __name__ == "__main__":
    main()
