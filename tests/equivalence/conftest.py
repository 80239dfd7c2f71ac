"""Sessions of these tests remember what input their batches took."""

from __future__ import annotations

import pytest

import weft.session.run
from tests.equivalence.planned import Planned


@pytest.fixture(autouse=True)
def planned_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log of every session."""
    monkeypatch.setattr(weft.session.run, "Checkpoint", Planned)
