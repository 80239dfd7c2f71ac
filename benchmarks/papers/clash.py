"""CLASH's experiments with single queries: chapters 5 and 6.

Every strategy is *executed*, on the joins of Q2, Q3 and Q5 of TPC-H as streams and on linear joins of given
selectivities. Plans are chosen by the thesis' cost, which has no price for a hop (`weft.Weights(hop=0)`), and
no store is replicated (`weft.Options(replicate=False)`), unless a figure says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.papers.figures import Claim, Fact, Figure, Row, Rows, over, value
from benchmarks.papers.workloads import (
    CHAIN,
    JOINS,
    Q2,
    Q3,
    QUERIES,
    Ran,
    Workload,
    linear,
    linear_selectivities,
    run,
    tpch,
    with_windows,
    written,
)

import weft

THESIS: dict[str, Any] = {"weights": weft.Weights(hop=0.0), "replicate": False}
STRATEGIES = ("flat", "left_deep", "greedy_left_deep", "chain", "merge", "auto", "exhaustive")
LOCAL = (
    "in one process that does the work of all partitions in turn, where the thesis has tasks on"
    " EC2 machines; rows per second "
    "of processor time"
)


def workload(name: str, small: bool) -> Workload:
    """One of the thesis' queries with its streams."""
    if name in QUERIES:
        return Workload({name: written(QUERIES[name])}, tpch(0.004 if small else 0.04), 5).only(name)
    rows = 2_000 if small else 10_000
    return Workload({name: CHAIN}, linear(name, rows), 5, selectivities=linear_selectivities(name, rows))


def _strategies(name: str) -> Sequence[str]:
    return STRATEGIES if name != "Q5" else tuple(one for one in STRATEGIES if one != "exhaustive")


def _joined(name: str, strategy: str, partitions: int, small: bool) -> Ran:
    return run(workload(name, small), strategy=strategy, partitions=partitions, options=THESIS)


def _figure_5_8(small: bool) -> Rows:
    found: list[Row] = []
    for name in ("Q2", "Q3", "Q5", "MHM", "MMM"):
        for partitions in (4,) if small else (1, 2, 4, 8):
            for strategy in _strategies(name):
                ran = _joined(name, strategy, partitions, small)
                found.append(ran.row(query=name, strategy=strategy, partitions=partitions))
    return found


def _best(column: str, strategy: str, other: str, queries: Sequence[str]) -> Any:
    """The geometric mean, over queries, of how many times better a strategy is."""

    def ratio(rows: Rows) -> float:
        product = 1.0
        for name in queries:
            product *= value(rows, column, query=name, strategy=strategy) / value(
                rows, column, query=name, strategy=other
            )
        return float(product ** (1 / len(queries)))

    return ratio


SMALL_BATCHES = (
    "most of a batch this small is what every batch costs, whatever its plan, "
    "and a local join is a merge, not nested loops"
)

FIGURE_5_8 = Figure(
    name="clash-5.8",
    paper="CLASH",
    title="Figure 5.8: throughput of plans",
    there=(
        "Q2 of TPC-H (scale 1) and the linear join MHM by flat, left-deep and optimised trees, 1 to"
        " 5 tasks per store"
    ),
    here="Q2, Q3, Q5, MHM and MMM by every strategy there is, each plan executed over the whole input",
    differs=f"smaller data; equalities are exploited, which the thesis does not; {LOCAL}",
    facts=(
        Fact(
            "5.5.2", "with parallelism 1 the flat plan is fastest for Q2; with more, left-deep scales better"
        ),
        Fact(
            "Figure 5.8d",
            "MHM is an order of magnitude slower than Q2, and the flat plan is no worse than others",
        ),
    ),
    measure=_figure_5_8,
    keys=("query", "strategy", "partitions"),
    claims=(
        Claim(
            "the optimised tree is at least as fast as the flat plan on Q2",
            over("rows/s", {"strategy": "auto"}, {"strategy": "flat"}, query="Q2"),
            0.95,
            SMALL_BATCHES,
        ),
        Claim(
            "the optimised tree is at least as fast as the left-deep one, over all queries",
            _best("rows/s", "auto", "left_deep", ("Q2", "Q3", "Q5", "MHM", "MMM")),
            0.95,
            SMALL_BATCHES,
        ),
        Claim(
            "it sends no more tuples than the flat plan, over all queries",
            lambda rows: 1 / _best("sent", "auto", "flat", ("Q2", "Q3", "Q5", "MHM", "MMM"))(rows),
            0.95,
            "the cost also counts what is stored and probed, and a plan that sends more may do less of these",
        ),
        Claim(
            "where intermediate results are larger than inputs (MHM), storing none is as fast as left-deep",
            over("rows/s", {"strategy": "flat"}, {"strategy": "left_deep"}, query="MHM"),
        ),
        Claim(
            "MHM is slower than Q2 (there by an order of magnitude)",
            lambda rows: (
                value(rows, "rows/s", query="Q2", strategy="flat")
                / value(rows, "rows/s", query="MHM", strategy="flat")
            ),
            1.0,
            "Q2 is small here, so that its batches are mostly what every batch costs",
        ),
    ),
    plots=(("strategy", "query", "rows/s"), ("strategy", "query", "sent")),
)


