"""AJoin's experiments: many queries that share, join 2 to 5 streams, come while others run; what each part is worth.

Streams have six attributes with values below 500, queries are drawn from the paper's template (Figure 14).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
from benchmarks._ajoin import ATR_MAX, ATTRIBUTES, Selections, draw, similar, stream_names
from benchmarks.groups import make_workload
from benchmarks.papers.figures import Claim, Fact, Figure, Row, Rows, over, value
from benchmarks.papers.workloads import BEGAN, LOCAL, Workload, run

import weft

QUICK: Mapping[str, Any] = {"planning_seconds": 0.5}  # plans are looked for so long, also with many queries
RATE = 100  # tuples a second of event time of a stream, so that a window of 3 s has 300


def streams(count: int, rows: int, keys: int = ATR_MAX) -> dict[str, pa.Table]:
    """So many streams of the paper's; attributes have values below ``keys``."""
    found = {}
    for place, name in enumerate(stream_names(count)):
        rng = np.random.default_rng([7, place])
        times = BEGAN + np.arange(rows, dtype=np.int64) * 1_000_000 // RATE
        columns = {attribute: rng.integers(0, keys, rows) for attribute in ATTRIBUTES}
        found[name] = pa.table({**columns, "ts": pa.array(times, pa.timestamp("us", "UTC"))})
    return found


def queries(
    count: int,
    ways: Sequence[int],
    *,
    percent: float = 50,
    selections: Selections | None = None,
    of: int = 3,
    seed: int = 7,
) -> dict[str, str]:
    """So many queries, as similar to the pattern of their size as asked, over some of the streams."""
    rng, names = Random(seed), stream_names(of)
    patterns = {way: draw(rng, way, streams=names, selections=selections) for way in sorted(set(ways))}
    return {
        f"q{number:03}": str(
            similar(rng, patterns[ways[number % len(ways)]], percent, streams=names, selections=selections)
        )
        for number in range(count)
    }


def _workload(
    asked: Mapping[str, str], rows: int, of: int = 3, keys: int = ATR_MAX, batches: int = 4
) -> Workload:
    return Workload(asked, streams(of, rows, keys), batches, "ts")


def _figure_15(small: bool) -> Rows:
    found: list[Row] = []
    rows = 2_000 if small else 10_000
    every = queries(20 if small else 500, [2])
    for count in (1, 5, 20) if small else (1, 5, 20, 100, 500):
        some = dict(list(every.items())[:count])
        together = run(_workload(some, rows))
        found.append(
            {
                **_overall(together.row(queries=count, way="together"), count),
                "KB": together.stored_bytes / 1e3,
            }
        )
        if count <= 20:
            alone = [run(_workload({name: text}, rows), warm=name == "q000") for name, text in some.items()]
            seconds, stored = sum(one.seconds for one in alone), sum(one.stored_bytes for one in alone)
            row = {**alone[0].row(queries=count, way="separate"), "rows/s": together.rows / seconds}
            found.append({**_overall(row, count), "KB": stored / 1e3})
    return found


def _overall(row: Row, count: int) -> dict[str, str | float]:
    """With the overall throughput, which is that of all queries together (AJoin, 7)."""
    return {**row, "overall rows/s": float(row["rows/s"]) * count}


FIGURE_15 = Figure(
    name="ajoin-15",
    paper="AJoin",
    title="Figures 15 and 16: many queries, together and separate",
    there=(
        "overall throughput of 1 to 500 two-way joins without selections on 4 and 8 nodes, and the "
        "space of buffers and indexes"
    ),
    here="the same queries in one session, and up to 20 of them in sessions of their own",
    differs=(
        "bytes of state stand for buffers and indexes, which are one thing here; no other system takes part; "
    )
    + LOCAL,
    facts=(
        Fact("7.1", "with more parallel queries, the overall throughput of AJoin increases dramatically"),
        Fact(
            "Figure 16", "buffers grow with the number of queries, those of indexes more than those of tuples"
        ),
    ),
    measure=_figure_15,
    keys=("queries", "way"),
    claims=(
        Claim(
            "overall throughput grows with the queries (20 against 1)",
            over("overall rows/s", {"queries": 20}, {"queries": 1}, way="together"),
            1.0,
        ),
        Claim(
            "together is faster than separate, 20 queries",
            over("overall rows/s", {"way": "together"}, {"way": "separate"}, queries=20),
            1.3,
        ),
        Claim(
            "together needs less state, 20 queries",
            over("KB", {"way": "separate"}, {"way": "together"}, queries=20),
            1.5,
        ),
    ),
    plots=(("way", "queries", "overall rows/s"), ("way", "queries", "KB")),
)


