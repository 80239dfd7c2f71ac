"""Lanes: tests that share something dear, as Spark or a server, are run by one worker, which makes it once.

A lane is what the mark ``xdist_group`` names. The other workers meanwhile run tests of no lane, or another lane; who is
done with a lane helps them. Workers know the marks and the controller hands out the tests, so the first worker writes
down which test is in which lane, in a file whose name it was told.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

__all__ = ["LaneScheduling", "write_lanes"]


def lane_of(item: pytest.Item) -> str | None:
    """The lane of a test, if it is in one."""
    mark = item.get_closest_marker("xdist_group")
    return None if mark is None else str(mark.args[0])


def write_lanes(file: Path, items: Iterable[pytest.Item]) -> None:
    """Note the tests that are in a lane."""
    lanes = {item.nodeid: lane for item in items if (lane := lane_of(item)) is not None}
    file.write_text(json.dumps(lanes), encoding="utf-8")


class LaneScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """Hands out a lane as a whole, the largest first, and all other tests one by one, in their order."""

    def __init__(self, config: pytest.Config, log: Producer, file: Path) -> None:
        super().__init__(config, log)
        self._file = file

    @cached_property
    def _lanes(self) -> dict[str, str]:
        """The lanes, which are known when all workers have collected the tests."""
        lanes: dict[str, str] = json.loads(self._file.read_text(encoding="utf-8"))
        return lanes

    def _split_scope(self, nodeid: str) -> str:
        return self._lanes.get(nodeid, nodeid)
