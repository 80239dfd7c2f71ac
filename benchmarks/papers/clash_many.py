"""CLASH's experiments with many queries, with changing data, and with its integer program: chapter 7."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean, median
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks.ilp import measure as plan_together
from benchmarks.papers.figures import Claim, Fact, Figure, Row, Rows, over, value
from benchmarks.papers.workloads import BEGAN, LOCAL, Ran, Workload, run, tpch

import weft

_C, _O, _L = "customer AS c", "orders AS o", "lineitem AS l"
_P, _PS, _S, _N, _R = "part AS p", "partsupp AS ps", "supplier AS s", "nation AS n", "region AS r"
_CO, _OL, _LS = "c.custkey = o.custkey", "o.orderkey = l.orderkey", "l.suppkey = s.suppkey"
_SN, _NR, _PPS, _PSS = (
    "s.nationkey = n.nationkey",
    "n.regionkey = r.regionkey",
    "p.partkey = ps.partkey",
    "ps.suppkey = s.suppkey",
)


def _join(shown: str, inputs: tuple[str, ...], *conditions: str) -> str:
    return f"SELECT {shown} FROM {', '.join(inputs)} WHERE {' AND '.join(conditions)}"


# Joins of TPC-H along its keys that overlap: the first five, and five more.
TEN = {
    "q1": _join("o.orderkey", (_C, _O, _L), _CO, _OL),
    "q2": _join("o.orderkey", (_O, _L, _S), _OL, _LS),
    "q3": _join("l.orderkey", (_L, _S, _N), _LS, _SN),
    "q4": _join("p.partkey", (_P, _PS, _S), _PPS, _PSS),
    "q5": _join("s.suppkey", (_S, _N, _R), _SN, _NR),
    "q6": _join("o.orderkey", (_C, _O, _L, _S), _CO, _OL, _LS),
    "q7": _join("l.orderkey", (_O, _L, _P), _OL, "l.partkey = p.partkey"),
    "q8": _join("l.orderkey", (_P, _L, _S), "l.partkey = p.partkey", _LS),
    "q9": _join("c.custkey", (_C, _N, _R), "c.nationkey = n.nationkey", _NR),
    "q10": _join("ps.partkey", (_PS, _S, _N), _PSS, _SN),
}
HOPS_ARE_FREE: Mapping[str, Any] = {"weights": weft.Weights(hop=0.0)}
TOGETHER: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "shared input": ({"share": False}, {}),
    "shared plans": ({}, {"joint": "separate"}),
    "joint": ({}, {"joint": "auto"}),
    "joint, exact": ({}, {"joint": "exact"}),
}


def _summed(runs: list[Ran], rows: int) -> Ran:
    """Independent runs as one: their work and state add up, over the same input."""
    return replace(
        runs[0],
        rows=rows,
        results=sum(one.results for one in runs),
        seconds=sum(one.seconds for one in runs),
        sent=sum(one.sent for one in runs),
        sent_bytes=sum(one.sent_bytes for one in runs),
        probed=sum(one.probed for one in runs),
        stored=sum(one.stored for one in runs),
        stored_bytes=sum(one.stored_bytes for one in runs),
        latency=fmean(one.latency for one in runs),
        latency_p95=max(one.latency_p95 for one in runs),
    )


def _figure_7_6(small: bool) -> Rows:
    found: list[Row] = []
    tables = tpch(0.003 if small else 0.03)
    for count in (5, 10):
        some = Workload(dict(list(TEN.items())[:count]), tables, 4).only(*list(TEN)[:count])
        alone = [run(some.only(name)) for name in some.queries]
        ran = {"independent": _summed(alone, some.timed_rows)}
        for way, (options, settings) in TOGETHER.items():
            ran[way] = run(some, options=options, settings=settings)
        found += [
            {**one.row(queries=count, way=way), "stored bytes": float(one.stored_bytes)}
            for way, one in ran.items()
        ]
    return found


STATE = "shared stores carry query-sets, and small ones are replicated to save hops, which the plan of `exact` does not"

FIGURE_7_6 = Figure(
    name="clash-7.6",
    paper="CLASH",
    title="Figure 7.6: many queries on TPC-H",
    there=(
        "five and ten overlapping joins of TPC-H (scale 10, full history): independent jobs, shared"
        " plans, global optimisation"
    ),
    here=(
        "five and ten joins of TPC-H along its keys, by separate sessions and by one session that "
        "shares more and more"
    ),
    differs=(
        "queries are joins along keys, not random ones; latency is that of a batch with all queries in it; "
    )
    + LOCAL,
    facts=(
        Fact(
            "Figure 7.6b",
            "sharing equal plans is 1.4 times as fast as independent jobs, global optimisation 2.6 times",
        ),
        Fact(
            "Figure 7.6c", "independent jobs need 3.1 times the memory with five queries, 5.3 times with ten"
        ),
        Fact("Figure 7.6d", "the average latency with global optimisation is 14 to 16 % longer"),
    ),
    measure=_figure_7_6,
    keys=("queries", "way"),
    claims=(
        Claim(
            "sharing plans is faster than separate sessions (there 1.4 ×), ten queries",
            over("rows/s", {"way": "shared plans"}, {"way": "independent"}, queries=10),
            1.1,
        ),
        Claim(
            "global optimisation is faster than separate sessions (there 2.6 ×), ten queries",
            over("rows/s", {"way": "joint"}, {"way": "independent"}, queries=10),
            1.4,
        ),
        Claim(
            "global optimisation is no slower than sharing plans, ten queries",
            over("rows/s", {"way": "joint"}, {"way": "shared plans"}, queries=10),
            0.95,
            "plans of single queries agree on most stores here, as all joins are along keys",
        ),
        Claim(
            "separate sessions need more memory (there 3.1 ×), five queries",
            over("stored bytes", {"way": "independent"}, {"way": "joint"}, queries=5),
            1.3,
            STATE,
        ),
        Claim(
            "separate sessions need more memory (there 5.3 ×), ten queries",
            over("stored bytes", {"way": "independent"}, {"way": "joint"}, queries=10),
            2.0,
            STATE,
        ),
    ),
    plots=(("way", "queries", "rows/s"), ("way", "queries", "stored bytes")),
)

_CHAIN = (
    "SELECT r.a, s.b, t.c FROM r [RANGE 5 SECONDS], s [RANGE 5 SECONDS], t [RANGE 5 SECONDS], u"
    " [RANGE 5 SECONDS] "
    "WHERE r.a = s.a AND s.b = t.b AND t.c = u.c"
)
_COLUMNS = {"r": "a", "s": "ab", "t": "bc", "u": "c"}
BATCHES, CHANGE = 36, 15  # a batch is a second, and after so many the data changes


def _streams(rates: Mapping[str, int], domain: Any) -> dict[str, pa.Table]:
    """Streams of so many tuples a second; ``domain(column, stream, second)`` are the bounds of a key's values."""
    rng, tables = np.random.default_rng(7), {}
    for name, columns in _COLUMNS.items():
        parts = []
        for second in range(BATCHES):
            times = BEGAN + second * 1_000_000 + np.sort(rng.integers(0, 1_000_000, rates[name]))
            keys = {
                column: _drawn(rng, domain(column, name, second), rates[name]).astype(np.int64)
                for column in columns
            }
            parts.append(pa.table({**keys, "ts": pa.array(times, pa.timestamp("us", "UTC"))}))
        tables[name] = pa.concat_tables(parts)
    return tables


