"""Functions of texts."""

from __future__ import annotations

import re
from collections.abc import Sequence

from weft.errors import QueryError
from weft.logical.expr.builtin.entry import Function, define
from weft.logical.expr.builtin.lists import joined_lists, turned_list
from weft.logical.expr.builtin.patterns import count_groups, extracting, replacement, translated
from weft.logical.expr.conversion import INT, STRING, literal
from weft.logical.expr.expression import Expr, Literal, make_call
from weft.logical.expr.rules import CallTypes, TypingRule, fitted, mismatch

__all__ = ["PATTERNS", "TEXTS"]


def _left(_function: str, args: Sequence[Expr]) -> Expr:
    """LEFT is SUBSTRING from the first character."""
    return CallTypes.parse("string, integer, integer -> string").rule(
        "substring", (args[0], literal(1), args[1])
    )


def _instr(_function: str, args: Sequence[Expr]) -> Expr:
    """INSTR is LOCATE with its arguments turned round."""
    return CallTypes.parse("string, string -> int").rule("locate", args[::-1])


def _hex(_function: str, args: Sequence[Expr]) -> Expr:
    """HEX of a whole number has its digits, of anything else those of its bytes."""
    if args[0].type.is_numeric:
        return CallTypes.parse("long -> string").rule("hex_of_number", args)
    text = fitted(args[0], "text")
    if text is None:
        raise mismatch("hex", args, "it takes a number, a text or bytes")
    return make_call("hex", (text,), STRING)


def _or_of_lists(texts: str, lists: TypingRule) -> TypingRule:
    """The rule of a function of texts by a signature, or of lists by a rule of their own."""

    def rule(function: str, args: Sequence[Expr]) -> Expr:
        if any(arg.type.kind == "array" for arg in args):
            return lists(function, args)
        return CallTypes.parse(texts).rule(function, args)

    return rule


def _trim_both(_function: str, args: Sequence[Expr]) -> Expr:
    return CallTypes.parse("string, [=string] -> string").rule("trim", args)


def _constants(function: str, args: Sequence[Expr]) -> list[str | None]:
    """The texts that are constants, of the arguments after the first; None for NULL."""
    found = []
    for arg in args:
        if not isinstance(arg, Literal) or not isinstance(arg.value, str | None):
            raise QueryError(f"{function} needs a constant: {arg}", hint="write the value itself")
        found.append(arg.value)
    return found


def _text(function: str, args: Sequence[Expr]) -> Expr:
    text = fitted(args[0], "string")
    if text is None:
        raise mismatch(function, args, "it takes (string, string)")
    return text


def _of_pattern(result: str) -> TypingRule:
    """The rule of a function of a text and a constant pattern."""

    def rule(function: str, args: Sequence[Expr]) -> Expr:
        (pattern,) = _constants(function, args[1:2])
        if pattern is not None:
            translated(pattern)
        elif function != "rlike":
            raise QueryError(f"{function} needs a pattern", hint="write one instead of NULL")
        pattern_of = Literal(pattern, STRING)
        return CallTypes.parse(f"string, =string -> {result}").rule(
            function, (_text(function, args), pattern_of)
        )

    return rule


def _replace(function: str, args: Sequence[Expr]) -> Expr:
    """REGEXP_REPLACE with a pattern that does not match nothing, which Java and RE2 replace at other places."""
    pattern, new = _constants(function, args[1:])
    if pattern is None or new is None:
        raise QueryError(f"{function} needs a pattern and a text", hint="write them instead of NULL")
    translated(pattern)
    replacement(pattern, new)
    if re.search(pattern.replace("(?<", "(?P<").replace("\\z", "\\Z"), ""):
        raise QueryError(f"the pattern {pattern!r} also matches nothing", hint="use + in place of *")
    return make_call(function, (_text(function, args), *map(literal, (pattern, new))), STRING)


def _extract(function: str, args: Sequence[Expr]) -> Expr:
    (pattern,) = _constants(function, args[1:2])
    group = args[2].value if len(args) > 2 and isinstance(args[2], Literal) else 1
    if pattern is None or not isinstance(group, int) or (len(args) > 2 and not isinstance(args[2], Literal)):
        raise QueryError(f"{function} needs a pattern and a number", hint="write constants")
    if not 0 <= group <= count_groups(pattern):
        raise QueryError(f"the pattern {pattern!r} has no group {group}", hint="0 is the whole match")
    extracting(pattern, group)
    return make_call(function, (_text(function, args), literal(pattern), Literal(group, INT)), STRING)


