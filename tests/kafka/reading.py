"""Topics read by a source, without a session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import weft
from tests.kafka.topics import Topics
from weft.connectors.formats.records import Decoded
from weft.connectors.kafka.cursor import KafkaCursor
from weft.ports.source import CursorContext, MemoryBlobs

__all__ = ["SCHEMA", "opened", "taken"]

SCHEMA = "id long, name string, ts timestamp"


@contextmanager
def opened(topics: Topics, topic: str, state: dict[str, Any] | None = None, **options: Any) -> Iterator[Any]:
    """A source and its cursor, which has asked the broker."""
    source = weft.kafka(topics.address, topic, **{"schema": SCHEMA, **options})
    cursor = source.open(CursorContext("s", state or {}, MemoryBlobs(), Path()))
    try:
        cursor.catch_up()
        yield source, cursor
    finally:
        cursor.close()


def taken(source: Any, cursor: KafkaCursor, event_time: str | None = "ts") -> list[Decoded]:
    """What all parts that are offered now give, which are taken."""
    parts = cursor.look(0.0).parts
    cursor.take(parts)
    return [source.read("s", part, event_time) for part in parts]
