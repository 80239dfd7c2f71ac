"""Compiled loops for checksums and digests of texts and bytes, and for Base64.

Guarantees: a digest is that of RFC 1321 (MD5) or FIPS 180 (SHA-1, SHA-224, SHA-256), in bytes, one row of `out` each. A
message is padded in a buffer of two blocks, so that no message is copied.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.bucket.compiled import Array, Bytes, Integer, Longs, compiled, inner

__all__ = ["checksums", "digests_md5", "digests_sha1", "digests_sha2", "encode_base64"]

_M32 = np.int64(0xFFFFFFFF)
_MD5_SINES = np.array([int(abs(math.sin(i + 1)) * 2**32) for i in range(64)], np.int64)
_MD5_TURNS = np.array([7, 12, 17, 22, 5, 9, 14, 20, 4, 11, 16, 23, 6, 10, 15, 21], np.int64)
_PRIMES = np.array([p for p in range(2, 312) if all(p % d for d in range(2, p))], np.int64)
_SHA2_ROUNDS = np.array([math.floor(int(p) ** (1 / 3) % 1 * 2**32) for p in _PRIMES], np.int64)
_SHA_256 = np.array([math.floor(math.sqrt(int(p)) % 1 * 2**32) for p in _PRIMES[:8]], np.int64)
_SHA_224 = np.array(
    [
        *(0xC1059ED8, 0x367CD507, 0x3070DD17, 0xF70E5939),
        *(0xFFC00B31, 0x68581511, 0x64F98FA7, 0xBEFA4FA4),
    ],
    np.int64,
)
_SHA_1 = np.array([0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0], np.int64)


def _table_of_checksums() -> Longs:
    table = np.arange(256, dtype=np.int64)
    for _ in range(8):
        table = np.where(table & 1, (table >> 1) ^ 0xEDB88320, table >> 1)
    return table


_CRC = _table_of_checksums()


@compiled
def checksums(starts: Array, content: Bytes, out: Longs) -> None:
    """The CRC-32 of each text."""
    for i in range(out.size):
        crc = _M32
        for j in range(starts[i], starts[i + 1]):
            crc = _CRC[(crc ^ np.int64(content[j])) & 0xFF] ^ (crc >> 8)
        out[i] = crc ^ _M32


@inner
def _turned(value: Integer, count: Integer) -> Any:
    """A word of 32 bits turned to the left."""
    return ((value << count) | (value >> (32 - count))) & _M32


@inner
def _byte(content: Bytes, low: Integer, size: Integer, total: Integer, at: Integer, big: bool) -> Any:
    """A byte of a padded message: its own, then 0x80, zeros, and its length in bits in the last eight."""
    if at < size:
        return np.int64(content[low + at])
    if at == size:
        return np.int64(0x80)
    if at < total - 8:
        return np.int64(0)
    place = (total - 1 - at) if big else (at - (total - 8))
    return ((size * 8) >> (8 * place)) & 0xFF


@inner
def _load(
    content: Bytes, low: Integer, size: Integer, total: Integer, at: Integer, big: bool, words: Longs
) -> None:
    """Sixteen words of a padded message."""
    for w in range(16):
        word = np.int64(0)
        for b in range(4):
            value = _byte(content, low, size, total, at + 4 * w + b, big)
            word |= value << (8 * (3 - b) if big else 8 * b)
        words[w] = word


@inner
def _store(state: Longs, count: Integer, big: bool, row: Bytes) -> None:
    for w in range(count):
        for b in range(4):
            row[4 * w + b] = (state[w] >> (8 * (3 - b) if big else 8 * b)) & 0xFF


@compiled
def digests_md5(starts: Array, content: Bytes, out: Any) -> None:
    """The MD5 of each text."""
    words, state = np.empty(16, np.int64), np.empty(4, np.int64)
    for i in range(out.shape[0]):
        low, size = np.int64(starts[i]), np.int64(starts[i + 1]) - np.int64(starts[i])
        total = (size + 8) // 64 * 64 + 64
        state[:] = _SHA_1[:4]
        for at in range(0, total, 64):
            _load(content, low, size, total, at, False, words)
            a, b, c, d = state[0], state[1], state[2], state[3]
            for r in range(64):
                if r < 16:
                    f, g = (b & c) | (~b & d), r
                elif r < 32:
                    f, g = (d & b) | (~d & c), (5 * r + 1) % 16
                elif r < 48:
                    f, g = b ^ c ^ d, (3 * r + 5) % 16
                else:
                    f, g = c ^ (b | (~d & _M32)), (7 * r) % 16
                mixed = (a + (f & _M32) + _MD5_SINES[r] + words[g]) & _M32
                a, d, c = d, c, b
                b = (b + _turned(mixed, _MD5_TURNS[r // 16 * 4 + r % 4])) & _M32
            state[0], state[1] = (state[0] + a) & _M32, (state[1] + b) & _M32
            state[2], state[3] = (state[2] + c) & _M32, (state[3] + d) & _M32
        _store(state, 4, False, out[i])


@compiled
def digests_sha1(starts: Array, content: Bytes, out: Any) -> None:
    """The SHA-1 of each text."""
    words, state = np.empty(80, np.int64), np.empty(5, np.int64)
    for i in range(out.shape[0]):
        low, size = np.int64(starts[i]), np.int64(starts[i + 1]) - np.int64(starts[i])
        total = (size + 8) // 64 * 64 + 64
        state[:] = _SHA_1
        for at in range(0, total, 64):
            _load(content, low, size, total, at, True, words)
            for w in range(16, 80):
                words[w] = _turned(words[w - 3] ^ words[w - 8] ^ words[w - 14] ^ words[w - 16], 1)
            a, b, c, d, e = state[0], state[1], state[2], state[3], state[4]
            for r in range(80):
                if r < 20:
                    f, k = (b & c) | (~b & d), 0x5A827999
                elif r < 40:
                    f, k = b ^ c ^ d, 0x6ED9EBA1
                elif r < 60:
                    f, k = (b & c) | (b & d) | (c & d), 0x8F1BBCDC
                else:
                    f, k = b ^ c ^ d, 0xCA62C1D6
                mixed = (_turned(a, 5) + (f & _M32) + e + k + words[r]) & _M32
                e, d, c, b, a = d, c, _turned(b, 30), a, mixed
            state[0], state[1], state[2] = (state[0] + a) & _M32, (state[1] + b) & _M32, (state[2] + c) & _M32
            state[3], state[4] = (state[3] + d) & _M32, (state[4] + e) & _M32
        _store(state, 5, True, out[i])


@compiled
def digests_sha2(starts: Array, content: Bytes, short: bool, out: Any) -> None:
    """The SHA-256 of each text, or, `short`, its SHA-224."""
    words, state, work = np.empty(64, np.int64), np.empty(8, np.int64), np.empty(8, np.int64)
    for i in range(out.shape[0]):
        low, size = np.int64(starts[i]), np.int64(starts[i + 1]) - np.int64(starts[i])
        total = (size + 8) // 64 * 64 + 64
        state[:] = _SHA_224 if short else _SHA_256
        for at in range(0, total, 64):
            _load(content, low, size, total, at, True, words)
            for w in range(16, 64):
                one, other = words[w - 15], words[w - 2]
                small = _turned(one, 25) ^ _turned(one, 14) ^ (one >> 3)
                large = _turned(other, 15) ^ _turned(other, 13) ^ (other >> 10)
                words[w] = (words[w - 16] + small + words[w - 7] + large) & _M32
            work[:] = state
            for r in range(64):
                a, e = work[0], work[4]
                turned = _turned(e, 26) ^ _turned(e, 21) ^ _turned(e, 7)
                chosen = ((e & work[5]) ^ (~e & work[6])) & _M32
                first = (work[7] + turned + chosen + _SHA2_ROUNDS[r] + words[r]) & _M32
                most = (a & work[1]) ^ (a & work[2]) ^ (work[1] & work[2])
                second = (_turned(a, 30) ^ _turned(a, 19) ^ _turned(a, 10)) + most
                for w in range(7, 0, -1):
                    work[w] = work[w - 1]
                work[4] = (work[4] + first) & _M32
                work[0] = (first + second) & _M32
            for w in range(8):
                state[w] = (state[w] + work[w]) & _M32
        _store(state, 7 if short else 8, True, out[i])


_LETTERS = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/", np.uint8)


@compiled
def encode_base64(starts: Array, content: Bytes, ends: Longs, out: Bytes) -> None:
    """Four letters for every three bytes, filled with ``=``; each text ends at `ends[i + 1]`."""
    for i in range(ends.size - 1):
        at, end, place = np.int64(starts[i]), np.int64(starts[i + 1]), ends[i]
        while at < end:
            left: Any = end - at
            bits = np.int64(content[at]) << 16
            if left > 1:
                bits |= np.int64(content[at + 1]) << 8
            if left > 2:
                bits |= np.int64(content[at + 2])
            for j in range(4):
                out[place + j] = _LETTERS[(bits >> (18 - 6 * j)) & 63] if j <= left else 61
            at, place = at + 3, place + 4
