"""One broker for all tests of a process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.kafka.registry import Registry
from tests.kafka.registry import why_missing as registry_missing
from tests.kafka.topics import Topics
from weft.service.kafka_broker import Broker, why_missing


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


@pytest.fixture(scope="session")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Registry]:
    """A schema registry that is up."""
    reason = registry_missing()
    if reason is not None:
        pytest.skip(reason)
    found = Registry(Path(tmp_path_factory.mktemp("registry")))
    found.start()
    yield found
    found.stop()
