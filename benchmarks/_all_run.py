"""The process in which `weft bench all` runs one benchmark."""

from __future__ import annotations

import io
from contextlib import redirect_stdout
from dataclasses import dataclass
from typing import Any

from benchmarks import _harness

from weft.service.bench import load_benchmark


@dataclass(frozen=True, slots=True)
class BenchmarkTask:
    """A benchmark and its arguments."""

    name: str
    arguments: list[str]


def run_benchmark(task: BenchmarkTask) -> dict[str, Any]:
    """Run a benchmark; what it printed, its ratios, its targets and what went wrong."""
    printed = io.StringIO()
    with redirect_stdout(printed):
        code = load_benchmark(task.name)(task.arguments)
    concluded = _harness.CONCLUSIONS
    troubles = [trouble for one in concluded for trouble in one.troubles]
    if code and not troubles:
        troubles = [f"it ended with the code {code}"]
    return {
        "output": printed.getvalue(),
        "ratios": {what: ratio for one in concluded for what, ratio in one.ratios.items()},
        "judged": [target for one in concluded for target in one.judged],
        "troubles": troubles,
    }
