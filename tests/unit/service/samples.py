"""A pipeline that is right, for tests to break."""

from __future__ import annotations

GOOD = """
streams:
  a: {schema: "k long, x string, ts timestamp", event_time: ts, lateness: 5 seconds,
      statistics: {rate: 10, distinct: {k: 100}}}
  b: {schema: "k long, ts timestamp"}
queries:
  q: SELECT a.k FROM a [RANGE 1 MINUTE], b [RANGE 1 MINUTE] WHERE a.k = b.k
"""
SELECTIVITY = 'statistics: {horizon: 10 minutes, selectivity: {"b.k = a.k": 0.01}}\n'
OPTIONS = (
    "options: {partitions: 2, strategy: flat, probe_orders: greedy, budget: 1.0e+6, weights: {hop: 0}}\n"
)