def _figure_17(small: bool) -> Rows:
    found: list[Row] = []
    for keys in (10, 100, 500):
        for selectivity in (0.1, 0.5, 0.9):
            some = queries(5, [2], selections=Selections(selectivity, 0.02))
            scaled = {name: _scaled(text, keys) for name, text in some.items()}
            ran = run(_workload(scaled, 1_500 if small else 10_000, keys=keys))
            found.append(_overall(ran.row(keys=keys, selectivity=selectivity), 5))
    return found


def _scaled(text: str, keys: int) -> str:
    """A query whose selections are of values below ``keys`` instead of 500."""
    words = text.split(" ")
    return " ".join(
        str(round(int(word) * keys / ATR_MAX))
        if word.isdigit() and words[at - 1] in ("<", ">", "<=", ">=")
        else word
        for at, word in enumerate(words)
    )


FIGURE_17 = Figure(
    name="ajoin-17",
    paper="AJoin",
    title="Figure 17: distinct keys and selectivity",
    there="throughput with fewer and more distinct keys, and selections of different selectivity",
    here="five two-way joins with selections, values below 10, 100 and 500",
    differs="no other system takes part; results are counted; " + LOCAL,
    facts=(
        Fact(
            "Figure 17",
            "with fewer distinct keys and less selective queries there are more results, and throughput"
            " drops",
        ),
    ),
    measure=_figure_17,
    keys=("keys", "selectivity"),
    claims=(
        Claim(
            "more distinct keys are faster (500 against 10), selectivity 0.9",
            over("rows/s", {"keys": 500}, {"keys": 10}, selectivity=0.9),
            1.0,
            "results that are only counted are not made, so many of them cost little",
        ),
        Claim(
            "more selective queries are faster (0.1 against 0.9), 10 keys",
            over("rows/s", {"selectivity": 0.1}, {"selectivity": 0.9}, keys=10),
            1.05,
        ),
    ),
    plots=(("selectivity", "keys", "rows/s"),),
)


