"""Times named functions of the engine while it runs, by the hook that Python has for profilers.

Guarantees: the engine is left as it is; nothing in it is replaced. A function's seconds are those that its thread had
the processor, without those of other timed functions inside it. The hook is also called for all other functions, which
adds a fraction of a microsecond to each call: little, where a call works on many rows.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

__all__ = ["Calls", "timing"]


@dataclass
class Calls:
    """The seconds of the processor of functions, by the name they were given; ``entered`` is told of every call.

    A generator is timed whenever it goes on, and ``entered`` is told of it as often.
    """

    names: Mapping[CodeType, str]
    entered: Callable[[str, FrameType], None] | None = None
    seconds: dict[str, float] = field(default_factory=lambda: defaultdict(float))
    _open: threading.local = field(default_factory=threading.local)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        """Note that a function was called or has returned."""
        name = self.names.get(frame.f_code)
        if name is None:
            return
        stack: list[list[float]] = self._open.__dict__.setdefault("stack", [])
        if event == "call":
            if self.entered is not None:
                self.entered(name, frame)
            stack.append([time.thread_time(), 0.0])
        elif event == "return" and stack:
            began, inside = stack.pop()
            spent = time.thread_time() - began
            self.seconds[name] += spent - inside
            if stack:
                stack[-1][1] += spent


@contextmanager
def timing(
    functions: Mapping[str, Callable[..., Any]], entered: Callable[[str, FrameType], None] | None = None
) -> Iterator[Calls]:
    """While it is used, the functions are timed in this thread and in those that begin."""
    calls = Calls({function.__code__: name for name, function in functions.items()}, entered)
    threading.setprofile(calls)
    sys.setprofile(calls)
    try:
        yield calls
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