def _drawn(rng: np.random.Generator, bounds: tuple[int, int], count: int) -> Any:
    return rng.integers(bounds[0], bounds[1], count)


def _told(rates: Mapping[str, int], selectivities: Mapping[str, float], some: Workload) -> Workload:
    known = {name: weft.StreamStatistics(rate=float(rate)) for name, rate in rates.items()}
    return replace(some, given=weft.Statistics(known), selectivities=selectivities)


ALWAYS: Mapping[str, Any] = {
    "adapt": "always",
    "adaptation": weft.Adaptation(
        epoch_batches=1, epoch_seconds=0.0, half_life_batches=3.0, half_life_seconds=3.0
    ),
}


def _over_time(contenders: Mapping[str, tuple[Workload, Mapping[str, Any]]]) -> Rows:
    """The seconds that the tasks of a batch take before the change, right after it, and in the last third."""
    found: list[Row] = []
    for name, (some, settings) in contenders.items():
        taken = run(some, partitions=2, options=HOPS_ARE_FREE, settings=settings).task_seconds
        spans = {"before": (5, CHANGE), "just after": (CHANGE, CHANGE + 5), "at the end": (24, BATCHES)}
        for phase, (first, last) in spans.items():
            found.append({"plan": name, "phase": phase, "ms a batch": 1e3 * median(taken[first:last])})
    return found


