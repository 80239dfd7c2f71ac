"""CLASH's strategies, executed: what they give and what they send (5.5.2).

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
    LOCAL,
    QUERIES,
    Ran,
    Workload,
    linear,
    linear_selectivities,
    run,
    tpch,
    written,
)

import weft

THESIS: dict[str, Any] = {"weights": weft.Weights(hop=0.0), "replicate": False}
STRATEGIES = ("flat", "left_deep", "greedy_left_deep", "chain", "merge", "auto", "exhaustive")


def workload(name: str, small: bool) -> Workload:
    """One of the thesis' queries with its streams."""
    if name in QUERIES:
        return Workload({name: written(QUERIES[name])}, tpch(0.004 if small else 0.04), 5).only(name)
    rows = 2_000 if small else 10_000
    return Workload({name: CHAIN}, linear(name, rows), 5, selectivities=linear_selectivities(name, rows))


def _strategies(name: str) -> Sequence[str]:
    return STRATEGIES if name != "Q5" else tuple(one for one in STRATEGIES if one != "exhaustive")


def joined(name: str, strategy: str, partitions: int, small: bool) -> Ran:
    """One of the thesis' queries, executed by a strategy."""
    return run(workload(name, small), strategy=strategy, partitions=partitions, options=THESIS)


def _figure_5_8(small: bool) -> Rows:
    found: list[Row] = []
    for name in ("Q2", "Q3", "Q5", "MHM", "MMM"):
        for partitions in (4,) if small else (1, 2, 4, 8):
            for strategy in _strategies(name):
                ran = joined(name, strategy, partitions, small)
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


FIGURES = (FIGURE_5_8, FIGURE_5_9A, FIGURE_5_9B)
