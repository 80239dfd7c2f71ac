"""What benchmarks have in common: contenders in processes of their own, options, tables and verdicts.

Guarantees: a contender is a function of a module; it is called in a process of its own, so that none profits from what
another has warmed up, with a task that comes and an answer that goes as JSON. Lines that it marks as progress appear on
standard error. If it fails or takes too long, it is ended with all processes it started, and the last lines of its
output are shown. No verdict is given on what was not measured. What a benchmark concludes is also kept for whoever runs
it in the same process (`CONCLUSIONS`).
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

_MARK = "» "
_ROOT = Path(__file__).parents[1]
_WORDS = {True: "reached", False: "missed ", None: "unknown"}
Contender = Callable[[Any], dict[str, Any]]
Judged = Iterable[tuple[str, bool | None]]


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What a benchmark concluded: targets, whether they were reached, what went wrong, and ratios to peers.

    A ratio is by its name, as in "pair ÷ rocksdb"; the larger it is, the better for Weft.
    """

    judged: tuple[tuple[str, bool | None], ...] = ()
    troubles: tuple[str, ...] = ()
    ratios: Mapping[str, float] = field(default_factory=dict)


CONCLUSIONS: list[Conclusion] = []  # of this process


class ContenderError(Exception):
    """A contender ended without an answer."""


def say(text: str) -> None:
    """Print a line of progress on standard error."""
    print(f"{_MARK}{text}", file=sys.stderr, flush=True)


def run_alone(contender: Contender, task: Any, timeout: float) -> dict[str, Any]:
    """The answer of a function to a task, in a process of its own; the time of its launch is added to the task."""
    plain = dict(task) if isinstance(task, Mapping) else asdict(task)
    with tempfile.TemporaryDirectory() as folder:
        question, reply = Path(folder, "task.json"), Path(folder, "answer.json")
        question.write_text(json.dumps({**plain, "launched": time.time()}), encoding="utf-8")
        path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
        function = [contender.__module__, contender.__name__]
        process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks._alone", *function, str(question), str(reply)],
            env={**os.environ, "PYTHONPATH": path},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        said = _follow(process, timeout)
        if process.returncode != 0 or not reply.exists():
            raise ContenderError(f"it ended with {process.returncode}:\n{said}")
        answered: dict[str, Any] = json.loads(reply.read_text(encoding="utf-8"))
        return answered


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


def make_console(width: int = 120) -> Console:
    """A console; one that is no terminal is as wide as tables need, where Rich would cut them off."""
    return Console(width=None if sys.stdout.isatty() else width)


def make_table(title: str, heads: Sequence[str], left: int = 1, caption: str | None = None) -> Table:
    """A table of figures, whose first so many columns are texts."""
    table = Table(title=title, caption=caption)
    for number, head in enumerate(heads):
        table.add_column(head, justify="left" if number < left else "right")
    return table


# Options that many benchmarks have: default, and help.
_SHARED: dict[str, tuple[Any, str]] = {
    "--cores": (2, "of Spark"),
    "--timeout": (900.0, "seconds a run may take"),
    "--directory": (None, "where data, results and checkpoints go; a temporary directory"),
    "--json": (None, "a file to write the figures to, too"),
    "--strict": (False, "exit with 1 if a target is missed"),
}


def make_parser(name: str, text: str | None, shared: str = "", **defaults: Any) -> argparse.ArgumentParser:
    """A parser of a benchmark's options, some of which it shares with others: their names, and other defaults."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(prog=f"weft bench {name}", description=text, formatter_class=raw)
    for option in (f"--{word}" for word in shared.split()):
        default, what = _SHARED[option]
        if isinstance(default, bool):
            parser.add_argument(option, action="store_true", help=what)
            continue
        default = defaults.get(option[2:], default)
        parser.add_argument(
            option, type=str if default is None else type(default), default=default, help=what
        )
    return parser


def some_of(names: Sequence[str]) -> Callable[[str], list[str]]:
    """What reads some of these names from the command line, with commas between them, and keeps their order here."""

    def read(text: str) -> list[str]:
        asked = text.split(",")
        unknown = sorted(set(asked) - set(names))
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(names)}")
        return [name for name in names if name in asked]

    return read


@contextmanager
def working_directory(options: argparse.Namespace) -> Iterator[Path]:
    """A directory for data, results and checkpoints, which is removed at the end."""
    where = getattr(options, "directory", None)
    with tempfile.TemporaryDirectory(prefix="weft-bench-", dir=where) as folder:
        yield Path(folder)


def conclude(
    console: Console,
    options: argparse.Namespace,
    judged: Judged = (),
    troubles: Iterable[str] = (),
    figures: Any = None,
    ratios: Mapping[str, float] | None = None,
) -> int:
    """Print what went wrong and the verdicts, and write the figures; 1 if anything did or, if strict, one is missed."""
    wrong, targets = list(troubles), list(judged)
    CONCLUSIONS.append(Conclusion(tuple(targets), tuple(wrong), dict(ratios or {})))
    for trouble in wrong:
        console.print(trouble, highlight=False, markup=False)
    for target, reached in targets:
        console.print(
            f"verdict: {_WORDS[None if reached is None else bool(reached)]}  {target}", highlight=False
        )
    if getattr(options, "json", None):
        Path(options.json).write_text(json.dumps(figures, indent=2), encoding="utf-8")
    missed = any(reached is not None and not reached for _, reached in targets)
    return int(bool(wrong) or (options.strict and missed))
