"""Formats of dates and times, as Spark writes them: ``yyyy-MM-dd HH:mm:ss``.

Guarantees: a format is a constant, and is taken apart when a query is bound; a letter that is not supported is refused
by name. A format by which texts are read is a pattern for RE2, whose groups are named by the letters, so that whole
columns are read at once. Two numbers of any length side by side are refused: nothing tells where the first one ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

from weft.errors import QueryError

__all__ = ["DEFAULT_FORMAT", "MONTHS", "WEEKDAYS", "FormatPiece", "pieces_of", "reading_pattern"]

DEFAULT_FORMAT = "yyyy-MM-dd HH:mm:ss"
MONTHS = (
    *("January", "February", "March", "April", "May", "June", "July"),
    *("August", "September", "October", "November", "December"),
)
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

_REMEDY = "register a function of your own that writes or reads it: session.function"
# How often each letter may be repeated when times are written, and when they are read.
_WRITTEN = {
    "y": 6,
    "M": 4,
    "L": 4,
    "d": 2,
    "D": 3,
    "E": 4,
    "a": 1,
    "Q": 3,
    "q": 3,
    "S": 9,
    "X": 3,
    "x": 3,
    "Z": 3,
}
_WRITTEN |= dict.fromkeys("HhKkms", 2)
_READ = {"y": 6, "M": 4, "L": 4, "d": 2, "D": 3, "a": 1, "S": 9} | dict.fromkeys("HhKkms", 2)


@dataclass(frozen=True, slots=True)
class FormatPiece:
    """A letter of a format and how often it stands there, or, without a letter, a text that stands for itself."""

    letter: str
    count: int
    text: str = ""

    @property
    def is_number(self) -> bool:
        """Whether it is written in digits."""
        return bool(self.letter) and not self.is_name and self.letter not in "XxZ"

    @property
    def is_name(self) -> bool:
        """Whether it is written in words."""
        return (self.letter in "Ea" and bool(self.letter)) or (self.letter in "MLQq" and self.count > 2)


_PARTS = re.compile(r"(?P<letters>([A-Za-z])\2*)|'(?P<quoted>(?:[^']|'')*)'|(?P<other>.)", re.DOTALL)


def pieces_of(format_: str, reading: bool = False) -> tuple[FormatPiece, ...]:
    """The pieces of a format by which times are written, or read.

    >>> [piece.letter * piece.count or piece.text for piece in pieces_of("yy'T'HH")]
    ['yy', 'T', 'HH']
    """
    allowed, found = _READ if reading else _WRITTEN, []
    for match in _PARTS.finditer(format_):
        letters, other = match["letters"], match["other"]
        if letters and len(letters) > allowed.get(letters[0], 0):
            raise QueryError(
                f"the format {format_!r} has {letters}, which is not supported",
                hint=f"it may have {', '.join(allowed)}, or text in quotes; else {_REMEDY}",
            )
        if other and other in "[]{}#'":
            raise QueryError(f"the format {format_!r} has {other}, which is not supported", hint=_REMEDY)
        if letters:
            found.append(FormatPiece(letters[0], len(letters)))
        else:
            found.append(FormatPiece("", 0, other or match["quoted"].replace("''", "'") or "'"))
    return tuple(found)


def reading_pattern(format_: str) -> str:
    """A pattern that whole texts of a format match, with a group for each letter.

    >>> reading_pattern("yyyy-M")
    '(?i)\\\\A(?P<y>-?[0-9]{4})\\\\-(?P<M>[0-9]{1,9})\\\\z'
    """
    pieces = pieces_of(format_, reading=True)
    letters = [_meaning(piece) for piece in pieces if piece.letter]
    if len(set(letters)) < len(letters):
        raise QueryError(f"the format {format_!r} has a letter twice", hint="leave one of them out")
    _check_meaning(format_, set(letters))
    for one, other in pairwise(pieces):
        wide = (one.is_number and one.count == 1) or one.letter == "S"
        if wide and other.is_number and (other.count == 1 or other.letter == "S"):
            raise QueryError(
                f"in the format {format_!r}, nothing tells where {one.letter} ends and {other.letter} begins",
                hint=f"write {one.letter * 2}, or something between them",
            )
    return "(?i)\\A" + "".join(map(_group, pieces)) + "\\z"


def _meaning(piece: FormatPiece) -> str:
    return "M" if piece.letter == "L" else piece.letter


def _check_meaning(format_: str, letters: set[str]) -> None:
    """Refuse letters that say one thing in two ways, and days of a year without the year."""
    hours = letters & set("HhKk")
    if len(hours) > 1 or (letters & set("Hk") and "a" in letters):
        raise QueryError(f"the format {format_!r} has the hour twice", hint="write HH, or hh with a")
    if "D" in letters and (letters & set("Md") or "y" not in letters):
        raise QueryError(
            f"the format {format_!r} has D without a year, or with a month", hint="write yyyy-DDD"
        )


def _group(piece: FormatPiece) -> str:
    if not piece.letter:
        return re.escape(piece.text) if piece.text.isascii() else piece.text
    if piece.letter == "a":
        inside = "AM|PM"
    elif piece.is_name:
        inside = "|".join(name[:3] if piece.count == 3 else name for name in MONTHS)
    elif piece.letter == "S":
        inside = f"[0-9]{{1,{piece.count}}}"
    elif piece.letter == "y":
        inside = {1: "-?[0-9]{1,9}", 2: "[0-9]{2}"}.get(piece.count, f"-?[0-9]{{{piece.count}}}")
    elif piece.letter == "D" and piece.count == 2:
        inside = "[0-9]{2,3}"
    else:
        inside = "[0-9]{1,9}" if piece.count == 1 else f"[0-9]{{{piece.count}}}"
    return f"(?P<{_meaning(piece)}>{inside})"
