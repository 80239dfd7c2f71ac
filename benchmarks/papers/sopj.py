"""SOPJ's experiments: a full outer join of three sources of flights, by their ids."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from benchmarks.papers.figures import Claim, Fact, Figure, Row, Rows, over, value
from benchmarks.papers.workloads import LOCAL, Workload, run

SQL = (
    "SELECT coalesce(a.id, b.id, c.id) AS id, a.v1, b.v2, c.v3 FROM flight1 AS a FULL OUTER "
    "JOIN flight2 AS b ON a.id = b.id "
    "FULL OUTER JOIN flight3 AS c ON coalesce(a.id, b.id) = c.id"
)


def flights(rows: int, missing: float, seed: int = 7) -> dict[str, pa.Table]:
    """Three sources with the same ids, of which each lacks a part, in a random order of its own."""
    rng, found = np.random.default_rng(seed), {}
    for number in (1, 2, 3):
        ids = rng.permutation(rows)[: round(rows * (1 - missing))]
        found[f"flight{number}"] = pa.table({"id": ids, f"v{number}": rng.integers(0, 1_000, ids.size)})
    return found


def _table_6(small: bool) -> Rows:
    found: list[Row] = []
    rows = 30_000 if small else 500_000
    for missing in (0.0, 0.02):
        for partitions in (1, 2, 4, 8):
            some = Workload({"join": SQL}, flights(rows, missing), 8, ends=True)
            ran = run(some, partitions=partitions)
            quarter = max(1, len(ran.batch_seconds) // 4)
            found.append(
                {
                    **ran.row(missing=missing, partitions=partitions),
                    "ms": 1e3 * sum(ran.batch_seconds),
                    "µs per tuple sent": 1e6 * sum(ran.batch_seconds) / max(1, ran.sent),
                    "busiest to mean": ran.busiest,
                    "ms, first quarter": 1e3 * sum(ran.batch_seconds[:quarter]),
                    "ms, last quarter": 1e3 * sum(ran.batch_seconds[-quarter:]),
                }
            )
    return found


TABLE_6 = Figure(
    name="sopj-6",
    paper="SOPJ",
    title="Table VI and Figures 4 to 6: a full outer join of three sources",
    there=(
        "milliseconds to join seven million flights on 3 to 15 nodes, processor and network over "
        "time, and the time to send a tuple"
    ),
    here=(
        "the work of all partitions to join three sources of generated flights, with all ids in "
        "each or a few missing; tuples sent, and work over time"
    ),
    differs=(
        "no cluster and no Spark SQL beside it (`weft bench sopj` has both); ids and one value, not"
        " all columns; "
    )
    + LOCAL,
    facts=(
        Fact("Table VI", "SOPJ 116,337 ms on 3 nodes, 50,527 on 15; Spark SQL 74,541 and 55,821"),
        Fact("Figure 6", "around 14 µs to send one tuple, which is what the time consists of"),
    ),
    measure=_table_6,
    keys=("missing", "partitions"),
    claims=(
        Claim(
            "work is shared evenly, so that nodes help: the mean is at least 0.7 of the busiest of 8 "
            "partitions",
            lambda rows: 1 / value(rows, "busiest to mean", missing=0.0, partitions=8),
            0.7,
        ),
        Claim(
            "sending a tuple costs less than the paper's 14 µs, all work included",
            lambda rows: 14 / max(float(row["µs per tuple sent"]) for row in rows),
        ),
        Claim(
            "more partitions send no more: every tuple goes to one (8 against 1)",
            over("sent", {"partitions": 1}, {"partitions": 8}, missing=0.0),
            0.99,
        ),
    ),
    plots=(("missing", "partitions", "ms"), ("missing", "partitions", "sent bytes")),
)

FIGURES = (TABLE_6,)