def _theta(name: str, scale: float) -> Workload:
    query = written(QUERIES[name], tuple(JOINS))
    return Workload({name: query}, tpch(scale), 4).only(name)


def _figure_5_9a(small: bool) -> Rows:
    found: list[Row] = []
    for partitions in (1, 2, 4, 8):
        for strategy in ("flat", "left_deep", "auto"):
            ran = run(
                _theta("Q3", 0.002 if small else 0.01),
                strategy=strategy,
                partitions=partitions,
                options=THESIS,
            )
            found.append(ran.row(strategy=strategy, partitions=partitions))
    return found


FIGURE_5_9A = Figure(
    name="clash-5.9a",
    paper="CLASH",
    title="Figure 5.9a: communication of Q3 as a theta join",
    there=(
        "tuples sent while Q3 is processed by a flat and a left-deep plan, with more and more tasks per store"
    ),
    here="the same, with every join written as a range of one value, so that probes go to all partitions",
    differs="tuples are counted by Weft itself (`BatchMetrics.sent`); " + LOCAL,
    facts=(
        Fact(
            "Figure 5.9a",
            "the left-deep plan causes significantly less communication, the more so with more tasks",
        ),
    ),
    measure=_figure_5_9a,
    keys=("strategy", "partitions"),
    claims=(
        Claim(
            "with 8 partitions the flat plan sends more tuples than the left-deep one",
            over("sent", {"strategy": "flat"}, {"strategy": "left_deep"}, partitions=8),
            1.05,
            "probes of both plans go to all partitions of as many stores",
        ),
        Claim(
            "the chosen plan sends no more than either",
            lambda rows: min(
                value(rows, "sent", strategy=one, partitions=8)
                / value(rows, "sent", strategy="auto", partitions=8)
                for one in ("flat", "left_deep")
            ),
            0.99,
            "the cost also counts what is stored and probed",
        ),
        Claim(
            "communication grows with the partitions (flat, 8 against 1)",
            over("sent", {"partitions": 8}, {"partitions": 1}, strategy="flat"),
            1.5,
        ),
    ),
    plots=(("strategy", "partitions", "sent"),),
)


def _figure_5_9b(small: bool) -> Rows:
    few = workload("Q2", small)
    slow = Workload(few.queries, few.tables, 20)
    found: list[Row] = []
    for strategy in ("flat", "left_deep", "auto"):
        ran = run(slow, strategy=strategy, partitions=4)
        found.append({**ran.row(strategy=strategy), "hops": float(ran.hops)})
    return found


FIGURE_5_9B = Figure(
    name="clash-5.9b",
    paper="CLASH",
    title="Figure 5.9b: latency of Q2 at a low rate",
    there="milliseconds from a result's last tuple to the sink, by a flat, a left-deep and a mixed plan",
    here="the same, from a tuple's arrival to the commit of the batch that joins it, in small batches",
    differs="a batch is the unit: a hop costs a stage, so plans of fewer hops are faster; default weights; "
    + LOCAL,
    facts=(
        Fact("5.5.4", "the average latency of the mixed plan is half that of the flat or the left-deep one"),
    ),
    measure=_figure_5_9b,
    keys=("strategy",),
    claims=(
        Claim(
            "the chosen plan has no longer latency than the flat one",
            over("latency ms", {"strategy": "flat"}, {"strategy": "auto"}),
            0.9,
            "both take one hop, which is what latency consists of here",
        ),
        Claim(
            "the chosen plan has a shorter latency than the left-deep one (there half of it)",
            over("latency ms", {"strategy": "left_deep"}, {"strategy": "auto"}),
            1.1,
            "a hop in one process takes a few milliseconds only",
        ),
    ),
    plots=(),
)

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
        ran = _joined("MMM", strategy, 4, small)
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
            ran = _joined("MMM", strategy, partitions, small)
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


