"""One running service for the tests of a module that do not disturb each other."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.service.api.running import Place, place, running_hub, served, wait_for
from weft.service.hub.hub import SessionHub


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Place:
    """A directory with two results of the query q."""
    found = place(tmp_path_factory.mktemp("service"))
    found.pair(1, "one")
    found.pair(2, 'tw"o')
    return found


@pytest.fixture(scope="module")
def hub(here: Place) -> Iterator[SessionHub]:
    """A session over it, which has processed what is there."""
    with running_hub(Path(here.root)) as found:
        wait_for(lambda: found.results("q").newest >= 2)
        yield found


@pytest.fixture(scope="module")
def url(hub: SessionHub) -> Iterator[str]:
    """Where it is served."""
    with served(hub) as (found, _):
        yield found