def _figure_7_7a(small: bool) -> Rows:
    rate = 1_000 if small else 5_000
    wide = 5 * rate

    def domain(column: str, stream: str, second: int) -> tuple[int, int]:
        if second < CHANGE:
            return 0, wide
        if column == "b":  # s and t have no value in common any more
            return (0, wide) if stream == "s" else (10 * wide, 11 * wide)
        return 0, wide // 100  # a hundred partners

    some = Workload({"chain": _CHAIN}, _streams(dict.fromkeys(_COLUMNS, rate), domain), BATCHES, "ts")
    rates = dict.fromkeys(_COLUMNS, rate)
    first = _told(rates, {"r.a = s.a": 1 / wide, "t.c = u.c": 1 / wide, "s.b = t.b": 1.5 / wide}, some)
    last = _told(rates, {"r.a = s.a": 100 / wide, "t.c = u.c": 100 / wide, "s.b = t.b": 1e-9}, some)
    return _over_time({"static": (first, {}), "adaptive": (first, ALWAYS), "known in advance": (last, {})})


def _at_the_end(plan: str, other: str) -> Any:
    return over("ms a batch", {"plan": other}, {"plan": plan}, phase="at the end")


FIGURE_7_7A = Figure(
    name="clash-7.7a",
    paper="CLASH",
    title="Figure 7.7a: selectivities that change",
    there=(
        "latency of a four-way chain of 100,000 tuples a second each, windows of 5 s, whose "
        "selectivities change after 15 s"
    ),
    here="seconds of the tasks of a batch, which is a second of the same streams at a lower rate",
    differs=("time of a batch and not latency, which without a queue is the same; planning is not in it; ")
    + LOCAL,
    facts=(
        Fact(
            "7.3.2",
            "56 ms before; after the change 72 ms; adaptive recovers within a window, static runs out "
            "of memory",
        ),
    ),
    measure=_figure_7_7a,
    keys=("plan", "phase"),
    claims=(
        Claim(
            "at the end the adaptive plan needs less work than the static one",
            _at_the_end("adaptive", "static"),
            1.1,
        ),
        Claim(
            "at the end the adaptive plan needs at most 1.25 × the work of the one known in advance",
            _at_the_end("adaptive", "known in advance"),
            0.8,
            "what was measured before the change still weighs, and stores are filled side by side",
        ),
    ),
    plots=(("plan", "phase", "ms a batch"),),
)


def _figure_7_7b(small: bool) -> Rows:
    rates = {"r": 20_000 if small else 100_000, "s": 200, "t": 200, "u": 200}

    def domain(column: str, _stream: str, second: int) -> tuple[int, int]:
        if column == "a":
            return 0, 1_000
        return (0, 200) if second < CHANGE else (0, 20_000)

    some = Workload({"chain": _CHAIN}, _streams(rates, domain), BATCHES, "ts")
    first = _told(rates, {"r.a = s.a": 1e-3, "s.b = t.b": 1 / 200, "t.c = u.c": 1 / 200}, some)
    last = _told(rates, {"r.a = s.a": 1e-3, "s.b = t.b": 1 / 20_000, "t.c = u.c": 1 / 20_000}, some)
    return _over_time({"static": (first, {}), "adaptive": (first, ALWAYS), "known in advance": (last, {})})


