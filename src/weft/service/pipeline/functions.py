"""The functions of a pipeline file, which it names as ``module:function``.

A pipeline file with functions is code: to read it is to import the modules that it names, which runs them, also where
its queries are only explained. `refuse_functions` is for files that are not trusted: it imports nothing.

Guarantees: a module is looked for beside the file first, and then where Python finds it. One beside the file is sent to
Spark's workers with the function; any other must be installed there. An error names the place in the file.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from weft.errors import nearest
from weft.service.pipeline.document import Node
from weft.session.session import Session

__all__ = ["add_function", "refuse_functions"]

_PYTHON = "as in python: my_functions:similar"
_ENTRIES = ("python", "returns", "selectivity", "cost")


def refuse_functions(node: Node) -> None:
    """Refuse a file that names functions; ``node`` is what it says of them."""
    for name in node.mapping():
        raise node.entry(name).error(
            "the file names Python code, which --no-functions refuses to import",
            "leave out --no-functions if you trust the file and the modules that it names",
        )


def add_function(session: Session, name: str, node: Node, root: Path) -> None:
    """Register a function with the session."""
    found = node.section(_ENTRIES)
    for entry, hint in (("python", _PYTHON), ("returns", "as in returns: boolean")):
        if entry not in found:
            raise node.error(f"a function needs {entry}", hint)
    function = _function(found["python"], root)
    hints = {entry: found[entry].figure() for entry in ("selectivity", "cost") if entry in found}
    with node.at():
        session.function(name, function, returns=found["returns"].text("as in boolean"), **hints)


def _function(node: Node, root: Path) -> Callable[..., Any]:
    text = node.text(_PYTHON)
    module, _, attribute = text.partition(":")
    if not module or not attribute:
        raise node.error(f"{text!r} names no function", _PYTHON)
    found = _module(node, module, root)
    if not hasattr(found, attribute):
        names = [one for one in vars(found) if callable(getattr(found, one)) and not one.startswith("_")]
        raise node.error(f"{module} has no {attribute}", nearest(attribute, names))
    function: Callable[..., Any] = getattr(found, attribute)
    return function


def _module(node: Node, name: str, root: Path) -> ModuleType:
    sys.path.insert(0, str(root))
    try:
        found = importlib.import_module(name)
    except Exception as error:
        raise node.error(f"cannot import {name}: {type(error).__name__}: {error}", _PYTHON) from None
    finally:
        sys.path.remove(str(root))
    if Path(getattr(found, "__file__", None) or "/").is_relative_to(root):
        from pyspark import cloudpickle  # only who has functions needs it

        cloudpickle.register_pickle_by_value(found)  # type: ignore[no-untyped-call]
    return found
