"""JSON's values back into frozen dataclasses, by their types.

Guarantees: what `dataclasses` and times become as JSON becomes what it was; a field that is not known is passed over,
so that a client reads what a newer service says.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from functools import lru_cache
from types import UnionType
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

from weft.errors import WeftError

__all__ = ["decode"]

Made = TypeVar("Made")


@lru_cache(maxsize=128)
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)


def decode(kind: type[Made], value: Any) -> Made:
    """A value of JSON as one of a type.

    >>> decode(tuple[datetime, ...], ["2024-01-01T00:00:00Z"])[0].year
    2024
    """
    try:
        found: Made = _decoded(kind, value)
    except (TypeError, ValueError, KeyError) as error:
        raise WeftError(
            f"the answer is not what was expected: {error}", hint="is it of another version?"
        ) from None
    return found


def _decoded(kind: Any, value: Any) -> Any:
    if isinstance(kind, type) and is_dataclass(kind):
        hints = _hints(kind)
        known = {one.name for one in fields(kind)}
        return kind(**{name: _decoded(hints[name], one) for name, one in value.items() if name in known})
    origin, given = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        if value is None:
            return None
        return _decoded(next(one for one in given if one is not type(None)), value)
    if origin is tuple:
        return tuple(_decoded(given[0], one) for one in value)
    if origin in (dict, Mapping):
        return {name: _decoded(given[1], one) for name, one in value.items()}
    if kind is datetime:
        return datetime.fromisoformat(value.replace("Z", "+00:00"))
    return float(value) if kind is float and isinstance(value, int) else value