TEXTS: tuple[Function, ...] = (
    define(
        "lower", "string -> string", "lower(s)", "In small letters.", "lower('Weft') → weft", also="lcase"
    ),
    define(
        "upper",
        "string -> string",
        "upper(s)",
        "In capital letters.",
        "upper('straße') → STRASSE",
        also="ucase",
    ),
    define(
        "initcap",
        "string -> string",
        "initcap(s)",
        "With a capital at the beginning of each word.",
        "initcap('hello big world') → Hello Big World",
    ),
    define(
        "trim",
        "string, [=string] -> string",
        "trim(s), trim(BOTH t FROM s), btrim(s, t)",
        "Without spaces, or characters of t, at both ends.",
        "trim('  a ') → a",
        "trim(BOTH 'xy' FROM 'xay') → a",
    ),
    define(
        "btrim",
        (_trim_both, 1, 2),
        "btrim(s), btrim(s, t)",
        "As trim.",
        "btrim('xax', 'x') → a",
        rewritten=True,
    ),
    define(
        "ltrim",
        "string, [=string] -> string",
        "ltrim(s), trim(LEADING t FROM s)",
        "Without spaces, or characters of t, at its beginning.",
        "concat('[', ltrim('  a'), ']') → [a]",
    ),
    define(
        "rtrim",
        "string, [=string] -> string",
        "rtrim(s), trim(TRAILING t FROM s)",
        "Without spaces, or characters of t, at its end.",
        "concat('[', rtrim('a  '), ']') → [a]",
    ),
    define(
        "lpad",
        "string, int, [string] -> string",
        "lpad(s, n), lpad(s, n, t)",
        "Cut to n characters, or filled at its beginning with spaces or t.",
        "lpad('7', 3, '0') → 007",
        "lpad('abcd', 2) → ab",
    ),
    define(
        "rpad",
        "string, int, [string] -> string",
        "rpad(s, n), rpad(s, n, t)",
        "Cut to n characters, or filled at its end with spaces or t.",
        "rpad('7', 3, '0') → 700",
    ),
    define("repeat", "string, int -> string", "repeat(s, n)", "So many times.", "repeat('ab', 2) → abab"),
    define("space", "int -> string", "space(n)", "So many spaces.", "length(space(3)) → 3"),
    define(
        "reverse",
        (_or_of_lists("string -> string", turned_list), 1, 1),
        "reverse(s), reverse(x)",
        "A text or an array backwards.",
        "reverse('abc') → cba",
        "reverse(array(5, 6)) → [6, 5]",
    ),
    define(
        "concat",
        (_or_of_lists("string… -> string", joined_lists), 1, None),
        "concat(s, t, …), s || t",
        "Texts, or arrays, one after the other; NULL if one is.",
        "concat('a', 'b') → ab",
        "'a' || 'b' → ab",
        "concat('a', 1) → a1",
        "concat(array(5), array(6)) → [5, 6]",
    ),
    define(
        "concat_ws",
        "string… -> string",
        "concat_ws(t, a, b, …)",
        "All that are not NULL, with t between them.",
        "concat_ws('-', 'a', NULL, 'b') → a-b",
        strict=False,
    ),
    define(
        "replace",
        "string, string, [string] -> string",
        "replace(s, old), replace(s, old, new)",
        "With every `old` replaced, or left out.",
        "replace('a-b-c', '-', '+') → a+b+c",
        "replace('a-b-c', '-') → abc",
    ),
    define(
        "translate",
        "string, =string, =string -> string",
        "translate(s, old, new)",
        "With each character of `old` replaced by that of `new` at its place, or left out.",
        "translate('abcb', 'bc', 'x') → axx",
    ),
    define(
        "overlay",
        "string, string, int, [int] -> string",
        "overlay(s PLACING t FROM n), overlay(s, t, n, length)",
        "With a part replaced by t.",
        "overlay('abcdef' PLACING 'X' FROM 2 FOR 3) → aXef",
    ),
    define(
        "substring",
        "string, integer, [integer] -> string",
        "substring(s, from), substring(s, from, length)",
        "A part, counted from 1; a negative place counts from the end.",
        "substring('stream', 1, 3) → str",
        "substring('stream', -2) → am",
        also="substr",
    ),
    define(
        "left",
        (_left, 2, 2),
        "left(s, n)",
        "The first n characters.",
        "left('stream', 2) → st",
        rewritten=True,
    ),
    define(
        "right", "string, int -> string", "right(s, n)", "The last n characters.", "right('stream', 2) → am"
    ),
    define(
        "substring_index",
        "string, string, int -> string",
        "substring_index(s, mark, n)",
        "What is before the n-th mark, or after the n-th from the end where n is negative.",
        "substring_index('a.b.c', '.', 2) → a.b",
        "substring_index('a.b.c', '.', -1) → c",
    ),
    define(
        "split_part",
        "string, string, int -> string",
        "split_part(s, mark, n)",
        "The n-th part between marks; negative numbers count from the end, NULL for 0.",
        "split_part('a.b.c', '.', 2) → b",
    ),
    define(
        "length",
        "string -> int",
        "length(s)",
        "How many characters.",
        "length('naïve') → 5",
        also="char_length character_length len",
    ),
    define("octet_length", "text -> int", "octet_length(s)", "How many bytes.", "octet_length('naïve') → 6"),
    define("bit_length", "text -> int", "bit_length(s)", "How many bits.", "bit_length('a') → 8"),
    define(
        "locate",
        "string, string, [int] -> int",
        "locate(t, s), locate(t, s, from), position(t IN s)",
        "Where t first stands in s, from 1; 0 if nowhere.",
        "locate('e', 'weft') → 2",
        "position('x' IN 'weft') → 0",
        strict=False,
    ),
    define(
        "instr",
        (_instr, 2, 2),
        "instr(s, t)",
        "Where t first stands in s, from 1; 0 if nowhere.",
        "instr('weft', 'f') → 3",
        rewritten=True,
    ),
    define(
        "find_in_set",
        "string, string -> int",
        "find_in_set(s, list)",
        "Which part of a text with commas s is, from 1; 0 if none.",
        "find_in_set('b', 'a,b,c') → 2",
    ),
    define(
        "elt",
        "int, string… -> string",
        "elt(n, a, b, …)",
        "The n-th text; NULL if there is none.",
        "elt(2, 'a', 'b') → b",
        strict=False,
    ),
    define(
        "ascii",
        "string -> int",
        "ascii(s)",
        "The code of the first character; 0 of the empty text.",
        "ascii('a') → 97",
    ),
    define(
        "char",
        "long -> string",
        "char(n)",
        "The character of a code, modulo 256.",
        "char(65) → A",
        also="chr",
    ),
    define(
        "hex",
        (_hex, 1, 1),
        "hex(x)",
        "The digits of a whole number in base 16, or of the bytes of a text.",
        "hex(255) → FF",
        "hex('Weft') → 57656674",
    ),
    define(
        "unhex",
        "string -> binary",
        "unhex(s)",
        "The bytes that digits in base 16 stand for; NULL if they are none.",
        "unhex('4142') → b'AB'",
    ),
    define(
        "startswith",
        "string, string -> boolean",
        "startswith(s, t)",
        "Whether a text begins with another.",
        "startswith('weft', 'we') → True",
    ),
    define(
        "endswith",
        "string, string -> boolean",
        "endswith(s, t)",
        "Whether a text ends with another.",
        "endswith('weft', 'ft') → True",
    ),
    define(
        "contains",
        "string, string -> boolean",
        "contains(s, t)",
        "Whether a text has another in it.",
        "contains('weft', 'ef') → True",
    ),
    define(
        "levenshtein",
        "string, string -> int",
        "levenshtein(s, t)",
        "How many characters to insert, delete or change to get from one to the other.",
        "levenshtein('kitten', 'sitting') → 3",
    ),
)

