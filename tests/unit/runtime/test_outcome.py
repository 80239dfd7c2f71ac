"""What a hop says of queries that cannot be answered."""

from __future__ import annotations

import pytest

from weft.errors import FunctionError, StateError
from weft.runtime.hop.outcome import HopOptions, Outcome


def test_damaged_state_is_no_failure_of_a_query() -> None:
    """The query would be stopped for good and its rows lost, though a copy of the file would mend it."""
    outcome = Outcome(HopOptions())
    with pytest.raises(StateError, match="damaged"):
        outcome.fail(["q"], StateError("state/buckets/4-0 is damaged"))
    outcome.fail(["q"], FunctionError("too large"))
    assert list(outcome.failed) == ["q"]
