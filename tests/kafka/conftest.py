"""One broker for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.broker import Broker, why_missing
from tests.kafka.topics import Topics


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker that is up; a test that kills it starts it again."""
    reason = why_missing()
    if reason is not None:
        pytest.skip(reason)
    found = Broker(Path(tmp_path_factory.mktemp("kafka")))
    found.start()
    yield found
    found.stop()


@pytest.fixture
def topics(broker: Broker) -> Topics:
    """Makes topics, writes to them and reads them."""
    return Topics(broker.address)
