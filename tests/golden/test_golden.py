"""Plans as texts with their costs, one folder per strategy; `make golden` writes them anew.

A diff here is a changed plan: review it as one would a changed answer.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.golden.test_adapting import FOLDER, NAMES
from tests.random_cases import SHAPES
from weft.errors import PlanError
from weft.logical.schema import Schema, Stream
from weft.optimizer.single.strategies import EXHAUSTIVE_INPUTS, STRATEGIES
from weft.optimizer.space import Options
from weft.service.pipeline import load_pipeline
from weft.session.session import Session
from weft.stats.statistics import Statistics, StreamStatistics

HERE = Path(__file__).parent
TPCH = HERE.parents[1] / "examples" / "tpch.yaml"


def shaped(shape: str, count: int) -> tuple[Session, str]:
    """A join graph of ``count`` relations whose rates and distinct counts differ, with windows of 10 s."""
    edges = SHAPES[shape](count)
    columns = {i: [f"c{a}{b}" for a, b in edges if i in (a, b)] for i in range(count)}
    session = Session()
    statistics = {}
    for i, names in columns.items():
        schema = Schema.parse(", ".join(f"{name} long" for name in (*names, "id")) + ", ts timestamp")
        session.catalog = session.catalog.add(Stream(f"r{i}", schema, "ts"))
        distinct = {name: 1_000.0 * (1 + k) for k, name in enumerate(names)}
        statistics[f"r{i}"] = StreamStatistics(rate=1_000.0 * (i + 1), distinct=distinct)
    session.statistics = Statistics(statistics, origin="given")
    tables = ", ".join(f"r{i} [RANGE 10 SECONDS]" for i in range(count))
    where = " AND ".join(f"r{a}.c{a}{b} = r{b}.c{a}{b}" for a, b in edges)
    return session, f"SELECT r0.id FROM {tables} WHERE {where}"


OUTER = {
    "outer_left": """SELECT v.id, w.usr FROM views [RANGE 1 MINUTE] AS w
                     LEFT JOIN videos [RANGE 10 MINUTES] AS v ON v.id = w.id AND v.geo = 'US'""",
    "outer_full": "SELECT id, provenance FROM videos FULL JOIN views USING (id) FULL JOIN likes USING (id)",
    "outer_anti": """SELECT v.id FROM videos [RANGE 10 MINUTES] AS v
                     ANTI JOIN views AS w ON v.n < w.n AND w.ts < v.ts + INTERVAL '30' SECOND""",
}


THETA = {
    "theta_band": """SELECT v.id FROM videos [RANGE 10 MINUTES] AS v, views [RANGE 1 MINUTE] AS w
                     WHERE v.n BETWEEN w.n - 10 AND w.n + 10""",
    "theta_grid": """SELECT v.id FROM videos [RANGE 10 MINUTES] AS v, views [ROWS 100000] AS w
                     WHERE v.n BETWEEN w.n - 10 AND w.n + 10 AND v.id BETWEEN w.id - 5 AND w.id + 5""",
    "theta_less": "SELECT v.id FROM videos [ROWS 1000] AS v, views [ROWS 1000] AS w WHERE v.n < w.n",
    "theta_mixed": """SELECT v.id FROM videos [RANGE 10 MINUTES] AS v, views [RANGE 1 MINUTE] AS w,
                      likes [RANGE 1 MINUTE] AS l WHERE v.id = w.id AND w.n BETWEEN l.n - 1 AND l.n + 1""",
}


def streams(text: str) -> tuple[Session, str]:
    """A query over three streams of different rates."""
    session = Session()
    columns = {"videos": "geo string", "views": "usr long", "likes": "usr long"}
    for stream, column in columns.items():
        session.stream(stream, f"id long, n long, {column}, ts timestamp", event_time="ts")
    rates = {"videos": 100.0, "views": 5_000.0, "likes": 1_000.0}
    known = {
        stream: StreamStatistics(rate=rate, distinct={"id": 10_000.0, "n": 50.0})
        for stream, rate in rates.items()
    }
    session.statistics = Statistics(known, origin="given")
    return session, text


OTHERS = OUTER | THETA


HEAVY = {
    "heavy_pair": "SELECT a.x FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k",
    "heavy_chain": """SELECT a.x FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND], c [RANGE 1 SECOND]
                      WHERE a.k = b.k AND b.y = c.y""",
    "heavy_one_side": "SELECT a.x FROM a [RANGE 1 SECOND], c [RANGE 1 SECOND] WHERE a.k = c.k",
}


def heavy(name: str) -> tuple[Session, str]:
    """A query over streams two of which have heavy keys in common; eight partitions, two tasks at once."""
    session = Session(options=Options(partitions=8, tasks=2))
    for stream in "abc":
        session.stream(stream, "k long, y string, x long, ts timestamp", event_time="ts")
    known = StreamStatistics(rate=20_000.0, distinct={"k": 100_000.0, "y": 50_000.0})
    skewed = replace(known, heavy={"k": {42: 0.2, 7: 0.1, 5: 0.01}})
    session.statistics = Statistics({"a": skewed, "b": skewed, "c": known}, origin="given")
    return session, HEAVY[name]


def case(name: str) -> tuple[Session, str]:
    """The session and the text of a golden query."""
    if name in OTHERS:
        return streams(OTHERS[name])
    if name in HEAVY:
        return heavy(name)
    if name.startswith("tpch"):
        pipeline = load_pipeline(TPCH)
        return pipeline.session, pipeline.queries[name.removeprefix("tpch_")]
    shape, count = name.split("_")
    return shaped(shape, int(count))


CASES = ("tpch_q2", "tpch_q3", "tpch_q5", *(f"{shape}_{n}" for shape in SHAPES for n in (3, 4, 5, 6)))


# What closes rows, how values are searched and what is scattered does not depend on the strategy: one of them will do.
PLANS = [*((s, name) for s in STRATEGIES for name in CASES), *(("auto", name) for name in (*OTHERS, *HEAVY))]


@pytest.mark.parametrize(("strategy", "name"), PLANS)
def test_golden_plan(name: str, strategy: str, request: pytest.FixtureRequest) -> None:
    """A plan that changes unnoticed may be a plan that got worse unnoticed."""
    session, text = case(name)
    if strategy == "exhaustive" and len(session.parse(text).inputs) > EXHAUSTIVE_INPUTS:
        with pytest.raises(PlanError, match="takes up to"):
            session.query(text, name=name, strategy=strategy)
        return
    shown = session.query(text, name=name, strategy=strategy).explain()
    file = HERE / strategy / f"{name}.txt"
    if request.config.getoption("--regenerate-golden"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(shown, encoding="utf-8")
    assert shown == file.read_text(encoding="utf-8"), f"{file} differs; `make golden` writes it anew"


def test_no_golden_file_is_left_over() -> None:
    """A golden plan that nothing compares with proves nothing."""
    files = {path.relative_to(HERE).with_suffix("").as_posix() for path in HERE.glob("*/*.txt")}
    changes = {f"{FOLDER.name}/{name}" for name in NAMES}
    assert files <= {f"{strategy}/{name}" for strategy, name in PLANS} | changes
