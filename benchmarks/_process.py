"""Runs a contender in a process of its own, so that none profits from what another has warmed up.

Guarantees: the contender gets its task as JSON and answers with JSON; lines it marks as progress appear on standard
error. If it fails or takes too long, it is ended with all processes it started, and the last lines of its output are
shown.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

__all__ = ["ContenderError", "run_alone", "say"]

_MARK = "» "
_ROOT = Path(__file__).parents[1]


class ContenderError(Exception):
    """A contender ended without an answer."""


def say(text: str) -> None:
    """Print a line of progress on standard error."""
    print(f"{_MARK}{text}", file=sys.stderr, flush=True)


def run_alone(module: str, task: Mapping[str, Any], timeout: float) -> dict[str, Any]:
    """The answer of `python -m module` to a task, to which the time of the launch is added."""
    with tempfile.TemporaryDirectory() as folder:
        question, answer = Path(folder, "task.json"), Path(folder, "answer.json")
        question.write_text(json.dumps({**task, "launched": time.time()}), encoding="utf-8")
        path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        process = subprocess.Popen(
            [sys.executable, "-m", module, str(question), str(answer)],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        said = _follow(process, timeout)
        if process.returncode != 0 or not answer.exists():
            raise ContenderError(f"it ended with {process.returncode}:\n{said}")
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        return found


def _follow(process: subprocess.Popen[str], timeout: float) -> str:
    """Wait for the end while passing progress on, and return the last lines of all other output."""
    last: deque[str] = deque(maxlen=40)
    alarm = threading.Timer(timeout, _end, (process,))
    alarm.daemon = True
    alarm.start()
    try:
        for line in process.stderr or ():
            if _MARK in line:  # not always first, since Spark prints progress bars without an end of line
                print(line[line.index(_MARK) :], end="", file=sys.stderr, flush=True)
            else:
                last.append(line)
        process.wait()
    finally:
        alarm.cancel()
        _end(process)
        if process.stderr is not None:
            process.stderr.close()
    return "".join(last)


def _end(process: subprocess.Popen[str]) -> None:
    """End the contender and what it started, which are the processes of its own group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
    process.wait()
