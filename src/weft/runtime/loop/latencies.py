"""The latencies of a batch's results, once they are in their sinks.

Guarantees: tasks say how old results were when the batch began; the commit of each query's results in its sink says how
much later they left. A query whose results could not be committed has none. Results that are held back are measured
when they leave, from the oldest arrival of the batch that lets them leave: what they waited for is the order that was
asked for, and shows in the latency of event time alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from weft.logical.codec import encode
from weft.runtime.loop.ending import BatchEnd
from weft.runtime.loop.ran_batch import RanBatch

__all__ = ["with_latencies"]


def with_latencies(ran: RanBatch, left: BatchEnd, committed: Mapping[str, int]) -> BatchEnd:
    """What a batch leaves, with the latencies of its results; ``committed`` is when those of each query were committed.

    Times are in microseconds since 1970.
    """
    if left.metrics is None or ran.program is None:
        return left
    found = {}
    for query, done in committed.items():
        member = ran.program.members.get(query)
        waits = member is not None and member.held and query in left.ordered
        ages = left.ordered[query].ages if waits else ran.reports.answers.ages.get(query)
        if ages is not None and ages.count and query not in ran.reports.answers.failed:
            found[query] = ages.committed(done - ran.plan.now)
    metrics = replace(left.metrics, latencies=found)
    plain = {**left.manifest.metrics, "latencies": {query: encode(one) for query, one in found.items()}}
    return replace(left, metrics=metrics, manifest=replace(left.manifest, metrics=plain))