FIGURE_7_7B = Figure(
    name="clash-7.7b",
    paper="CLASH",
    title="Figure 7.7b: a store that is added",
    there=(
        "one stream of 5,000,000 tuples a second and three of 5,000, whose join becomes small after"
        " 15 s: a store for it is added"
    ),
    here="the same with rates of a hundred to one, and seconds of the tasks of a batch",
    differs="lower rates; work per batch and not latency; " + LOCAL,
    facts=(
        Fact("7.3.2", "the average latency declines after the change and is about 36 ms from second 22 on"),
    ),
    measure=_figure_7_7b,
    keys=("plan", "phase"),
    claims=(
        Claim(
            "at the end the adaptive plan needs less work than the static one (there 36 of 56 ms)",
            _at_the_end("adaptive", "static"),
            1.05,
            "tuples that find nothing in the first store are done after one merge, whichever plan it is",
        ),
    ),
    plots=(("plan", "phase", "ms a batch"),),
)


def _figure_7_8(small: bool) -> Rows:
    rows = [(10, 3, count, 1, 5.0) for count in (10, 50, 100)]
    rows += [(100, 3, count, 1, 5.0) for count in (50, 100)]
    rows += [(100, size, 10, 1, 5.0) for size in (4, 5)]
    rows += [] if small else [(100, 5, 30, 1, 60.0)]
    found: list[Row] = []
    for row in rows:
        measured = plan_together(row, 1)
        found.append(
            {
                "relations": row[0],
                "span": row[1],
                "queries": row[2],
                "cost saved": measured.saved,
                "variables": float(measured.solution.variables),
                "ms": 1e3 * measured.seconds,
                "gap": measured.solution.gap,
                "incremental ms": 1e3 * measured.incremental_seconds,
            }
        )
    return found


FIGURE_7_8 = Figure(
    name="clash-7.8",
    paper="CLASH",
    title="Figure 7.8: the integer program",
    there=(
        "probe cost with and without sharing, size of the program and time to solve it, queries of "
        "3 to 5 relations out of 10 or 100"
    ),
    here="the same; intermediate results may be stored, too",
    differs=(
        "HiGHS instead of Gurobi; the program has variables for stores, which the thesis' has not; "
        "time includes its making"
    ),
    facts=(
        Fact("Figure 7.8a", "10 relations: about 50 % of the probe cost is saved"),
        Fact("Figure 7.8b", "100 queries of 3 relations: 1,717 variables on average"),
        Fact("Figure 7.8c", "100 relations, 50 queries: around 15 % is saved"),
        Fact("Figure 7.8e", "100 queries of 3 relations out of 100: 120 ms"),
        Fact(
            "Figure 7.8f",
            "10 queries of size four: 400 ms; of size five: 12 s; 30 of size five: over two minutes",
        ),
    ),
    measure=_figure_7_8,
    keys=("relations", "span", "queries"),
    claims=(
        Claim(
            "100 queries over 10 relations save half of the cost",
            lambda rows: value(rows, "cost saved", relations=10, queries=100) / 0.5,
            1.0,
        ),
        Claim(
            "50 queries over 100 relations save around 15 %",
            lambda rows: value(rows, "cost saved", relations=100, span=3, queries=50) / 0.15,
            0.8,
        ),
        Claim(
            "ten queries of five relations are planned in 12 s",
            lambda rows: 12_000 / value(rows, "ms", relations=100, span=5, queries=10),
            1.0,
        ),
        Claim(
            "100 queries of three relations are planned in 120 ms",
            lambda rows: 120 / value(rows, "ms", relations=100, span=3, queries=100),
            1.0,
            "the program is larger, since intermediate results may be stored, and is made in Python",
        ),
    ),
)

FIGURES = (FIGURE_7_6, FIGURE_7_7A, FIGURE_7_7B, FIGURE_7_8)
