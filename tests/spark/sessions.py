"""Sessions that tests run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import weft


@contextmanager
def running(session: weft.Session) -> Iterator[weft.Session]:
    """Started, and stopped in the end."""
    session.start()
    try:
        yield session
    finally:
        session.stop()


def jobs_of(spark: Any) -> set[int]:
    """The jobs that Spark has run, of all groups, but for the one that starts its workers."""
    context = spark.sparkContext._jsc.sc()
    context.listenerBus().waitUntilEmpty()  # it tells a little late
    jobs = context.statusStore().jobsList(None)
    every = [jobs.apply(place) for place in range(jobs.size())]
    return {int(one.jobId()) for one in every if "start of the Python workers" not in str(one.description())}