def _figure_18(small: bool) -> Rows:
    found: list[Row] = []
    for way in (2, 3, 5) if small else (2, 3, 4, 5):
        for when in ("at the start", "ad hoc"):
            some = queries(6 if small else 10, [way], of=5, selections=Selections(0.5))
            arriving = {name: 1 + at // 2 for at, name in enumerate(some) if at} if when == "ad hoc" else {}
            ran = run(
                _workload(some, 1_200 if small else 6_000, of=5, batches=8), arriving=arriving, options=QUICK
            )
            spent = sum(ran.stages.values()) or 1.0
            found.append(
                {
                    **_overall(ran.row(ways=way, queries=when), len(some)),
                    **{f"{name} %": 100 * seconds / spent for name, seconds in ran.stages.items()},
                }
            )
    return found


FIGURE_18 = Figure(
    name="ajoin-18",
    paper="AJoin",
    title="Figures 18a, 19 and 20a: joins of 2 to 5 streams, at the start and ad hoc",
    there=(
        "event-time latency, a breakdown by component, and throughput of 2- to 5-way joins that are"
        " created while others run"
    ),
    here=(
        "six or ten queries that all run from the start, or of which two come with each batch: latency, "
        "seconds by stage, throughput"
    ),
    differs=(
        "stages are reading, joining, and the rest of a batch (deciding, planning, committing), not"
        " AJoin's components; "
    )
    + LOCAL,
    facts=(
        Fact("Figure 20a", "throughput drops with n, most sharply from 2-way to 3-way joins"),
        Fact("Figure 20a", "throughput is higher when queries are submitted at compile time"),
    ),
    measure=_figure_18,
    keys=("ways", "queries"),
    claims=(
        Claim(
            "throughput drops from 2- to 3-way joins",
            over("rows/s", {"ways": 2}, {"ways": 3}, queries="at the start"),
            1.05,
        ),
        Claim(
            "throughput drops from 2- to 5-way joins",
            over("rows/s", {"ways": 2}, {"ways": 5}, queries="at the start"),
            1.2,
        ),
        Claim(
            "queries that are there from the start are faster than ad-hoc ones, 5-way",
            over("rows/s", {"queries": "at the start"}, {"queries": "ad hoc"}, ways=5),
            1.0,
            "ad-hoc queries run in fewer batches, which saves as much as adding them costs",
        ),
    ),
    plots=(("queries", "ways", "rows/s"), ("queries", "ways", "latency ms")),
)


def _figure_20(small: bool) -> Rows:
    found: list[Row] = []
    for percent in (0, 50, 100) if small else (0, 25, 50, 75, 100):
        some = queries(20, [3, 2], percent=percent, of=3)
        ran = run(_workload(some, 1_200 if small else 6_000), options=QUICK)
        found.append(_overall(ran.row(similarity=percent), 20))
    return found


FIGURE_20 = Figure(
    name="ajoin-20d",
    paper="AJoin",
    title="Figure 20d: similarity of queries",
    there="throughput of queries that are 0 to 100 % similar to a pattern",
    here="twenty 2- and 3-way joins over three streams",
    differs="no other system takes part; " + LOCAL,
    facts=(Fact("Figure 20d", "AJoin performs better with more similar queries"),),
    measure=_figure_20,
    keys=("similarity",),
    claims=(
        Claim(
            "queries that are alike are faster than ones that are not (100 against 0 %)",
            over("rows/s", {"similarity": 100}, {"similarity": 0}),
            1.1,
        ),
    ),
)

ABLATIONS: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "everything": ({}, {}),
    "no sharing": ({"share": False}, {}),
    "no groups": ({"group": False}, {}),
    "no reordering": ({"reorder": False}, {}),
    "no replication": ({"replicate": False}, {}),
    "no joint plan": ({}, {"joint": "separate"}),
}


def _figure_21(small: bool) -> Rows:
    found: list[Row] = []
    for way in (2, 4) if small else (2, 3, 4):
        some = queries(8 if small else 12, [way], of=4, selections=Selections(0.5))
        for off, (options, settings) in ABLATIONS.items():
            ran = run(
                _workload(some, 1_000 if small else 6_000, of=4),
                options={**QUICK, **options},
                settings=settings,
            )
            found.append(ran.row(ways=way, without=off))
    for row in list(found):
        whole = value(found, "rows/s", ways=row["ways"], without="everything")
        found[found.index(row)] = {**row, "drop %": 100 * (1 - float(row["rows/s"]) / whole)}
    return found


FIGURE_21 = Figure(
    name="ajoin-21",
    paper="AJoin",
    title="Figure 21: what each optimisation is worth",
    there="how much throughput drops if one component of the optimiser is disabled",
    here="eight or twelve 2- to 4-way joins, each optimisation switched off by the option that users have",
    differs="the components are Weft's; results are counted; " + LOCAL,
    facts=(
        Fact(
            "Figure 21",
            "the more streams a query joins, the more join reordering and query pipelining are worth",
        ),
    ),
    measure=_figure_21,
    keys=("ways", "without"),
    claims=(
        Claim(
            "sharing pays for 4-way joins",
            over("rows/s", {"without": "everything"}, {"without": "no sharing"}, ways=4),
            1.1,
        ),
        Claim(
            "probe orders pay for 4-way joins",
            over("rows/s", {"without": "everything"}, {"without": "no reordering"}, ways=4),
            1.0,
            "all streams and attributes are alike, so one order is as good as another",
        ),
    ),
    plots=(("without", "ways", "rows/s"),),
)