def _figure_6_8(small: bool) -> Rows:
    found: list[Row] = []
    seconds = 150.0
    tables = tpch(0.002 if small else 0.02, seconds=seconds)
    for window in (25, 50):
        text = with_windows(written(Q3, ("customer_orders", "lineitem_orders")), f"[RANGE {window} SECONDS]")
        for partitions in (2, 4) if small else (1, 2, 4, 8):
            for strategy in ("flat", "left_deep"):
                some = Workload(
                    {"Q3": text}, {n: tables[n] for n in ("customer", "orders", "lineitem")}, 15, "ts"
                )
                ran = run(some, strategy=strategy, partitions=partitions, options=THESIS)
                found.append(
                    {
                        **ran.row(window=window, strategy=strategy, partitions=partitions),
                        "most stored": float(ran.most_stored),
                    }
                )
    return found


FIGURE_6_8 = Figure(
    name="clash-6.8",
    paper="CLASH",
    title="Figure 6.8: windows of 25 and 50 seconds",
    there="the maximum sustainable throughput of Q3 as a theta join, and how many tuples are materialised",
    here="the throughput of the same join over 150 seconds of event time, and the most tuples stored",
    differs="all input is there at once, so the throughput is the highest, not one that is searched for; "
    + LOCAL,
    facts=(
        Fact(
            "6.5.1",
            "with windows twice as long, the throughput is about half and twice as many tuples are stored",
        ),
        Fact("Figure 6.8c", "the left-deep plan stores significantly more"),
    ),
    measure=_figure_6_8,
    keys=("window", "strategy", "partitions"),
    claims=(
        Claim(
            "windows twice as long store about twice as many tuples (flat)",
            over("most stored", {"window": 50}, {"window": 25}, strategy="flat"),
            1.6,
        ),
        Claim(
            "left-deep stores more than flat",
            over("most stored", {"strategy": "left_deep"}, {"strategy": "flat"}),
            1.02,
            "few orders meet their customer within the window, so there is little between to store",
        ),
        Claim(
            "shorter windows are faster (there twice as fast)",
            over("rows/s", {"window": 25}, {"window": 50}, strategy="flat"),
            1.05,
            "a range is looked up in an order, so a probe's cost grows with the logarithm of the "
            "window, not with it",
        ),
    ),
    plots=(("strategy", "window", "rows/s"), ("strategy", "window", "most stored")),
)

VARIANTS = {
    "theta": ("part_partsupp", "supplier_partsupp", "supplier_nation", "nation_region"),
    "equi": (),
    "mixed": ("supplier_partsupp", "supplier_nation", "nation_region"),
}


def _figure_6_9(small: bool) -> Rows:
    found: list[Row] = []
    tables = tpch(0.004 if small else 0.02)
    for variant, theta in VARIANTS.items():
        for strategy in ("flat", "left_deep", "auto"):
            some = Workload({"Q2": written(Q2, theta)}, tables, 5).only("Q2")
            ran = run(some, strategy=strategy, partitions=4, options=THESIS)
            found.append(ran.row(variant=variant, strategy=strategy))
    return found


FIGURE_6_9 = Figure(
    name="clash-6.9",
    paper="CLASH",
    title="Figure 6.9: Q2 as theta, equi and mixed join",
    there=(
        "throughput of Q2 with all predicates as theta joins, all as equalities, and all but the "
        "largest join as theta"
    ),
    here="the same; a theta join is written as a range of one value",
    differs="ranges are looked up in an order where CLASH compares all pairs in nested loops; " + LOCAL,
    facts=(
        Fact("Figure 6.9b", "equi joins are an order of magnitude faster than theta joins"),
        Fact("Figure 6.9c", "the mixed variant is nearly as fast as the equi join"),
    ),
    measure=_figure_6_9,
    keys=("variant", "strategy"),
    claims=(
        Claim(
            "equi joins are faster than theta joins (there by an order of magnitude)",
            over("rows/s", {"variant": "equi"}, {"variant": "theta"}, strategy="auto"),
            1.2,
            "a theta join is no nested loop here",
        ),
        Claim(
            "the mixed variant is nearly as fast as the equi join",
            over("rows/s", {"variant": "mixed"}, {"variant": "equi"}, strategy="auto"),
            0.7,
            "three of the four joins still go to all partitions",
        ),
        Claim(
            "theta joins send more tuples",
            over("sent", {"variant": "theta"}, {"variant": "equi"}, strategy="auto"),
            1.5,
        ),
    ),
    plots=(("strategy", "variant", "rows/s"),),
)

FIGURES = (
    FIGURE_5_8,
    FIGURE_5_9A,
    FIGURE_5_9B,
    FIGURE_5_10,
    FIGURE_5_11,
    TABLE_5_1,
    FIGURE_5_12,
    FIGURE_6_8,
    FIGURE_6_9,
)
