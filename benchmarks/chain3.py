"""Three streams in a chain: Weft against Spark's stream-stream joins and its batch join.

The join is V.vid = W.vid AND W.uid = C.uid. Spark runs it as two joins one after the other in append mode, which it
permits if only one of the event times goes on as such; the condition on all three times follows as a filter.
"""

from __future__ import annotations

from benchmarks._race import race


def main(arguments: list[str]) -> int:
    """Run the benchmark; 1 if results differ, or, with ``--strict``, if a target is missed."""
    return race("chain3", __doc__ or "", arguments)
