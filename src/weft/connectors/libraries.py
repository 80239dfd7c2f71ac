"""Libraries that only some sinks need, and that a user installs only if one of them is used.

Guarantees: such a library is imported when a sink is used, never when Weft is imported; if it is not installed, the
error says what to install.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from types import ModuleType
from typing import Any

import pyarrow as pa

from weft.errors import SinkError

__all__ = ["check_columns", "load_extra"]


def load_extra(module: str, function: str, extra: str) -> Any:
    """The module of a library that belongs to an extra of Weft's; ``function`` is what the user called."""
    try:
        found: ModuleType = import_module(module)
    except ImportError as error:
        raise SinkError(
            f"{function}: {module} cannot be imported: {error}", hint=f'pip install "weft[{extra}]"'
        ) from error
    return found


def check_columns(function: str, schema: pa.Schema, named: Collection[str] = ()) -> None:
    """Refuse results with types that tables lack, or two columns of one name; ``named`` must be among the columns."""
    for field in schema:
        if pa.types.is_duration(field.type) or pa.types.is_null(field.type):
            word = "interval" if pa.types.is_duration(field.type) else "null"
            raise SinkError(
                f"{function}: column {field.name} has the type {word}, which the table cannot hold",
                hint="leave it out, or CAST it in the query",
            )
    lower = [name.lower() for name in schema.names]
    twice = sorted({name for name in lower if lower.count(name) > 1})
    if twice:
        raise SinkError(
            f"{function}: the results have more than one column {twice[0]}",
            hint="give them different names with AS",
        )
    missing = [name for name in named if name not in schema.names]
    if missing:
        raise SinkError(
            f"{function}: the results have no column {missing[0]}",
            hint=f"the columns are {', '.join(schema.names)}",
        )
