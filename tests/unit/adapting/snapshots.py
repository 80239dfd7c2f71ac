"""Running queries for the tests of plans that follow the data: a plan, a chain whose selectivities swap, snapshots."""

from __future__ import annotations

from weft.adapting.planner import Planner
from weft.adapting.proposal import Snapshot
from weft.logical.query.canonical import canonical
from weft.optimizer.cost import Weights
from weft.optimizer.space import Options
from weft.plan.workload import WorkloadPlan
from weft.runtime.queries.request import QueryRequest
from weft.session.session import Session
from weft.stats.statistics import Statistics, StreamStatistics

COLUMNS = {"r": "a", "s": "ab", "t": "bc", "u": "c"}
RATE, WINDOW = 1_000.0, 5
CHAIN = (
    "SELECT r.a, s.b, t.c FROM "
    + ", ".join(f"{name} [RANGE {WINDOW} SECONDS]" for name in COLUMNS)
    + " WHERE r.a = s.a AND s.b = t.b AND t.c = u.c"
)
OPTIONS = Options(partitions=2, tasks=2, weights=Weights(hop=0.001))


def session() -> Session:
    """The four streams of a chain."""
    found = Session()
    for name, columns in COLUMNS.items():
        schema = ", ".join(f"{column} long" for column in columns)
        found.stream(name, f"{schema}, ts timestamp", event_time="ts")
    return found


def statistics(ends: float = 1.0, middle: float = 1.0) -> Statistics:
    """How many partners a tuple has in the streams next to its own: at both ends of the chain, and in the middle."""
    one = 1 / (WINDOW * RATE)
    known = {"r.a = s.a": ends * one, "s.b = t.b": middle * one, "t.c = u.c": ends * one}
    return Statistics({name: StreamStatistics(rate=RATE) for name in COLUMNS}, known)


EVEN, SWAPPED = statistics(), statistics(20.0, 0.001)


def requests(*texts: str) -> dict[str, QueryRequest]:
    """Queries over the four streams."""
    return {f"q{n}": QueryRequest(canonical(session().parse(text)).query) for n, text in enumerate(texts)}


def planned(known: Statistics, *texts: str) -> WorkloadPlan:
    """The plan of queries, from what is known; of the chain, if there are none."""
    return Planner(OPTIONS).start_plan(requests(*(texts or (CHAIN,))), known).plan


def snapshot(known: Statistics = SWAPPED, running: WorkloadPlan | None = None) -> Snapshot:
    """A chain that runs by the plan for even selectivities, and what is known of it by now."""
    plan = running if running is not None else planned(EVEN)
    return Snapshot(plan, requests(CHAIN), known, OPTIONS, "auto", None, "a test")
