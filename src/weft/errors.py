"""Every error a user can cause, one class per stage.

Guarantees: each names the stage, the thing and, where there is one, the remedy; an error about text
shows that text with a caret under the culprit.
"""

from __future__ import annotations

import difflib
import unicodedata
from collections.abc import Iterable

__all__ = [
    "CatalogError",
    "ConfigError",
    "FunctionError",
    "PipelineError",
    "PlanError",
    "QueryError",
    "ResultLimitError",
    "SinkError",
    "SourceError",
    "SparkError",
    "SqlError",
    "StateError",
    "StatisticsError",
    "SuspendedError",
    "WeftError",
    "nearest",
]


class WeftError(Exception):
    """The base of all errors of Weft: ``except weft.WeftError`` catches every one of them."""

    stage = "Weft"
    code = "WEFT"  # under which the documentation explains it (docs/reference/errors.md)

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = message
        self.hint = hint
        super().__init__(message)

    def __str__(self) -> str:
        lines = [f"{self.stage}: {self.message}", *self.excerpt()]
        if isinstance(self.hint, str) and self.hint:
            lines.append(f"hint: {self.hint}")
        return "\n".join(lines)

    def excerpt(self) -> list[str]:
        """The lines that show where it happened; none unless the error is about a text."""
        return []


class SqlError(WeftError):
    """A query's text is wrong; ``start`` and ``end`` delimit the culprit in ``text``."""

    stage = "SQL"
    code = "WEFT-SQL"

    def __init__(self, message: str, *, text: str, start: int, end: int, hint: str | None = None) -> None:
        super().__init__(_printable(message), hint=_printable(hint) if hint else None)
        self.text = text
        self.start = max(0, min(start, len(text)))
        self.end = max(self.start, min(end, len(text)))

    @property
    def line(self) -> int:
        """The culprit's line, counted from 1."""
        return self.text.count("\n", 0, self.start) + 1

    def excerpt(self) -> list[str]:
        """The culprit's line with carets under it; of a very long line, what is near."""
        first = self.text.rfind("\n", 0, self.start) + 1
        last = self.text.find("\n", first)
        line = self.text[first : last if last >= 0 else len(self.text)].rstrip()
        start, end = self.start - first, min(self.end - first, len(line))
        left, right = max(0, start - _MARGIN), max(start, min(end, start + _MARGIN)) + _MARGIN
        before = ("…" if left else "") + line[left:start]
        culprit, after = line[start : min(end, right)], line[max(start, end) : right]
        shown = _printable(f"{self.line} | {before}{culprit}{after}" + ("…" if right < len(line) else ""))
        indent = _width(f"{self.line} | {before}")
        return [shown, " " * indent + "^" * max(1, _width(culprit))]


# How much of a long line is shown on either side of the culprit.
_MARGIN = 80


def _printable(text: str) -> str:
    return "".join(" " if unicodedata.category(char) in ("Cc", "Zl", "Zp") else char for char in text)


def _width(text: str) -> int:
    """How many columns a terminal needs: two for a wide character, none for one that joins its neighbour."""
    joining, wide = ("Mn", "Me", "Cf"), ("W", "F")
    return sum(
        0 if unicodedata.category(char) in joining else 2 if unicodedata.east_asian_width(char) in wide else 1
        for char in text
    )


class QueryError(WeftError):
    """A query makes no sense, whoever built it."""

    stage = "query"
    code = "WEFT-QUERY"


class CatalogError(WeftError):
    """A stream is declared wrongly, or one is asked for that does not exist."""

    stage = "catalog"
    code = "WEFT-CATALOG"


class StatisticsError(WeftError):
    """Statistics were given that cannot be true."""

    stage = "statistics"
    code = "WEFT-STATISTICS"


class PlanError(WeftError):
    """A query has no plan, or a plan contradicts itself."""

    stage = "plan"
    code = "WEFT-PLAN"


class ConfigError(WeftError):
    """An option has a value that cannot work."""

    stage = "option"
    code = "WEFT-OPTION"


class FunctionError(WeftError):
    """A function cannot be registered, or fails where it is called: a user's, or one that would make too much."""

    stage = "function"
    code = "WEFT-FUNCTION"


class PipelineError(WeftError):
    """A pipeline file is wrong."""

    stage = "pipeline"
    code = "WEFT-PIPELINE"


class SourceError(WeftError):
    """An input is described wrongly, or what it delivers is not what was declared.

    ``stream`` is the stream that cannot be read, where a session met it while it read.
    """

    stage = "source"
    code = "WEFT-SOURCE"

    def __init__(self, message: str, *, hint: str | None = None, stream: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.stream = stream


class SinkError(WeftError):
    """An output is described wrongly, or cannot take the results."""

    stage = "sink"
    code = "WEFT-SINK"


class ResultLimitError(SinkError):
    """An output has taken as much as it may: its query is stopped, since no more can ever be given to it."""

    code = "WEFT-RESULT-LIMIT"


class SuspendedError(WeftError):
    """Queries are suspended: their results are kept until their sinks can take them, or their streams be read."""

    stage = "query"
    code = "WEFT-SUSPENDED"


class ResultError(WeftError):
    """A query has stopped before its results were complete: it failed, or it reached a limit."""

    stage = "result"
    code = "WEFT-RESULT"


class SparkError(WeftError):
    """Spark, or the Java that it runs on, is not there any more."""

    stage = "Spark"
    code = "WEFT-SPARK"


class StateError(WeftError):
    """Stored data cannot be read, or cannot be used in the way that was asked for."""

    stage = "state"
    code = "WEFT-STATE"


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
