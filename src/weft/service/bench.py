"""Finds and runs the benchmarks.

Guarantees: a benchmark is a file in `benchmarks/` with a docstring and a `main(arguments)`; nothing else is run.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path

from weft.errors import ConfigError, nearest

__all__ = ["find_benchmarks", "load_benchmark"]

_PACKAGE = Path(__file__).parents[1]
# Beside the package in an installation, at the root of the repository in a checkout.
_FOLDERS = (_PACKAGE / "benchmarks", _PACKAGE.parents[1] / "benchmarks")


def find_benchmarks() -> dict[str, Path]:
    """The benchmarks by name."""
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), None)
    files = sorted(folder.glob("*.py")) if folder else []
    return {file.stem: file for file in files if not file.stem.startswith("_")}


def load_benchmark(name: str) -> Callable[[list[str]], int]:
    """The `main` of a benchmark."""
    known = find_benchmarks()
    if name not in known:
        raise ConfigError(f"there is no benchmark {name!r}", hint=nearest(name, known))
    spec = importlib.util.spec_from_file_location(f"weft_benchmark_{name}", known[name])
    if spec is None or spec.loader is None:
        raise ConfigError(f"benchmark {name} cannot be loaded")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    main: Callable[[list[str]], int] = module.main
    return main
