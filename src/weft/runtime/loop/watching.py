"""What the loop logs, and does, about failed queries, large keys and files that are not complete."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from weft.runtime.log.values import Manifest
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.progress import too_large
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.changelog import Changelog

__all__ = ["UnfinishedFiles", "stop_failed_queries", "warn_of_large_keys"]

_LOG = logging.getLogger("weft")


def stop_failed_queries(
    changelog: Changelog, program: ExecutableGraph, manifest: Manifest, state_limit: int | None
) -> None:
    """Stop the queries that failed in a batch, and those whose state is larger than the limit after it."""
    large = too_large(program, manifest, state_limit)
    for reason, queries in (("failed", manifest.failed), ("stopped", large)):
        for name, why in queries.items():
            _LOG.warning("query %s is stopped: %s", name, why)
            changelog.stop(name, f"{reason}: {why}")


def warn_of_large_keys(metrics: BatchMetrics, key_limit: int) -> None:
    """Log the keys that would have too many results, so that their new tuples were set aside."""
    for name, keys in metrics.keys.items():
        for one in keys.too_many:
            counts = " × ".join(f"{count:,} of {alias}" for alias, count in one.items() if alias != "key")
            _LOG.warning(
                "query %s: key %s would have more than %s results (%s); its new tuples are set aside",
                *(name, one["key"], f"{key_limit:,}", counts),
            )


class UnfinishedFiles:
    """Logs once of each file that is not complete that it is waited for."""

    def __init__(self) -> None:
        self._known: Mapping[str, tuple[str, ...]] = {}

    def report(self, unfinished: Mapping[str, tuple[str, ...]]) -> None:
        """Log the files, by stream, that have come since this was called last."""
        if unfinished == self._known:
            return
        for name, files in unfinished.items():
            for file in sorted(set(files) - set(self._known.get(name, ()))):
                _LOG.info("stream %s waits for %s", name, file)
        self._known = unfinished
