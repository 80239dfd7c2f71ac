r"""Java's regular expressions in the form of RE2, which computes them on whole columns.

Guarantees: a pattern that is translated finds what Java finds; one that RE2 has no words for, or reads otherwise, is
refused by name: back references, looking ahead or behind, possessive and atomic groups, classes cut with &&. Two things
remain: `$` in `regexp_replace` and `regexp_extract` does not match before a newline that ends the text, and with `(?i)`
letters beyond ASCII have a case, too.
"""

from __future__ import annotations

import re

from weft.errors import QueryError

__all__ = ["count_groups", "extracting", "matching", "replacement", "translated"]

_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_SPACES = r"\t\n\x0B\f\r "
_PLAIN_ESCAPES = frozenset("dDwWbBAznrtfQE")
_REMEDY = "register a function of your own that matches it: session.function"


def _refused(pattern: str, what: str) -> QueryError:
    return QueryError(f"the pattern {pattern!r} has {what}, which is not supported", hint=_REMEDY)


def _check(pattern: str) -> None:
    """Refuse a pattern that is no pattern, or that RE2 cannot match."""
    if re.search(r"\(\?<?[=!]", pattern):
        raise _refused(pattern, "a group that looks ahead or behind")
    if "(?>" in pattern or re.search(r"(?<!\\)[*+?}]\+", pattern):
        raise _refused(pattern, "a possessive quantifier or an atomic group")
    if any(int(count) > 1000 for count in re.findall(r"\{(\d{1,9})", pattern)):
        raise _refused(pattern, "a repetition of more than 1,000 times")
    if re.search(r"\[[^\]]*(&&|\[)", pattern):
        raise _refused(pattern, "a class of characters inside another")
    flags = re.findall(r"\(\?([a-zA-Z-]+)[:)]", pattern)
    if any(set(flag) - {"i", "s"} for flag in flags):
        raise _refused(pattern, f"the flags {', '.join(flags)}")
    try:
        re.compile(re.sub(r"\\[pP]\{\w+\}|\\z", "x", pattern).replace("(?<", "(?P<"))
    except (re.error, OverflowError, RecursionError) as error:
        raise QueryError(
            f"{pattern!r} is not a pattern: {error}", hint="escape with \\\\ what is meant as it stands"
        ) from None


def translated(pattern: str) -> str:
    r"""A pattern of Java's as RE2 reads it.

    >>> translated(r"a.\s")
    'a[^\\n\\r\\x{85}\\x{2028}\\x{2029}][\\t\\n\\x0B\\f\\r ]'
    """
    _check(pattern)
    any_character = "." if re.match(r"\(\?i?s", pattern) else f"[^{_LINE_ENDS}]"
    out, place, inside = [], 0, False
    while place < len(pattern):
        char = pattern[place]
        if char == "\\":
            part, place = _escape(pattern, place, inside)
            out.append(part)
            continue
        inside = char == "[" or (inside and char != "]")
        out.append(any_character if char == "." and not inside else char)
        place += 1
    return "".join(out).replace("(?<", "(?P<")


def _escape(pattern: str, place: int, inside: bool) -> tuple[str, int]:
    """What a backslash begins, for RE2, and where it ends."""
    char = pattern[place + 1 : place + 2]
    if char == "s":
        return (_SPACES if inside else f"[{_SPACES}]"), place + 2
    if char == "S" and not inside:
        return f"[^{_SPACES}]", place + 2
    if char == "Z" and place + 2 == len(pattern):
        return r"\z", place + 2
    if char == "u" and (code := re.match(r"[0-9A-Fa-f]{4}", pattern[place + 2 :])):
        return f"\\x{{{code[0]}}}", place + 6
    if char == "x" and (code := re.match(r"[0-9A-Fa-f]{2}", pattern[place + 2 :])):
        return f"\\x{code[0]}", place + 4
    if char in ("p", "P") and (code := re.match(r"\{(?:L|Lu|Ll|N|Nd|P|S|Z)\}", pattern[place + 2 :])):
        return f"\\{char}{code[0]}", place + 2 + code.end()
    if char in _PLAIN_ESCAPES or not (char.isalnum() or not char):
        return f"\\{char}", place + 2
    raise _refused(pattern, f"\\{char}")


def matching(pattern: str) -> str:
    """A pattern that is only asked whether it matches; there, `$` also stands before a newline that ends the text."""
    ends = pattern.endswith("$") and not pattern.endswith("\\$")
    found = translated(pattern[:-1] if ends else pattern)
    return f"{found}(?:\\r\\n|[{_LINE_ENDS}])?\\z" if ends and "|" not in pattern else translated(pattern)


_GROUP = re.compile(r"\\.|\[(?:\\.|[^\]])*\]|(\((?!\?)|\(\?P?<\w+>)", re.DOTALL)


def count_groups(pattern: str) -> int:
    """How many groups a pattern captures."""
    return sum(1 for match in _GROUP.finditer(pattern) if match[1])


def extracting(pattern: str, group: int) -> str:
    """A pattern whose only group, ``found``, is the given one; 0 is the whole match."""
    number = 0

    def named(match: re.Match[str]) -> str:
        nonlocal number
        if not match[1]:
            return match[0]
        number += 1
        return "(?P<found>" if number == group else "(?:"

    text = _GROUP.sub(named, translated(pattern))
    return text if group else f"(?P<found>{text})"


def replacement(pattern: str, text: str) -> str:
    r"""What replaces a match, for RE2: Java writes groups as ``$1``.

    >>> replacement("(a)(b)", "$2-$1")
    '\\2-\\1'
    """
    groups = count_groups(pattern)

    def part(match: re.Match[str]) -> str:
        if match[1]:
            digits = match[1]
            while len(digits) > 1 and int(digits) > groups:
                digits = digits[:-1]
            if int(digits) > groups:
                raise QueryError(f"the pattern {pattern!r} has no group {digits}", hint=f"it has {groups}")
            return f"\\{digits}{match[1][len(digits) :]}"
        if match[0] == "$":
            raise QueryError(f"{text!r} has a $ without a number", hint="write \\\\$ for the character")
        return "\\\\" if match[2] == "\\" else match[2]

    if re.search(r"\\\d", re.sub(r"\$\d", "", text)):
        raise QueryError(f"{text!r} has a backslash before a digit", hint="write $1 for the first group")
    return re.sub(r"\$(\d{1,2})|\\(.)|\$", part, text, flags=re.DOTALL)
