"""Sessions that tests run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import weft


@contextmanager
def running(session: weft.Session) -> Iterator[weft.Session]:
    """Started, and stopped in the end."""
    session.start()
    try:
        yield session
    finally:
        session.stop()
