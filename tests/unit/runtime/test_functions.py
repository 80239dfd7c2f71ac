"""Users' functions in graphs: shared, in outer joins, measured, and failing for just the queries that call them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import weft
from tests.local_runner import LocalRunner
from tests.unit.runtime.held_state import HeldState
from tests.unit.runtime.workload import session, tables
from weft.adapting.planner import Planner
from weft.errors import FunctionError, StateError
from weft.kernels.expr.user_functions import Function, calling
from weft.logical.codec import encode
from weft.logical.query.canonical import canonical
from weft.plan.physical.lower import lower_workload
from weft.runtime.hop.admission import admit, route_input
from weft.runtime.hop.interpret import run_hop
from weft.runtime.model.batch_order import BatchOrder
from weft.runtime.observe.batch_statistics import measured
from weft.runtime.observe.metrics import BatchMetrics
from weft.runtime.observe.observations import observed
from weft.runtime.program.executable import ExecutableGraph
from weft.runtime.queries.active import ActiveQueries
from weft.runtime.queries.request import QueryRequest
from weft.runtime.queries.visibility import StateFacts
from weft.runtime.wire.functions import callable_functions, check_registered
from weft.session.relations import pack_function
from weft.session.session import PlannedQuery, Session
from weft.stats.statistics import Statistics
from weft.testing import reference_join

NEAR = "SELECT v.x, w.uid FROM v [RANGE 3 SECONDS], w [RANGE 2 SECONDS] WHERE near(v.vid, w.vid)"


def near(one: Any, other: Any) -> Any:
    """For 3 in 50 pairs, about."""
    return pc.less_equal(pc.abs(pc.subtract(one, other)), 1)


def few(value: Any) -> Any:
    """For 1 in 5 tuples."""
    return pc.less(value, 2)


def bad(_: Any) -> Any:
    """For no tuples at all."""
    raise RuntimeError("bad")


FUNCTIONS: dict[str, Function] = {"near": near, "few": few, "bad": bad}


def opened(**given: Any) -> Session:
    """The streams and functions."""
    made = session(**given)
    for name, function in FUNCTIONS.items():
        made.function(name, function, returns="boolean")
    return made


def run(planned: PlannedQuery, seconds: int) -> LocalRunner:
    """The query over so many seconds, a batch each."""
    runner, rng = LocalRunner(planned.graph, functions=FUNCTIONS), np.random.default_rng(11)
    read = sorted({input_.stream.name for input_ in planned.query.inputs})
    for number in range(seconds):
        data = tables(rng, number, number + 1)
        runner.process({name: data[name] for name in read}, now=number * 1_000_000)
    return runner


def rows_of(table: pa.Table) -> Counter[Any]:
    """A table as a multiset."""
    return Counter(tuple(row.values()) for row in table.to_pylist())


def test_what_functions_do_is_measured_and_shown() -> None:
    """A plan that goes on by guesses, and an explanation that hides it."""
    planned = opened().query(NEAR + " AND few(v.x)", name="q", strategy="flat")
    runner = run(planned, 12)
    found = measured(Statistics(), planned.graph, runner.metrics)
    assert found.selectivities["NEAR(v.vid, w.vid)"] == pytest.approx(148 / 2500, rel=0.05)
    assert found.selectivities["FEW(v.x)"] == pytest.approx(0.2, rel=0.15)
    assert set(found.costs) == {"few", "near"}
    assert all(0 < seconds < 1e-4 for seconds in found.costs.values())
    seen = observed(planned.graph, runner.metrics)
    assert seen.functions["few"].rows == 1_200
    assert seen.selectivities == {
        name: found.selectivities[name] for name in ("FEW(v.x)", "NEAR(v.vid, w.vid)")
    }
    lines = [line.split() for line in planned.explain(seen).splitlines()]
    (line,) = [line for line in lines if line[:2] == ["few", "FEW(v.x)"]]
    assert (line[2], line[4], line[6]) == ("1", "0.5", "1200")
    assert float(line[5]) == pytest.approx(0.2, rel=0.15)
    again = opened(statistics=found).query(NEAR, strategy="flat")
    assert again.calls[0].seconds == found.costs["near"]
    assert again.calls[0].selectivity == found.selectivities["NEAR(v.vid, w.vid)"]


def test_metrics_go_through_json() -> None:
    """A restart that forgets what functions cost."""
    metrics = run(opened().query(NEAR), 1).metrics[0]
    assert metrics.functions
    assert BatchMetrics.from_dict(encode(metrics)) == metrics


OUTER = (
    "SELECT v.x, w.uid FROM v [RANGE 1 SECOND] LEFT JOIN w [RANGE 1 SECOND] ON near(v.vid, w.vid) AND few(v.x)",
    "SELECT v.x, v.vid FROM v [RANGE 1 SECOND] ANTI JOIN w [RANGE 1 SECOND] ON v.vid = w.vid AND few(w.uid)",
    "SELECT v.x, w.uid FROM v [RANGE 1 SECOND] FULL JOIN w [RANGE 1 SECOND] ON v.vid = w.vid WHERE few(v.x)",
    "SELECT few(w.uid) AS f, v.x FROM v [RANGE 1 SECOND] LEFT JOIN w [RANGE 1 SECOND] ON few(v.x) = few(w.vid)",
)


@pytest.mark.parametrize("text", OUTER)
def test_outer_joins_call_functions_as_the_definition_does(text: str) -> None:
    """Rows padded that have a partner, since a function was not asked, or was asked about NULL."""
    planned = opened().query(text)
    runner, rng = LocalRunner(planned.graph, functions=FUNCTIONS), np.random.default_rng(5)
    parts = [tables(rng, number, number + 0.5) for number in range(3)]
    for number, data in enumerate(parts):
        runner.process({name: data[name] for name in "vw"}, now=number * 1_000_000)
    runner.end()
    whole = {name: pa.concat_tables([part[name] for part in parts]) for name in "vw"}
    expected = reference_join(planned.query, whole, FUNCTIONS)
    assert rows_of(runner.results()) == rows_of(expected)
    assert expected.num_rows > 50


def program_of(**texts: str) -> tuple[ExecutableGraph, dict[str, Any]]:
    """The graph of several queries planned together, and the queries."""
    made = opened()
    requests = {name: QueryRequest(canonical(made.parse(text)).query) for name, text in texts.items()}
    decision = Planner(made.options)(ActiveQueries(), requests, Statistics(), StateFacts())
    return ExecutableGraph(decision.graph), {name: one.query for name, one in requests.items()}


def test_queries_with_the_same_call_share_it() -> None:
    """Two queries, and twice the price."""
    texts = {"one": NEAR, "two": NEAR.replace("v.x, ", ""), "three": NEAR + " AND few(v.x)"}
    program, queries = program_of(**texts)
    runner, alone = (
        LocalRunner(graph, functions=FUNCTIONS, partitions=2)
        for graph in (program.graph, program_of(one=NEAR)[0].graph)
    )
    data = tables(np.random.default_rng(3), 0, 1)
    found = runner.process_all(data)
    alone.process_all(data)
    calls = [one.metrics[0].functions["near"].rows for one in (runner, alone)]
    assert calls[0] == calls[1] > 0
    for name, query in queries.items():
        expected = reference_join(query, {i.alias: data[i.stream.name] for i in query.inputs}, FUNCTIONS)
        assert rows_of(found[name]) == rows_of(expected)


PAIR = "SELECT v.x, w.uid FROM v [RANGE 3 SECONDS], w [RANGE 2 SECONDS] WHERE v.vid = w.vid"


def check_failures(texts: dict[str, str]) -> dict[str, Exception]:
    """The queries that fail, and why; another one beside them must not, and must have all of its results."""
    program, queries = program_of(good=PAIR, **texts)
    data = tables(np.random.default_rng(3), 0, 1)
    state, batch_order = HeldState(), BatchOrder(0, program.graph.aliases, 1)
    failed: dict[str, Exception] = {}
    arrived: dict[str, list[pa.RecordBatch]] = {}
    results: list[pa.RecordBatch] = []
    with calling(FUNCTIONS):
        for alias in program.graph.aliases:
            table = data[program.graph.input(alias).stream.name]
            left = route_input(
                program, alias, admit(program, alias, table, now=0, watermark=None).batch, batch_order
            )
            failed |= left.failed
            for parcel in left.sent:
                arrived.setdefault(parcel.edge, []).append(parcel.batch)
        for hop in range(1, len(program.hops)):
            outcome = run_hop(program, hop, arrived, state, batch_order)
            failed |= outcome.failed
            results += outcome.results.get("good", [])
    query = queries["good"]
    expected = reference_join(query, {i.alias: data[i.stream.name] for i in query.inputs})
    assert rows_of(pa.Table.from_batches(results)) == rows_of(expected)
    return failed


def test_a_failing_function_fails_its_queries_and_no_others() -> None:
    """A session that ends, or a neighbour that loses tuples, for the sake of one function."""
    texts = {"filtered": f"{PAIR} AND bad(v.x)", "joined": f"{PAIR} AND bad(v.x + w.uid)"}
    failed = check_failures({**texts, "shown": PAIR.replace("v.x,", "bad(v.x) AS b,")})
    assert set(failed) == {"filtered", "joined", "shown"}
    assert "function bad raised RuntimeError: bad, first for" in str(failed["joined"])


def test_texts_that_are_too_large_fail_their_queries_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that runs out of memory, or for ever, and all queries with it."""
    monkeypatch.setenv("WEFT_TEXT_BYTES_PER_ROW", "20")
    long = "concat(CAST({} AS STRING), 'more than twenty bytes')"
    wide = f"{long.format('v.vid')} = {long.format('w.vid')}"
    texts = {
        "filtered": f"{PAIR} AND length({long.format('v.x')}) > 3",
        "joined": f"{PAIR} AND {long.format('v.x')} < {long.format('w.uid')}",
        "shown": PAIR.replace("v.x,", f"{long.format('v.x')} AS b,"),
        "placed": PAIR.replace("v.vid = w.vid", wide),
    }
    failed = check_failures(texts)
    assert set(failed) == set(texts)
    for error in failed.values():
        assert isinstance(error, FunctionError)
        assert "concat would make a text of" in error.message
        assert "and the limit is 20" in error.message
    padded = PAIR.replace(
        ", w [RANGE 2 SECONDS] WHERE v.vid = w.vid", f" LEFT JOIN w [RANGE 2 SECONDS] ON {wide}"
    )
    with pytest.raises(FunctionError, match="concat would make a text of"):
        run(opened().query(padded), 1)


