"""Plans whose state another plan takes over."""

from __future__ import annotations

from tests.unit.plan.workloads import PAIR, query
from weft.plan.join_plan import Layout
from weft.plan.physical.graph import Member
from weft.plan.physical.lower import lower_workload
from weft.plan.workload import Answer, SharedStore, Walk, WorkloadPlan
from weft.runtime.program.executable import ExecutableGraph

BELOW = PAIR + " AND v.x < {}"


def stored(alias: str, kind: str = "partitioned", column: str = "vid") -> SharedStore:
    """A store of v or w."""
    by = query(PAIR).input(alias).column(column) if kind == "partitioned" else None
    return SharedStore((alias,), Layout(kind, 2, by))


def pairs(v: SharedStore, w: SharedStore, **queries: str) -> WorkloadPlan:
    """Joins of v and w that look into these stores."""
    return WorkloadPlan(
        tuple(Answer(name, query(sql), (Walk("v", (w,)), Walk("w", (v,)))) for name, sql in queries.items())
    )


def program(found: WorkloadPlan, *members: Member) -> ExecutableGraph:
    """What runs, with some members as they are given."""
    return ExecutableGraph(lower_workload(found, members, tracked=True))


OLD = program(pairs(stored("v"), stored("w"), old=BELOW.format(5)))
