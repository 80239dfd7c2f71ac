"""Checksums, digests and Base64 of texts and bytes."""

from __future__ import annotations

from collections.abc import Sequence

from weft.errors import QueryError
from weft.logical.expr.builtin.entry import Function, define
from weft.logical.expr.conversion import INT, STRING
from weft.logical.expr.expression import Expr, Literal, make_call
from weft.logical.expr.rules import fitted, mismatch

__all__ = ["HASHES"]


def _sha2(function: str, args: Sequence[Expr]) -> Expr:
    """SHA2 of 224 or 256 bits; 0 stands for 256."""
    text, bits = fitted(args[0], "text"), args[1]
    if text is None:
        raise mismatch(function, args, "it takes a text or bytes, and a number of bits")
    if not isinstance(bits, Literal) or bits.value not in (None, 0, 224, 256):
        raise QueryError(
            f"sha2 has no digest of {bits} bits",
            hint="it has 224 and 256; for others, register a function of your own: session.function",
        )
    return make_call(function, (text, Literal(256 if bits.value == 0 else bits.value, INT)), STRING)


HASHES: tuple[Function, ...] = (
    define("crc32", "text -> long", "crc32(s)", "The checksum CRC-32.", "crc32('Weft') → 1565366472"),
    define(
        "md5",
        "text -> string",
        "md5(s)",
        "The digest MD5, in hexadecimal digits.",
        "md5('') → d41d8cd98f00b204e9800998ecf8427e",
    ),
    define(
        "sha1",
        "text -> string",
        "sha1(s)",
        "The digest SHA-1, in hexadecimal digits.",
        "sha1('') → da39a3ee5e6b4b0d3255bfef95601890afd80709",
        also="sha",
    ),
    define(
        "sha2",
        (_sha2, 2, 2),
        "sha2(s, bits)",
        "The digest SHA-224 or SHA-256, in hexadecimal digits; 0 bits stand for 256.",
        "left(sha2('', 256), 8) → e3b0c442",
    ),
    define(
        "base64",
        "text -> string",
        "base64(s)",
        "The bytes as letters, four for three.",
        "base64('Weft') → V2VmdA==",
    ),
)
