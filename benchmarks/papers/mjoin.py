"""MJoin's experiments: which input of a batch comes first, on the paper's six data sets."""

from __future__ import annotations

from statistics import fmean
from typing import Any

from benchmarks._mjoin_report import CONTENDERS, FEW, figures_of
from benchmarks._mjoin_run import DATASETS
from benchmarks.mjoin import measure
from benchmarks.papers.figures import Claim, Fact, Figure, Row, Rows


def _tables(small: bool) -> Rows:
    """Tables 4 and 5, and Figures 6 to 8: the first and the second half of the batches of bursty data sets."""
    found: list[Row] = []
    scale = 0.02 if small else 0.5
    measure(DATASETS[0], FEW, 0.01, 1, 1)  # so that compiling is not measured
    for dataset in DATASETS:
        runs = measure(dataset, FEW, scale, 1 if small else 3, 8)
        for name in CONTENDERS:
            figures = figures_of(runs[name], runs["timestamp"])
            found.append(
                {
                    "data set": dataset.name,
                    "policy": name,
                    "running time": figures.running,
                    "early results": figures.early,
                    "results at half of the tuples": figures.by_half,
                    "waiting": figures.waiting,
                }
            )
    return found


def _mean(rows: Rows, column: str, policy: str) -> float:
    return fmean(float(row[column]) for row in rows if row["policy"] == policy)


def _against(column: str, policy: str, other: str, *, smaller: bool = False) -> Any:
    """How many times better a policy is than another, over all data sets."""

    def ratio(rows: Rows) -> float:
        one, two = _mean(rows, column, policy), _mean(rows, column, other)
        return two / one if smaller else one / two

    return ratio


BATCH = "a batch is joined by whole columns, whose cost depends little on which input comes first"

TABLES = Figure(
    name="mjoin-4",
    paper="MJoin",
    title="Tables 4 and 5, Figures 5 to 8: driver policies",
    there=(
        "running time and early results of the policies, in that of `timestamp`, on three uniform "
        "and three bursty data sets"
    ),
    here=(
        f"the same data sets in {FEW} batches, scaled; `arrival` cuts batches into eight slices by "
        "time, as near to the order of arrival as Weft comes"
    ),
    differs="whole columns instead of tuples; the three streams are smaller; in this process",
    facts=(
        Fact(
            "Table 4",
            "running time on average: initial output size 0.714 (1M) and 0.832 (0.1M), output rate "
            "0.803, consumption rate 0.768",
        ),
        Fact(
            "Table 5",
            "results at half of the time: initial output size 0.84, output rate 0.79, timestamp 0.45, "
            "consumption rate 0.2",
        ),
    ),
    measure=_tables,
    keys=("data set", "policy"),
    claims=(
        Claim(
            "initial output size runs shorter than timestamp (there 0.714 of its time)",
            _against("running time", "initial_output_size", "timestamp", smaller=True),
            1.1,
            BATCH,
        ),
        Claim(
            "initial output size has more results at half of the tuples than timestamp (there 0.84 to 0.45)",
            _against("results at half of the tuples", "initial_output_size", "timestamp"),
            1.1,
        ),
        Claim(
            "consumption rate has fewer results at half of the tuples than timestamp (there 0.2 to 0.45)",
            _against("results at half of the tuples", "consumption_rate", "timestamp", smaller=True),
            1.1,
        ),
        Claim(
            "any policy over whole batches is faster than the order of arrival",
            _against("running time", "initial_output_size", "arrival", smaller=True),
            1.2,
        ),
    ),
    plots=(("policy", "data set", "running time"), ("policy", "data set", "results at half of the tuples")),
)

FIGURES = (TABLES,)