def _figure_22(small: bool) -> Rows:
    found: list[Row] = []
    rows = 1_500 if small else 10_000
    for percent in (5, 75) if small else (5, 25, 50, 75):
        asked, _ = make_workload(8 if small else 16, stream_names(3), [2, 3], 100, percent / 100, 7)
        for groups in ("one group", "groups"):
            ran = run(
                _workload(asked, rows, batches=12),
                options={**QUICK, "group": groups == "groups"},
                settings={
                    "adapt": "always" if groups == "groups" else "off",
                    "adaptation": weft.Adaptation(epoch_batches=3, epoch_seconds=0.0),
                },
            )
            seconds = sum(ran.task_seconds[6:])
            found.append(
                {**ran.row(shared=percent, way=groups), "task rows/s": 3 * rows / 2 / max(1e-9, seconds)}
            )
    return found


FIGURE_22 = Figure(
    name="ajoin-22a",
    paper="AJoin",
    title="Figure 22a: the cost of sharing",
    there="throughput if a tuple is of use to 5 to 75 % of the queries, with query groups and without",
    here=(
        "the same; groups are formed from what is measured while the queries run, and the last half"
        " of the batches counts"
    ),
    differs=(
        "AStream is one group for all; rows per second of the tasks, since plans are looked for "
        "between batches; "
    )
    + LOCAL,
    facts=(Fact("Figure 22a", "the less is shared, the more groups gain"),),
    measure=_figure_22,
    keys=("shared", "way"),
    claims=(
        Claim(
            "groups are no slower where little is shared (5 %)",
            over("task rows/s", {"way": "groups"}, {"way": "one group"}, shared=5),
            1.0,
            "tuples that are of no use to a query are dropped before they are sent, with and without groups",
        ),
        Claim(
            "groups gain more where less is shared (5 against 75 %)",
            lambda rows: (
                over("task rows/s", {"way": "groups"}, {"way": "one group"}, shared=5)(rows)
                / over("task rows/s", {"way": "groups"}, {"way": "one group"}, shared=75)(rows)
            ),
            1.0,
            "query-sets of one word cost little, so there is little to gain",
        ),
    ),
    plots=(("way", "shared", "task rows/s"),),
)


def _figure_22b(small: bool) -> Rows:
    found: list[Row] = []
    some = queries(5 if small else 10, [3], of=4, selections=Selections(0.5))
    for batches in (1, 8, 1_000) if small else (1, 2, 4, 8, 1_000):
        ran = run(
            _workload(some, 1_600 if small else 8_000, of=4, batches=16),
            options=QUICK,
            settings={
                "adapt": "always",
                "adaptation": weft.Adaptation(epoch_batches=batches, epoch_seconds=0.0),
            },
        )
        found.append(ran.row(epoch=batches))
    return found


FIGURE_22B = Figure(
    name="ajoin-22b",
    paper="AJoin",
    title="Figure 22b: how often to optimise",
    there="throughput for different latency thresholds, above which AJoin optimises and scales",
    here="throughput for epochs of 1 to 8 batches, at whose end a plan is looked for, and for none",
    differs=(
        "Weft looks for plans at the end of epochs, not when latency is too high; planning is in the time; "
    )
    + LOCAL,
    facts=(Fact("Figure 22b", "3 s is too often, 24 s too rarely; 5 s is used"),),
    measure=_figure_22b,
    keys=("epoch",),
    claims=(
        Claim(
            "looking for a plan after every batch costs more than after every eighth",
            over("rows/s", {"epoch": 8}, {"epoch": 1}),
            1.0,
        ),
    ),
)

FIGURES = (FIGURE_15, FIGURE_17, FIGURE_18, FIGURE_20, FIGURE_21, FIGURE_22, FIGURE_22B)
