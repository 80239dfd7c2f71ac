"""Every error a user can cause, one class per stage.

Guarantees: each names the stage, the thing and, where there is one, the remedy; an error about text
shows that text with a caret under the culprit.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

__all__ = [
    "CatalogError",
    "ConfigError",
    "PipelineError",
    "PlanError",
    "QueryError",
    "SqlError",
    "StatisticsError",
    "WeftError",
    "nearest",
]


class WeftError(Exception):
    """The base of all errors of Weft: ``except weft.WeftError`` catches every one of them."""

    stage = "Weft"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = message
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        lines = [f"{self.stage}: {self.message}", *self.excerpt()]
        if self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def excerpt(self) -> list[str]:
        """The lines that show where it happened; none unless the error is about a text."""
        return []


class SqlError(WeftError):
    """A query's text is wrong; ``start`` and ``end`` delimit the culprit in ``text``."""

    stage = "SQL"

    def __init__(self, message: str, *, text: str, start: int, end: int, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.text = text
        self.start = max(0, min(start, len(text)))
        self.end = max(self.start, min(end, len(text)))

    @property
    def line(self) -> int:
        """The culprit's line, counted from 1."""
        return self.text.count("\n", 0, self.start) + 1

    def excerpt(self) -> list[str]:
        """The culprit's line with carets under it."""
        first = self.text.rfind("\n", 0, self.start) + 1
        last = self.text.find("\n", first)
        shown = self.text[first : last if last >= 0 else len(self.text)].replace("\t", " ")
        width = max(1, min(self.end, first + len(shown)) - self.start)
        number = f"{self.line} | "
        return [number + shown, " " * (len(number) + self.start - first) + "^" * width]


class QueryError(WeftError):
    """A query makes no sense, whoever built it."""

    stage = "query"


class CatalogError(WeftError):
    """A stream is declared wrongly, or one is asked for that does not exist."""

    stage = "catalog"


class StatisticsError(WeftError):
    """Statistics were given that cannot be true."""

    stage = "statistics"


class PlanError(WeftError):
    """A query has no plan, or a plan contradicts itself."""

    stage = "plan"


class ConfigError(WeftError):
    """An option has a value that cannot work."""

    stage = "option"


class PipelineError(WeftError):
    """A pipeline file is wrong."""

    stage = "pipeline"


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint that names what exists, the most similar first.

    >>> nearest("vidoes", ["views", "videos"])
    'did you mean videos? There are: videos, views'
    """
    names = sorted(known)
    if not names:
        return "there are none yet"
    folded = {other.lower(): other for other in names}
    close = difflib.get_close_matches(name.lower(), list(folded), n=1, cutoff=0.5)
    listing = "There are: " + ", ".join(names)
    return f"did you mean {folded[close[0]]}? {listing}" if close else listing[0].lower() + listing[1:]