PATTERNS: tuple[Function, ...] = (
    define(
        "ilike",
        "string, string -> boolean",
        "x ILIKE pattern",
        "As LIKE, whatever the case of letters.",
        "'Weft' ILIKE 'w%T' → True",
    ),
    define(
        "rlike",
        (_of_pattern("boolean"), 2, 2),
        "x RLIKE pattern, regexp_like(x, pattern)",
        "Whether a text has a part that matches a regular expression.",
        "'weft' RLIKE '^w.*t$' → True",
        also="regexp regexp_like",
    ),
    define(
        "regexp_count",
        (_of_pattern("int"), 2, 2),
        "regexp_count(s, pattern)",
        "How many parts match.",
        "regexp_count('a1b22', '\\\\d+') → 2",
    ),
    define(
        "regexp_replace",
        (_replace, 3, 3),
        "regexp_replace(s, pattern, t)",
        "With every match replaced; `$1` is its first group.",
        "regexp_replace('2024-05', '(\\\\d+)-(\\\\d+)', '$2/$1') → 05/2024",
    ),
    define(
        "regexp_extract",
        (_extract, 2, 3),
        "regexp_extract(s, pattern), regexp_extract(s, pattern, n)",
        "The n-th group of the first match, or the first; 0 is the whole match.",
        "regexp_extract('id=42;', 'id=(\\\\d+)') → 42",
    ),
)
