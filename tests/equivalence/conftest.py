"""Sessions of these tests remember what input their batches took, and half of the tests merge runs in tiny pieces."""

from __future__ import annotations

import zlib

import pytest

import weft.session.run
from tests.equivalence.planned import Planned
from weft.runtime.state import settling


@pytest.fixture(autouse=True)
def planned_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of every session."""
    monkeypatch.setattr(weft.session.run, "Checkpoint", Planned)


@pytest.fixture(autouse=True)
def tiny_pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of a few rows are cut into pieces, and a merge has to wait for its turn, in every other test."""
    if zlib.crc32(request.node.name.encode()) % 2:
        monkeypatch.setattr(settling, "PIECE", 1_500)
        monkeypatch.setattr(settling, "FREE", 0)
        monkeypatch.setattr(settling, "_USUAL", 1e5)
