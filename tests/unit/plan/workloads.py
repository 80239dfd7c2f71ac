"""Workloads: queries planned one by one and put together."""

from __future__ import annotations

import random

from tests.equivalence.options import random_options
from tests.random_cases import random_case
from tests.unit.runtime.joins import session
from weft.logical.query.canonical import canonical
from weft.logical.query.query import Query
from weft.optimizer.single.strategies import optimise
from weft.optimizer.space import Options
from weft.plan.join_plan import JoinPlan
from weft.plan.workload import WorkloadPlan, share
from weft.sql.bind import parse_query

CHAIN = """SELECT v.x, c.t FROM v [RANGE 5 SECONDS], w [RANGE 5 SECONDS], c [RANGE 5 SECONDS]
           WHERE v.vid = w.vid AND w.uid = c.uid"""
PAIR = "SELECT v.x FROM v [RANGE 5 SECONDS], w [RANGE 5 SECONDS] WHERE v.vid = w.vid"
OTHER = "SELECT v.x FROM v [RANGE 5 SECONDS], w [RANGE 5 SECONDS] WHERE v.x = w.uid"


def query(sql: str) -> Query:
    """A canonical query over the streams of the runtime's tests."""
    return canonical(session().parse(sql)).query


def plan(sql: str, strategy: str = "flat") -> JoinPlan:
    """The plan of a canonical query."""
    return optimise(query(sql), session().statistics, Options(strategy=strategy, partitions=2))


def shared(strategy: str = "flat", **queries: str) -> WorkloadPlan:
    """The plan of several."""
    return share({name: plan(sql, strategy) for name, sql in queries.items()})


def overlapping(seed: int, most: int = 4) -> WorkloadPlan:
    """The plan of two to four random queries: two that join alike, and others over the same streams."""
    rng = random.Random(seed)
    case = random_case(seed, least=2, most=most)
    alike = f"{case.query} AND {case.query.aliases[0]}.c2 < {rng.randint(1, 9)}"
    texts = [str(case.query), alike]
    for _ in range(rng.randint(0, 2)):
        texts.append(str(random_case(rng.randrange(1000), least=2, most=len(case.query.aliases)).query))
    options = random_options(seed, rng.choice(("auto", "flat", "left_deep")))
    found = {
        f"q{number}": canonical(parse_query(text, case.catalog, cross=True)).query
        for number, text in enumerate(texts)
    }
    return share({name: optimise(one, case.statistics, options) for name, one in found.items()})
