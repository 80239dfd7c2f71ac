"""YAML documents in which every value knows its place.

Guarantees: whatever the text, reading it gives a `Node` or a `PipelineError`; a name given twice is refused, not
overwritten. A node gives its value in the type that is asked for, or raises a `PipelineError` that names file and
place. An entry without a value counts as absent.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml

from weft.errors import PipelineError, WeftError, nearest
from weft.logical.times import parse_duration

__all__ = [
    "Node",
    "read_document",
    "resolve_path",
    "resolve_reference",
]


# Larger figures are no rates, counts or seconds of work, and their products leave the range of a double.
_LARGEST = 1e15
_WHOLE = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Node:
    """A value of a document, with its file and its place in it."""

    file: str
    where: str
    value: object

    def section(self, allowed: Collection[str]) -> dict[str, Node]:
        """The entries by name; one that is not allowed is an error."""
        found = self.mapping()
        for name in found:
            if name not in allowed:
                raise self.error(f"unknown entry {name!r}", nearest(name, allowed))
        return {name: node for name, node in found.items() if node.value is not None}

    def mapping(self) -> dict[str, Node]:
        """The entries by name, whatever their names."""
        if self.value is None:
            return {}
        if not isinstance(self.value, dict):
            raise self.error(f"expected names with values, found {_shown(self.value)}")
        return {self._name(name): self._child(name, value) for name, value in self.value.items()}

    def _name(self, name: object) -> str:
        if not isinstance(name, str):
            raise self.error(
                f"{_shown(name)} is not a name",
                "put it in quotes: YAML reads on, off, yes, no and numbers as something else",
            )
        if not name or not name.isprintable():
            raise self.error(f"{name!r} is not a name", "use one line of printable characters")
        return name

    def _child(self, name: str, value: object) -> Node:
        return Node(self.file, f"{self.where}.{name}" if self.where else name, value)

    def entry(self, name: str) -> Node:
        """The entry of that name; a node without a value if there is none."""
        return self.mapping().get(name) or self._child(name, None)

    def text(self, hint: str | None = None) -> str:
        """A text."""
        if not isinstance(self.value, str):
            raise self.error(f"{_shown(self.value)} is not a text", hint)
        try:
            self.value.encode()
        except UnicodeEncodeError:
            raise self.error("half a character (a lone surrogate) is in the text", hint) from None
        return self.value

    def choice(self, what: str, known: Collection[str]) -> str:
        """A text that is one of the known names."""
        name = self.text(nearest("", known))
        if name not in known:
            raise self.error(f"there is no {what} {name!r}", nearest(name, known))
        return name

    def texts(self, hint: str | None = None) -> list[str]:
        """A list of texts."""
        if not isinstance(self.value, list):
            raise self.error(f"{_shown(self.value)} is not a list of texts", hint)
        return [
            Node(self.file, f"{self.where}[{place}]", one).text(hint) for place, one in enumerate(self.value)
        ]

    def flag(self) -> bool:
        """True or false."""
        if not isinstance(self.value, bool):
            raise self.error(f"{_shown(self.value)} is neither true nor false")
        return self.value

    def moment(self) -> datetime:
        """A date, with or without a time of day."""
        found = self.value
        if isinstance(found, str):
            with suppress(ValueError):
                found = datetime.fromisoformat(found)
        if isinstance(found, datetime):
            return found
        if isinstance(found, date):
            return datetime(found.year, found.month, found.day)
        raise self.error(f"{_shown(self.value)} is not a time", "write it as in 2024-01-01 12:00:00")

    def integer(self) -> int:
        """A whole number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int):
            raise self.error(f"{_shown(self.value)} is not a whole number")
        if abs(self.value) > _WHOLE:
            raise self.error(f"{_shown(self.value)} is too large", f"use at most {_WHOLE}")
        return self.value

    def figure(self) -> float:
        """A finite number."""
        if isinstance(self.value, bool) or not isinstance(self.value, int | float):
            hint = (
                "YAML takes 1e6 for a text: write 1000000 or 1.0e+6" if isinstance(self.value, str) else None
            )
            raise self.error(f"{_shown(self.value)} is not a number", hint)
        if isinstance(self.value, float) and not math.isfinite(self.value):
            raise self.error(f"{self.value} is not a finite number")
        if abs(self.value) > _LARGEST:
            raise self.error(f"{_shown(self.value)} is too large", f"use at most {_LARGEST:g}")
        return float(self.value)

    def duration(self) -> timedelta:
        """A span of time, such as 5 seconds."""
        with self.at():
            return parse_duration(self.text("write a number and a unit, as in 5 seconds"))

    def error(self, message: str, hint: str | None = None) -> PipelineError:
        """An error at this place."""
        return PipelineError(f"{self.file}, {self.where or 'the file'}: {message}", hint=hint)

    @contextmanager
    def at(self) -> Iterator[None]:
        """Turn errors of what is done inside into errors at this place."""
        try:
            yield
        except PipelineError:
            raise
        except WeftError as error:
            raise self.error("\n".join([error.message, *error.excerpt()]), error.hint) from None


def _shown(value: object) -> str:
    """A value as Python writes it, shortened."""
    try:
        return reprlib.repr(value)
    except ValueError:  # Python refuses to write integers of thousands of digits
        return "a number of thousands of digits"


class _Twice(yaml.MarkedYAMLError):
    """A name was given twice."""


class _Loader(yaml.SafeLoader):
    """YAML's safe subset, in which a name given twice is an error."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        # Here and not in construct_mapping: merging (<<) has not mixed in the names of other mappings yet.
        node = super().compose_mapping_node(anchor)
        seen: set[tuple[str, str]] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value == "null":
                    key.tag = "tag:yaml.org,2002:str"  # the name of an option of CSV files
                if (key.tag, key.value) in seen:
                    raise _Twice(problem=f"{key.value!r} is there twice", problem_mark=key.start_mark)
                seen.add((key.tag, key.value))
        return node


# What PyYAML lets through of malformed scalars: dates such as 2024-99-99, tags such as !!bool on anything.
_MALFORMED = (ValueError, KeyError, AttributeError, TypeError, OverflowError)


def read_document(text: str, file: str) -> Node:
    """The content of a YAML text; ``file`` is the name of its file in errors."""
    try:
        return Node(file, "", yaml.load(text, _Loader))
    except _Twice as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise PipelineError(
            f"{file}, line {line}: {error.problem}", hint="remove or rename one of them"
        ) from None
    except yaml.YAMLError as error:
        raise PipelineError(f"{file} is not YAML: {' '.join(str(error).split())}") from None
    except RecursionError:
        raise PipelineError(f"{file} is nested too deeply", hint="a pipeline needs five levels") from None
    except _MALFORMED as error:
        raise PipelineError(
            f"{file} has a value that YAML cannot read: {error}", hint="put texts in quotes"
        ) from None


def resolve_path(node: Node, root: Path) -> str:
    """The path or URI that an entry names; a relative path begins at ``root``."""
    text = node.text("name a path, as in in/videos")
    if not text.strip() or "\0" in text:
        raise node.error(f"{text!r} is not a path", "name one, as in in/videos")
    return text if re.match(r"[A-Za-z][\w+.-]+:", text) else str(root / text)


def resolve_reference(node: Node, root: Path) -> str:
    """A text that may say where it is found: `env:NAME`, or `file:PATH`, whose relative path begins at ``root``."""
    text = node.text("write it as a text, or say where it is found: env:NAME or file:PATH")
    kind, _, path = text.partition(":")
    return f"file:{root / path}" if kind == "file" and path and not path.startswith("//") else text