def test_a_newcomer_whose_filter_fails_on_the_past_fails_alone() -> None:
    """Stored rows that nobody sees any more, because somebody who came later cannot."""
    made = opened()
    pair = "SELECT v.x, w.uid FROM v [RANGE 30 SECONDS], w [RANGE 30 SECONDS] WHERE v.vid = w.vid"
    requests = {"old": QueryRequest(canonical(made.parse(pair)).query)}
    planner = Planner(made.options)
    first = planner(ActiveQueries(), requests, Statistics(), StateFacts())
    first = replace(first, graph=lower_workload(first.plan, tracked=True))
    active_queries = ActiveQueries(requests, first.plan, ExecutableGraph(first.graph), fresh=first.fresh)
    runner, rng = LocalRunner(first.graph, functions=FUNCTIONS), np.random.default_rng(3)
    runner.process_all(tables(rng, 0, 1))
    both = {**requests, "new": QueryRequest(canonical(made.parse(f"{pair} AND bad(v.x)")).query)}
    second = planner(active_queries, both, Statistics(), runner.facts)
    runner.change(second.graph, second.migration)
    with pytest.raises(FunctionError, match="function bad raised RuntimeError: bad"):
        runner.process_all(tables(rng, 1, 2))
    assert runner.results("old").num_rows > 0


