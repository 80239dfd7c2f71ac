"""How much planning queries together saves, and how long it takes (CLASH 7.3.3, Figure 7.8).

Random queries that join relations of equal rates by their attributes' names, duplicates removed, are planned together:
exactly (integer programming, time-limited) and incrementally. Costs are probe costs (6.1): tuples sent per second.
"Orders" is the sum of each query's best probe orders over stored inputs, which the thesis compares with; "alone" is the
sum of each query's best plan by itself, intermediate results included. "Saved" is given in comparison with either.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from itertools import groupby

from benchmarks._harness import conclude, make_console, make_parser, make_table
from benchmarks._natural import natural_queries
from rich.table import Table

from weft.logical.query.canonical import canonical
from weft.optimizer.joint import incremental
from weft.optimizer.joint.exact import solve as ilp
from weft.optimizer.joint.space.single_query_plan import best_alone
from weft.optimizer.joint.space.workspace import PROBES_ONLY, Workspace
from weft.optimizer.space import Options
from weft.plan.workload import WorkloadPlan

# Streams, relations per query, queries drawn, workloads measured, and seconds of the solver.
Row = tuple[int, int, int, int, float]
ROWS: tuple[Row, ...] = (
    *((10, 3, drawn, 5, 10.0) for drawn in (10, 25, 50, 100)),
    *((100, 3, drawn, 5, 10.0) for drawn in (10, 25, 50, 100)),
    *((100, 5, drawn, 1, limit) for drawn, limit in ((10, 3.0), (30, 3.0), (60, 8.0), (100, 11.0))),
)


@dataclass(frozen=True, slots=True)
class Measured:
    """One workload, planned in every way."""

    row: Row
    queries: int
    orders: float
    alone: float
    solution: ilp.Solution
    seconds: float
    incremental: float
    incremental_seconds: float
    added_seconds: float

    @property
    def saved(self) -> float:
        """The part of the cost that is saved compared with the best probe orders of each query."""
        return 1 - self.solution.cost / self.orders

    @property
    def saved_alone(self) -> float:
        """The part of the cost that is saved compared with the best plan of each query by itself."""
        return 1 - self.solution.cost / self.alone

    @property
    def behind(self) -> float:
        """How much dearer the incremental plan is than the exact one, as a part of the cost."""
        return self.incremental / self.solution.cost - 1


def workspace(row: Row, seed: int) -> Workspace:
    """A random workload."""
    streams, span, drawn, _, _ = row
    found, figures = natural_queries(seed, drawn=drawn, relations=streams, span=span)
    queries = {f"q{i:03}": canonical(query).query for i, query in enumerate(found)}
    return Workspace(queries, figures, Options(weights=PROBES_ONLY), replicated=False)


def best_orders(space: Workspace) -> float:
    """The sum of the costs of each query by itself if only inputs are stored."""
    plain = Workspace(space.queries, space.statistics, space.options, replicated=False, intermediate=False)
    return sum(ilp.solve(plain.only([name])).cost for name in plain.queries)


def added(space: Workspace, running: WorkloadPlan) -> float:
    """The seconds it takes to plan the last query when all others run."""
    name = list(space.queries)[-1]
    before, plan = space.without([name]), running.without([name])
    begin = time.perf_counter()
    incremental.add_query(before.adding({name: space.queries[name]}), plan, name)
    return time.perf_counter() - begin


def measure(row: Row, seed: int) -> Measured:
    """Plan one workload in every way."""
    begin = time.perf_counter()
    space = workspace(row, seed)
    solution = ilp.solve(space, time_limit=row[4])
    middle = time.perf_counter()
    quick = incremental.plan_all(space)
    end = time.perf_counter()
    return Measured(
        row,
        queries=len(space.queries),
        orders=best_orders(space),
        alone=sum(space.cost_of(best_alone(space, name)) for name in space.queries),
        solution=solution,
        seconds=middle - begin,
        incremental=space.cost_of(quick),
        incremental_seconds=end - middle,
        added_seconds=added(space, quick),
    )


HEADS = (
    *(
        "streams",
        "relations",
        "drawn",
        "queries",
        "orders",
        "alone",
        "joint",
        "bound",
        "gap",
        "saved",
        "saved alone",
    ),
    *("s", "variables", "incremental", "behind", "s ", "add, ms"),
)


def table(results: list[Measured]) -> Table:
    """One line per row: means over its workloads."""
    found = make_table(
        "Planning together (probe cost: tuples sent per second)",
        HEADS,
        0,
        caption="means over the workloads of a row; gap, times and how far incremental is behind: the worst",
    )
    for row, group in groupby(results, key=lambda one: one.row):
        found.add_row(*map(str, row[:3]), *_line(list(group)))
    return found


def _line(some: list[Measured]) -> Iterator[str]:
    mean = statistics.mean
    yield f"{mean(one.queries for one in some):.0f}"
    yield f"{mean(one.orders for one in some):,.0f}"
    yield f"{mean(one.alone for one in some):,.0f}"
    yield f"{mean(one.solution.cost for one in some):,.0f}"
    yield f"{mean(one.solution.bound for one in some):,.0f}"
    yield f"{max(one.solution.gap for one in some):.2%}"
    yield f"{mean(one.saved for one in some):.1%}"
    yield f"{mean(one.saved_alone for one in some):.1%}"
    yield f"{max(one.seconds for one in some):.2f}"
    yield f"{mean(one.solution.variables for one in some):,.0f}"
    yield f"{mean(one.incremental for one in some):,.0f}"
    yield f"{max(one.behind for one in some):.2%}"
    yield f"{max(one.incremental_seconds for one in some):.2f}"
    yield f"{1000 * max(one.added_seconds for one in some):.0f}"


def verdicts(results: list[Measured]) -> list[tuple[str, bool]]:
    """Each target with the figure that was measured, and whether it was reached."""
    found = []
    crowded = [one.saved for one in results if one.row[:3] == (10, 3, 100)]
    if crowded:
        saved = statistics.mean(crowded)
        found.append((f"100 queries over 10 streams save 50 % ({saved:.1%})", saved >= 0.5))
    for drawn, seconds in ((30, 5), (100, 20)):
        for one in (one for one in results if one.row[:3] == (100, 5, drawn)):
            what = f"{drawn} queries of 5 relations in {seconds} s within 2 %"
            reached = one.seconds < seconds and one.solution.gap <= 0.02
            found.append((f"{what} ({one.seconds:.1f} s, {one.solution.gap:.2%})", reached))
    proven = [one.behind for one in results if one.solution.gap == 0]
    if proven:
        found.append((f"incremental within 5 % of what is proven ({max(proven):.2%})", max(proven) <= 0.05))
    adding = [one.added_seconds for one in results if one.row[2] == 100]
    if adding:
        slowest = max(adding)
        found.append((f"one query more than 100 in 200 ms ({1000 * slowest:.0f} ms)", slowest < 0.2))
    return found


def main(arguments: list[str]) -> int:
    """Print the table and a verdict on each target; 1 if one is missed and ``--strict`` given."""
    parser = make_parser("ilp", __doc__, "strict")
    parser.add_argument("--seed", type=int, default=1, help="of the first workload")
    parser.add_argument("--most", type=int, default=100, help="queries to draw at most")
    options = parser.parse_args(arguments)
    console, begin = make_console(180), time.perf_counter()
    results = []
    for row in (row for row in ROWS if row[2] <= options.most):
        for seed in range(options.seed, options.seed + row[3]):
            results.append(measure(row, seed))
    console.print(table(results))
    console.print(f"{timedelta(seconds=round(time.perf_counter() - begin))} in all")
    return conclude(console, options, verdicts(results))
