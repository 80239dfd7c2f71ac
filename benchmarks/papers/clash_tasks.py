"""What CLASH's plans ask of tasks: what they store, their load and number, and how well that is foretold (5.5.3).

Plans are chosen as in `clash_strategies`.
"""

from __future__ import annotations

from typing import Any

from benchmarks.papers.clash_strategies import THESIS, joined, workload
from benchmarks.papers.figures import Claim, Fact, Figure, Row, Rows, over, value
from benchmarks.papers.workloads import LOCAL, Workload, run

_FIVE = (
    "SELECT r1.a FROM r1 AS r1, r2 AS r2, r3 AS r3, r4 AS r4, r5 AS r5 WHERE r1.a >= r2.a AND "
    "r1.a <= r2.a AND r2.b >= r3.b "
    "AND r2.b <= r3.b AND r3.c >= r4.c AND r3.c <= r4.c AND r4.d >= r5.d AND r4.d <= r5.d"
)


def _figure_5_10(small: bool) -> Rows:
    import numpy as np
    import pyarrow as pa

    rows = 400 if small else 2_000
    found: list[Row] = []
    for selectivity, partners in (("low", 0.01), ("medium", 1.0), ("high", 4.0)):
        rng, most = np.random.default_rng(7), max(1, round(rows / partners))
        named = {"r1": "a", "r2": "ab", "r3": "bc", "r4": "cd", "r5": "d"}
        tables = {
            name: pa.table({column: rng.integers(0, most, rows) for column in columns})
            for name, columns in named.items()
        }
        for capacity, partitions in ((0.1, 10), (0.2, 5), (0.5, 2), (1.0, 1)):
            for strategy in ("flat", "left_deep"):
                ran = run(
                    Workload({"five": _FIVE}, tables, 2),
                    strategy=strategy,
                    partitions=partitions,
                    options=THESIS,
                )
                found.append(ran.row(selectivity=selectivity, strategy=strategy, capacity=capacity))
    return found


FIGURE_5_10 = Figure(
    name="clash-5.10",
    paper="CLASH",
    title="Figure 5.10: task capacity and tuples sent",
    there=(
        "tuples that probe in five-way linear theta joins with relations of 10⁶, for tasks that "
        "hold a tenth to all of one"
    ),
    here="the same with smaller relations and as many partners of a tuple; a tenth means ten partitions",
    differs=(
        "every store has the same number of partitions, where the thesis gives larger intermediate "
        "results more; "
    )
    + LOCAL,
    facts=(
        Fact(
            "Figure 5.10a", "low selectivities, capacity 0.1: left-deep saves over half of the probe tuples"
        ),
        Fact("Figure 5.10c", "high selectivities: left-deep is worse than flat"),
    ),
    measure=_figure_5_10,
    keys=("selectivity", "strategy", "capacity"),
    claims=(
        Claim(
            "low selectivities, capacity 0.1: the flat plan sends more than the left-deep one (there "
            "twice as much)",
            over("sent", {"strategy": "flat"}, {"strategy": "left_deep"}, selectivity="low", capacity=0.1),
            1.2,
            "a tuple also goes to all partitions of a small intermediate result, which has one task there",
        ),
        Claim(
            "with a capacity of 1 the difference is small",
            lambda rows: (
                1
                / max(
                    ratio := over(
                        "sent",
                        {"strategy": "flat"},
                        {"strategy": "left_deep"},
                        selectivity="low",
                        capacity=1.0,
                    )(rows),
                    1 / ratio,
                )
            ),
            0.8,
        ),
        Claim(
            "high selectivities: the left-deep plan sends more than the flat one",
            over("sent", {"strategy": "left_deep"}, {"strategy": "flat"}, selectivity="high", capacity=0.1),
            1.0,
            "stores of intermediate results do not get more partitions here",
        ),
    ),
    plots=(("strategy", "capacity", "sent"),),
)


def _figure_5_11(small: bool) -> Rows:
    found: list[Row] = []
    for name in ("Q2", "Q3", "Q5", "MMM", "MLM"):
        for strategy in ("flat", "left_deep", "auto"):
            ran = run(
                workload(name, small), strategy=strategy, partitions=1, options=THESIS
            )  # one: nothing is replicated
            found.append({**ran.row(query=name, strategy=strategy), "stored bytes": float(ran.stored_bytes)})
    return found