def test_the_local_runner_raises() -> None:
    """A test that passes because its query gives nothing."""
    planned = opened().query(NEAR + " AND bad(v.x)")
    with pytest.raises(FunctionError, match=r"function bad raised RuntimeError: bad, first for v\.x = "):
        run(planned, 1)


def test_queries_of_a_checkpoint_need_their_functions() -> None:
    """Batches that run, and fail, before anyone notices."""
    query = opened().parse(NEAR)
    known = {name: pack_function(name, function, "boolean") for name, function in FUNCTIONS.items()}
    check_registered({"q": query}, known)
    with pytest.raises(
        StateError, match="query q of the checkpoint calls a function near, which is not registered"
    ):
        check_registered({"q": query}, {"few": known["few"]})
    other = {"near": pack_function("near", near, "double")}
    with pytest.raises(StateError, match="near that gives boolean, not double"):
        check_registered({"q": query}, other)


def test_what_cannot_be_made_in_a_worker_says_so() -> None:
    """An import error without the name of the function."""
    runner = LocalRunner(opened().query(NEAR).graph, functions=callable_functions({"near": b"no pickle"}))
    data = tables(np.random.default_rng(3), 0, 1)
    with pytest.raises(FunctionError, match="function near cannot be made in a worker: UnpicklingError"):
        runner.process({name: data[name] for name in "vw"})


def test_weft_exports_the_error() -> None:
    """Users who want to catch it."""
    assert issubclass(FunctionError, weft.WeftError)
