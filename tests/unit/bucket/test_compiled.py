"""Compiled functions and their cache."""

from __future__ import annotations

import importlib
import os
import pkgutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher
from numba.core.extending import _Intrinsic

import weft.bucket
import weft.kernels

_INNER = """
from constants import LIMIT
from weft.bucket.compiled import inner

@inner
def plus(x):
    return x + {step} + LIMIT
"""
_OUTER = """
from inner_functions import plus
from weft.bucket.compiled import compiled

@compiled
def outer(x):
    return plus(x)

print(outer(1), sum(outer.stats.cache_hits.values()))
"""
_ALONE = """
from weft.bucket.compiled import compiled

@compiled
def plus(x):
    return x + 1
"""
# As where neither the package nor the home can be written to, which would not stop root.
_NOWHERE = """
from numba.core import caching
of_users = caching.CacheImpl._locator_classes
caching.CacheImpl._locator_classes = [one for one in of_users if "UserProvided" in str(one)]
import functions
print(functions.plus(1), sum(functions.plus.stats.cache_hits.values()) if functions.plus._cache.cache_path else "none")
"""


def test_a_cache_is_not_used_after_a_change_in_another_file(tmp_path: Path) -> None:
    """Else, after an edit, what runs is what was there before."""

    def run(step: int, limit: int) -> str:
        (tmp_path / "constants.py").write_text(f"LIMIT = {limit}\n")
        (tmp_path / "inner_functions.py").write_text(_INNER.format(step=step))
        (tmp_path / "outer_functions.py").write_text(_OUTER)
        command = [sys.executable, "-B", "-c", "import outer_functions"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert [run(1, 10), run(1, 10)] == ["12 0", "12 1"]  # the second time it comes from the cache
    assert [run(2, 10), run(2, 20)] == ["13 0", "23 0"]


def test_where_nothing_else_can_be_written_the_cache_is_among_temporary_files(tmp_path: Path) -> None:
    """Every worker of a container without a home would compile all kernels anew, which takes most of a minute."""
    (tmp_path / "functions.py").write_text(_ALONE)
    (tmp_path / "tmp").mkdir()
    place = tmp_path / "tmp" / f"weft-{os.getuid()}" / "kernels"

    def run() -> str:
        command = [sys.executable, "-B", "-c", _NOWHERE]
        known = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
        done = subprocess.run(
            command,
            cwd=tmp_path,
            env={**known, "TMPDIR": str(tmp_path / "tmp")},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert [run(), run()] == ["2 0", "2 1"]
    assert place.stat().st_mode & 0o077 == 0
    place.chmod(0o777)  # then somebody else could have put code there
    assert run() == "2 none"


def _modules() -> Iterator[ModuleType]:
    for package in (weft.bucket, weft.kernels):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            yield importlib.import_module(found.name)


def _compiled_functions() -> Iterator[Any]:
    for module in _modules():
        yield from (value for value in vars(module).values() if isinstance(value, Dispatcher))


def test_nothing_that_kernels_use_goes_unnoticed() -> None:
    """Functions, intrinsics and constants are looked at when a cache is; a tuple or a module of ours would not be."""
    seen = (Dispatcher, _Intrinsic, int, float, np.generic, np.ndarray)
    functions = list(_compiled_functions())
    assert len(functions) > 100
    for function in functions:
        names = function.py_func.__globals__
        for name in function.py_func.__code__.co_names:
            value = names.get(name)
            if isinstance(value, ModuleType):
                assert not value.__name__.startswith("weft"), (function, name)
            elif value is not None and not callable(value):
                assert isinstance(value, seen), (function, name)


def test_intrinsics_are_where_every_digest_looks() -> None:
    """A digest has the text of `compiled.py`, and not of other files with intrinsics."""
    for module in _modules():
        for name, value in vars(module).items():
            if isinstance(value, _Intrinsic):
                assert value._defn.__module__ == "weft.bucket.compiled", (module, name)
