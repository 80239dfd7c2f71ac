"""Weft over AJoin's streams: sessions, and the figures of their batches for all queries together.

Guarantees: rows and stores that several queries share are counted once. A stream's rows are those of the query that
read the most of them, and stores of several queries with the same name and the same content count as one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks._ajoin import ATR_MAX, ATTRIBUTES, SCHEMA

import weft
from weft.runtime.observe.metrics import BatchMetrics

Progress = Mapping[str, Sequence[BatchMetrics]]


def make_session(
    data: str,
    checkpoint: str,
    streams: Sequence[str],
    *,
    rate: float,
    cores: int,
    files_per_batch: int,
    keep: float = weft.Weights().keep,
) -> weft.Session:
    """A session with the streams and their rates and distinct values; ``keep`` is the weight of a stored tuple."""
    known = weft.StreamStatistics(rate=rate, distinct=dict.fromkeys(ATTRIBUTES, ATR_MAX))
    session = weft.Session(
        checkpoint=checkpoint,
        master=f"local[{cores}]",
        statistics=weft.Statistics(dict.fromkeys(streams, known)),
        options=weft.Options(partitions=cores, weights=weft.Weights(keep=keep)),
    )
    for name in streams:
        source = weft.files("parquet", f"{data}/{name}", schema=SCHEMA, max_files_per_batch=files_per_batch)
        session.stream(name, source, event_time="ts")
    return session


def make_sink(kind: str, path: str) -> Any:
    """A sink that counts, or one that keeps the results in memory or in files."""
    if kind == "count":
        return weft.to_count()
    return weft.to_memory() if kind == "memory" else weft.to_parquet(path)


def input_rows(progress: Progress) -> list[int]:
    """The rows of every batch, oldest first."""
    found: dict[int, dict[str, int]] = {}
    for batches in progress.values():
        for batch in batches:
            rows = found.setdefault(batch.number, {})
            for alias, one in batch.inputs.items():  # queries of the template use stream names as aliases
                rows[alias] = max(rows.get(alias, 0), one.rows)
    return [sum(found[number].values()) for number in sorted(found)]


def state_bytes(progress: Progress) -> int:
    """The bytes of all stores after the batch with the most of them."""
    found: dict[int, set[tuple[str, int, int, int]]] = {}
    for batches in progress.values():
        for batch in batches:
            held = found.setdefault(batch.number, set())
            held |= {(name, one.rows, one.bytes, one.runs) for name, one in batch.stores.items()}
    return max((sum(size for _, _, size, _ in held) for held in found.values()), default=0)
