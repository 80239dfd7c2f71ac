"""Functions of texts."""

from __future__ import annotations

from weft.logical.expr.builtin.entry import Function, define

__all__ = ["TEXTS"]

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
    define("trim", "string -> string", "trim(s)", "Without spaces at both ends.", "trim('  a ') → a"),
    define(
        "ltrim",
        "string -> string",
        "ltrim(s)",
        "Without spaces at its beginning.",
        "concat('[', ltrim('  a'), ']') → [a]",
    ),
    define(
        "rtrim",
        "string -> string",
        "rtrim(s)",
        "Without spaces at its end.",
        "concat('[', rtrim('a  '), ']') → [a]",
    ),
    define("reverse", "string -> string", "reverse(s)", "Backwards.", "reverse('abc') → cba"),
    define(
        "concat",
        "string… -> string",
        "concat(s, t, …), s || t",
        "One after the other; NULL if one is.",
        "concat('a', 'b') → ab",
        "'a' || 'b' → ab",
        "concat('a', 1) → a1",
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
        "substring",
        "string, integer, [integer] -> string",
        "substring(s, from), substring(s, from, length)",
        "A part, counted from 1; a negative place counts from the end.",
        "substring('stream', 1, 3) → str",
        "substring('stream', -2) → am",
        also="substr",
    ),
    define(
        "length",
        "string -> int",
        "length(s)",
        "How many characters.",
        "length('naïve') → 5",
        also="char_length character_length len",
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
