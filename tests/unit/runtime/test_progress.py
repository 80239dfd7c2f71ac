"""What a query tells about itself while it runs."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from tests.unit.plan.workloads import PAIR, query
from tests.unit.runtime.joins import SECOND
from weft.plan.graph import Member, Sight
from weft.runtime.progress import complete_from

LATER = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(seconds=7)


@pytest.mark.parametrize("backfill", [False, True])
@pytest.mark.parametrize("text", [PAIR, "SELECT v.x FROM v"])
def test_results_are_complete_from_where_all_inputs_are_seen(text: str, backfill: bool) -> None:
    """Whoever relies on results would else take what is left of the past for all of it."""
    asked = query(text)
    sights = [Sight(alias, 5, None, (5 + n) * SECOND) for n, alias in enumerate(asked.aliases, 2)]
    member = Member("new", asked, 0, 5, tuple(sights))
    needs_the_past = len(asked.aliases) > 1 or backfill
    last = LATER + timedelta(seconds=len(asked.aliases) - 1)
    assert complete_from(member, backfill) == (last if needs_the_past else None)
    assert complete_from(Member("first", asked, 0), backfill) is None
