"""One Spark for all tests that need one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from weft.runtime.spark import create_spark


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A local Spark of two cores."""
    session = create_spark("local[2]")
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