FIGURE_5_11 = Figure(
    name="clash-5.11",
    paper="CLASH",
    title="Figure 5.11: storage",
    there="tuples in all stores at the end, by a flat and a left-deep plan",
    here="the same; tuples and bytes",
    differs="smaller data, without copies (one partition); " + LOCAL,
    facts=(
        Fact(
            "Figure 5.11a",
            "left-deep stores 1.82 × as many tuples for Q2, about 1.2 × for Q3 and Q5, 1.5 × for MMM and MLM",
        ),
    ),
    measure=_figure_5_11,
    keys=("query", "strategy"),
    claims=tuple(
        Claim(
            f"left-deep stores more for {name} (there {factor:g} ×)",
            over("stored", {"strategy": "left_deep"}, {"strategy": "flat"}, query=name),
            least,
        )
        for name, factor, least in (
            ("Q2", 1.82, 1.1),
            ("Q3", 1.2, 1.1),
            ("Q5", 1.2, 1.05),
            ("MMM", 1.5, 1.2),
            ("MLM", 1.5, 1.05),
        )
    ),
    plots=(("strategy", "query", "stored"),),
)


def _table_5_1(small: bool) -> Rows:
    found: list[Row] = []
    for strategy in ("flat", "left_deep", "auto"):
        ran = joined("MMM", strategy, 4, small)
        found.append({**ran.row(strategy=strategy), "busiest to mean": ran.busiest})
    return found


TABLE_5_1 = Figure(
    name="clash-t5.1",
    paper="CLASH",
    title="Table 5.1: load per task",
    there="messages that arrive at each of the four tasks of a store, for MMM",
    here="seconds of work of each of four partitions: the busiest one to the mean",
    differs="seconds and not messages, since a message has a batch in it here; " + LOCAL,
    facts=(
        Fact(
            "Table 5.1",
            "118.86 to 120.25 messages a second at the tasks of one store: the busiest 1.005 × the mean",
        ),
    ),
    measure=_table_5_1,
    keys=("strategy",),
    claims=(
        Claim(
            "the load of tasks is even: the mean is at least 0.7 of the busiest (there 0.99)",
            lambda rows: (
                1 / max(value(rows, "busiest to mean", strategy=one) for one in ("flat", "left_deep", "auto"))
            ),
            0.7,
            "seconds of so little work vary by themselves",
        ),
    ),
)


def _figure_5_12(small: bool) -> Rows:
    found: list[Row] = []
    for partitions in (1, 2, 4):
        for strategy in ("flat", "left_deep", "auto"):
            ran = joined("MMM", strategy, partitions, small)
            found.append(
                {
                    "strategy": strategy,
                    "partitions": partitions,
                    "probes expected": ran.expected_probes,
                    "probes": float(ran.probed),
                    "stored expected": ran.expected_stored,
                    "stored": float(ran.stored),
                    "probes to expected": ran.probed / max(1.0, ran.expected_probes),
                    "stored to expected": ran.stored / max(1.0, ran.expected_stored),
                }
            )
    return found


def _nearness(column: str) -> Any:
    """The smallest ratio of expected and measured, whichever is larger."""
    return lambda rows: min(min(float(row[column]), 1 / max(1e-9, float(row[column]))) for row in rows)


FIGURE_5_12 = Figure(
    name="clash-5.12",
    paper="CLASH",
    title="Figure 5.12: estimated and measured cost",
    there="probe and storage cost of MMM (relations of 10⁴, selectivity 10⁻⁴) as estimated and as measured",
    here="the same, from true rates and distinct values",
    differs="the estimate is of the whole input, whose tuples come at even rates; " + LOCAL,
    facts=(
        Fact(
            "5.5.7", "estimated storage is exact; probe cost is lightly overestimated for longer probe orders"
        ),
    ),
    measure=_figure_5_12,
    keys=("strategy", "partitions"),
    claims=(
        Claim("stored tuples are as estimated (within a tenth)", _nearness("stored to expected"), 0.9),
        Claim(
            "probes are as estimated (within a quarter)",
            _nearness("probes to expected"),
            0.75,
            "all of a batch is joined in the driver order, so tuples meet other partners than in the "
            "order of arrival",
        ),
    ),
)


FIGURES = (FIGURE_5_10, FIGURE_5_11, TABLE_5_1, FIGURE_5_12)
