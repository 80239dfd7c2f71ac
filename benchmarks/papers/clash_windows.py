"""CLASH's single queries under windows, and as theta and equi joins: chapter 6.

Plans are chosen as in `clash_strategies`.
"""

from __future__ import annotations

from benchmarks.papers.clash_strategies import THESIS
from benchmarks.papers.figures import Claim, Fact, Figure, Row, Rows, over
from benchmarks.papers.workloads import LOCAL, Q2, Q3, Workload, run, tpch, with_windows, written


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


FIGURES = (FIGURE_6_8, FIGURE_6_9)
