"""One line of JSON per batch and query, for log collectors.

Guarantees: the message itself is the JSON, flat and on one line, through the logger `weft` at INFO; Weft sets up no
handler and no format. These are the fields; those with a name after a dot come once for each such name:

| field | meaning |
|---|---|
| `event` | always `batch` |
| `query`, `batch` | the name of the query, and the number of the batch |
| `started`, `elapsed` | when the batch began, in seconds since 1970, and how many seconds it took |
| `results` | how many results the query gave |
| `rows`, and each of `input_figures.REASONS` | sums over the inputs; per input as `rows.v` and so on |
| `probes.v: 1`, `matches.v: 1` | per probe step, by the name of its edge, copies included |
| `state_rows`, `state_bytes`, `state_runs` | sums over the stores, copies included; per store as `state_rows.v` |
| `hop_seconds.0` | per hop, the seconds of its slowest task; hop 0 is the reading |
| `watermark.views` | per stream, in microseconds since 1970 |
| `backlog.views` | per stream, how many parts wait to be read |
| `backlog_rows.views`, `backlog_bytes.views` | per stream, about how many rows and bytes wait |
| `backlog_seconds.views` | per stream, how long what came first has waited |
| `latency_p50`, `_p95`, `_p99`, `_max` | seconds from the arrival of a result's last tuple to its commit |
| `event_latency_p50` and so on | seconds from a result's event time to its commit |
| `event_ahead` | how many results had an event time later than the clock; only if there are any |
| `cache_hits`, `cache_misses` | how often segments of state in an object store were in the caches of hosts, or not |
| `cache_fetched_bytes`, `cache_kept_bytes` | bytes fetched from the store instead, and of these, kept in caches |
| `driver_order` | the inputs in the order they were processed in, separated by blanks |
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from weft.runtime.observe.metrics import BatchMetrics
from weft.stats.histogram import Latency
from weft.stats.input_figures import REASONS
from weft.storage.cache import CacheCounts

__all__ = ["LOGGER", "batch_fields", "log_batch"]

LOGGER = logging.getLogger("weft")

_INPUT = ("rows", *REASONS)
_QUANTILES = ("p50", "p95", "p99", "max")
_STORE = {"rows": "state_rows", "bytes": "state_bytes", "runs": "state_runs"}


def log_batch(query: str, metrics: BatchMetrics) -> None:
    """Log the line of a batch and a query."""
    if LOGGER.isEnabledFor(logging.INFO):
        LOGGER.info("%s", json.dumps(batch_fields(query, metrics), ensure_ascii=False))


def batch_fields(query: str, metrics: BatchMetrics) -> dict[str, Any]:
    """The fields of a batch's line."""
    fields: dict[str, Any] = {"event": "batch", "query": query, "batch": metrics.number}
    fields |= {"started": round(metrics.started, 3), "elapsed": round(metrics.elapsed, 6)}
    fields |= {"results": metrics.results, "driver_order": " ".join(metrics.order)}
    for name in _INPUT:
        fields |= _summed(name, {alias: getattr(one, name) for alias, one in metrics.inputs.items()})
    for name, shown in _STORE.items():
        fields |= _summed(shown, {store: getattr(one, name) for store, one in metrics.stores.items()})
    fields |= _each("probes", {edge: step.probes for edge, step in metrics.steps.items()})
    fields |= _each("matches", {edge: step.matches for edge, step in metrics.steps.items()})
    fields |= {"sent_tuples": metrics.sent.tuples, "sent_bytes": metrics.sent.bytes}
    fields |= {f"hop_seconds.{hop}": round(seconds, 6) for hop, seconds in enumerate(metrics.seconds)}
    fields |= _each("watermark", metrics.watermarks) | _backlog(metrics) | _latency(metrics.latency)
    return fields | _cache(metrics.cache)


def _cache(counts: CacheCounts) -> dict[str, int]:
    """How caches were used; nothing if they were not."""
    named = {"hits": counts.hits, "misses": counts.misses}
    named |= {"fetched_bytes": counts.fetched, "kept_bytes": counts.kept}
    return {f"cache_{name}": count for name, count in named.items()} if counts else {}


def _backlog(metrics: BatchMetrics) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    for name in ("parts", "rows", "bytes", "seconds"):
        shown = "backlog" if name == "parts" else f"backlog_{name}"
        fields |= _each(shown, {stream: getattr(one, name) for stream, one in metrics.backlog.items()})
    return fields


def _latency(latency: Latency) -> dict[str, Any]:
    """The quantiles of latencies; none if there was no result."""
    fields: dict[str, Any] = {}
    for shown, one in (("latency", latency.processing), ("event_latency", latency.event)):
        for name in _QUANTILES if one.count else ():
            fields[f"{shown}_{name}"] = round(getattr(one, name), 6)
    return fields | ({"event_ahead": latency.ahead} if latency.ahead else {})


def _summed(name: str, values: Mapping[str, int]) -> dict[str, int]:
    return {name: sum(values.values()), **_each(name, values)}


def _each(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{name}.{key}": value for key, value in values.items()}
