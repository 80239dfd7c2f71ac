"""Digests, checksums and Base64 are those of Python's libraries, for messages around the sizes of blocks."""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Callable
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import weft
from tests.shares import seeds
from weft.errors import SqlError
from weft.kernels.expr.builtin.hashes import FUNCTIONS


def hexadecimal(name: str) -> Callable[[bytes], str]:
    """A digest by Python's library."""
    return lambda message: hashlib.new(name, message).hexdigest()


CASES: list[tuple[str, tuple[Any, ...], Callable[[bytes], Any]]] = [
    ("md5", (), hexadecimal("md5")),
    ("sha1", (), hexadecimal("sha1")),
    ("sha2", (pa.scalar(224),), hexadecimal("sha224")),
    ("sha2", (pa.scalar(256),), hexadecimal("sha256")),
    ("crc32", (), zlib.crc32),
    ("base64", (), lambda message: base64.b64encode(message).decode()),
]


@pytest.mark.parametrize("seed", seeds(2))
@pytest.mark.parametrize(("name", "more", "expected"), CASES)
def test_digests_are_those_of_others(name: str, more: tuple[Any, ...], expected: Any, seed: int) -> None:
    """Keys that were hashed elsewhere would find no partner."""
    random = Random(seed)
    messages = [random.randbytes(size) for size in (*range(140), 1000, 4096)] + [None]
    column = pa.array([b"before", *messages], pa.binary()).slice(1)
    kind = pa.int64() if name == "crc32" else pa.string()
    found = FUNCTIONS[name]([column, *more], kind).to_pylist()
    assert found == [None if message is None else expected(message) for message in messages]
    assert len(FUNCTIONS[name]([column.slice(0, 0), *more], kind)) == 0


def test_a_digest_that_is_missing_is_refused() -> None:
    """A digest of other bits than asked for."""
    session = weft.Session()
    session.stream("t", "s string")
    with pytest.raises(SqlError, match="sha2 has no digest of 512 bits") as caught:
        session.parse("SELECT sha2(s, 512) AS d FROM t")
    assert "it has 224 and 256" in str(caught.value)
    session.parse("SELECT sha2(s, 256) AS d FROM t")
