"""Two streams: Weft against Spark's stream-stream join and its batch join.

The join is V.vid = W.vid.
"""

from __future__ import annotations

from benchmarks._race import race


def main(arguments: list[str]) -> int:
    """Run the benchmark; 1 if results differ, or, with ``--strict``, if a target is missed."""
    return race("pair", __doc__ or "", arguments)
