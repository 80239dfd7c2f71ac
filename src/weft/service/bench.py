"""Finds and runs the benchmarks.

Guarantees: a benchmark is a file in `benchmarks/` with a docstring and a `main(arguments)`; nothing else is run.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path

from weft.errors import ConfigError, nearest

__all__ = ["benchmark_titles", "find_benchmarks", "load_benchmark"]

_PACKAGE = Path(__file__).parents[1]
# Beside the package in an installation, at the root of the repository in a checkout.
_FOLDERS = (_PACKAGE / "benchmarks", _PACKAGE.parents[1] / "benchmarks")


def find_benchmarks() -> dict[str, Path]:
    """The benchmarks by name."""
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), None)
    files = sorted(folder.glob("*.py")) if folder else []
    return {file.stem: file for file in files if not file.stem.startswith("_")}


def benchmark_titles() -> dict[str, str]:
    """The first lines of the benchmarks' docstrings by name; no benchmark is loaded for it."""
    return {
        name: file.read_text(encoding="utf-8").split("\n")[0].strip('"')
        for name, file in find_benchmarks().items()
    }


def load_benchmark(name: str) -> Callable[[list[str]], int]:
    """The `main` of a benchmark."""
    known = find_benchmarks()
    if name not in known:
        raise ConfigError(f"there is no benchmark {name!r}", hint=nearest(name, known))
    folder = known[name].parent
    root = str(folder.parent)
    if root not in sys.path:
        sys.path.insert(0, root)  # also where a benchmark's worker processes look for it
    module = importlib.import_module(f"{folder.name}.{name}")
    main: Callable[[list[str]], int] = module.main
    return main
