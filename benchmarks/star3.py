"""Three streams on one key: Weft against Spark's stream-stream joins and its batch join.

V.vid = W.vid = C.vid. Spark runs it as two joins one after the other in append mode, which it permits if
only one of the event times goes on as such; the condition on all three times follows as a filter.

Streams of 100,000 tuples a second of event time, five columns, keys uniform over a million values, in Parquet files;
all tuples of a result lie within 5 s. Every contender runs in a process of its own, on as many cores, in batches of
the same files, and writes Parquet; Spark's streaming joins get a prefix of the streams (`--spark-rows`), since they
are slow. Results are compared by count and checksum: a difference gives the exit code 1.

Spark's joins have what suits them: time bounds on each join, so that state is dropped, as many shuffle
partitions as cores for streams and two per core with adaptive execution for the batch, no batches without data, 6 GB
of heap, and with RocksDB changelog checkpoints and state format 4 of the join (`--join-state-format`). Weft has the
settings it makes for itself, and is told the streams' rates and numbers of keys.
"""

from __future__ import annotations

from benchmarks._race import race

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Run the benchmark; 1 if results differ, or, with ``--strict``, if a target is missed."""
    return race("star3", __doc__ or "", arguments)
