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
# One that can be run: files and generated rows, sinks, and how to run it.
RUNNABLE = """
streams:
  a:
    schema: k long, ts timestamp
    event_time: ts
    late: join
    idle_after: 10 seconds
    source: {files: csv, path: in/a, max_files_per_batch: 2, glob: "*.csv", recursive: true, delimiter: ";",
             quote: "'", encoding: latin-1, null: "-"}
  b:
    event_time: ts
    source:
      rate: 2000
      seed: 7
      columns:
        id: {sequence: {start: 5, step: 2}}
        k: {uniform: 100}
        usr: {zipf: {count: 50, exponent: 1.1}}
        geo: {choice: {US: 0.3, GER: 0.7}}
        lang: {choice: [ENG, GER]}
        ts: {timestamps: {start: 2024-02-01 12:00:00, jitter: 2 seconds}}
    statistics: {distinct: {k: 100}}
queries:
  q: {sql: "SELECT a.k FROM a [RANGE 1 MINUTE], b [RANGE 1 MINUTE] WHERE a.k = b.k",
      sink: {parquet: out/q, compression: zstd}}
  r: {sql: "SELECT a.k FROM a [RANGE 1 MINUTE], b [RANGE 1 MINUTE] WHERE a.k < b.k", sink: memory,
      emit_unmatched_after: 10 minutes}
  s: {sql: "SELECT b.k FROM a [RANGE 1 MINUTE], b [RANGE 1 MINUTE] WHERE a.k = b.k", sink: {console: 3}}
  t: SELECT b.ts FROM a [RANGE 1 MINUTE], b [RANGE 1 MINUTE] WHERE a.k = b.k
checkpoint: ck
master: local[2]
driver: round_robin
dead_letter_limit: {records: 10, fraction: 0.5}
key_limit: 1000
limits: {words: 1000}
"""
# Outer joins, with and without an end to their patience.
OUTER = """
streams:
  a: {schema: "k long, ts timestamp", event_time: ts, source: {files: csv, path: in}}
  b: {schema: "k long, ts timestamp", event_time: ts, source: {files: csv, path: in}}
queries:
  patient: SELECT k FROM a FULL JOIN b USING (k)
  hasty: {sql: SELECT k FROM a FULL JOIN b USING (k), sink: memory, emit_unmatched_after: 10 minutes}
checkpoint: ck
"""
