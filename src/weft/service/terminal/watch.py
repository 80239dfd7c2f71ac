"""Waits for the end of a run, and writes its log.

Guarantees: a run is asked to stop by Ctrl-C or SIGTERM, by its time or by its own end, and goes on otherwise. Handlers
of signals and of logs are there only as long as the run.
"""

from __future__ import annotations

import logging
import math
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from types import FrameType
from typing import Protocol

from weft.errors import SuspendedError, WeftError

__all__ = ["Runs", "log_batches", "stop_signals", "watch"]


class Runs(Protocol):
    """A session or run, as far as `watch` needs to know it."""

    @property
    def is_active(self) -> bool: ...

    def await_termination(self, timeout: int | None = None) -> bool: ...


def watch(
    session: Runs,
    asked: Event,
    seconds: float | None,
    tell: Callable[[], None],
    counts: Callable[[], bool],
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Wait until the session ends, ``asked`` is set, or the time is over; call ``tell`` every second or so.

    ``counts`` says whether this time counts: it does not while the first rows are on their way, as tasks load their
    code then.
    """
    left = math.inf if seconds is None else seconds
    while not asked.is_set() and left > 0:
        began = clock()
        try:
            if session.await_termination(1):
                return
        except SuspendedError:  # all queries are: they go on by themselves one day
            if not session.is_active:
                raise
            asked.wait(1)
        tell()
        left -= clock() - began if counts() else 0.0


@contextmanager
def stop_signals(asked: Event) -> Iterator[None]:
    """Let Ctrl-C and SIGTERM set the event; Spark's own handler would cancel the batch under way."""

    def ask(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def log_batches(file: Path | None, output: bool) -> Iterator[None]:
    """Write the log of batches to a file, to the standard output, to both or to neither, while this lasts."""
    logger, handlers = logging.getLogger("weft"), list[logging.Handler]()
    if file is not None:
        try:
            handlers.append(logging.FileHandler(file, encoding="utf-8"))
        except OSError as error:
            raise WeftError(f"cannot write the log {file}: {error.strerror}") from None
    if output:
        handlers.append(logging.StreamHandler(sys.stdout))
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(message)s"))
        logger.addHandler(handler)
    if handlers:
        logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        for handler in handlers:
            logger.removeHandler(handler)
            handler.close()
