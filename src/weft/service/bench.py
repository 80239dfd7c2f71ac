"""Finds and runs the benchmarks of a checkout.

Guarantees: a benchmark is a file in `benchmarks/` with a docstring and a `main(arguments)`; nothing else is run. An
installed Weft has none, says where they are, and changes nothing of where Python looks for modules.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

from weft.errors import ConfigError, nearest

__all__ = ["benchmark_titles", "find_benchmarks", "load_benchmark"]

_ROOT = Path(__file__).parents[3]  # of a checkout


def find_benchmarks(root: Path = _ROOT) -> dict[str, Path]:
    """The benchmarks by name."""
    folder = root / "benchmarks"
    # What is beside an installed package belongs to others, whatever it is called.
    if not (folder.is_dir() and (root / "src" / "weft" / "service" / "bench.py").is_file()):
        raise ConfigError(
            "the benchmarks are not part of an installed Weft",
            hint="they are in its repository: run `make setup` and `.venv/bin/weft bench` in a checkout",
        )
    return {file.stem: file for file in sorted(folder.glob("*.py")) if not file.stem.startswith("_")}


def benchmark_titles() -> dict[str, str]:
    """The first lines of the benchmarks' docstrings by name; no benchmark is loaded for it."""
    return {
        name: file.read_text(encoding="utf-8").split("\n")[0].strip('"')
        for name, file in find_benchmarks().items()
    }


def load_benchmark(name: str) -> Callable[[list[str]], int]:
    """The `main` of a benchmark."""
    benchmarks = find_benchmarks()
    if name not in benchmarks:
        raise ConfigError(f"there is no benchmark {name!r}", hint=nearest(name, benchmarks))
    root = str(benchmarks[name].parents[1])
    if root not in sys.path:
        sys.path.insert(0, root)  # also where a benchmark's worker processes look for it
    main: Callable[[list[str]], int] = importlib.import_module(f"benchmarks.{name}").main
    return main
