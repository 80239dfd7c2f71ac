"""`explain(analyze=True)`: where the time and the memory of queries go, and bills that add up to what was measured."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from typer.testing import CliRunner

import weft
from tests.unit.adapting.snapshots import COLUMNS
from tests.unit.adapting.worlds import World
from weft.errors import ConfigError, StateError
from weft.runtime.observe.analysis import Analysis, analyse, analyse_checkpoint
from weft.service.cli import app

QUERIES = {
    "pair": "SELECT r.a FROM r [RANGE 1 MINUTE], s [RANGE 1 MINUTE] WHERE r.a = s.a AND s.b > 1000",
    "lone": "SELECT t.c FROM t WHERE t.c > 100",
    "kept": "SELECT t.c, u.c AS d FROM t [RANGE 2 SECONDS] LEFT JOIN u [RANGE 2 SECONDS] ON t.c = u.c",
    "near": "SELECT r.a FROM r [RANGE 1 SECOND], s [RANGE 1 SECOND] WHERE r.a < s.a AND r.a + 20 > s.a",
}


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three batches of a chain of four streams."""
    made = World(tmp_path)
    for name in COLUMNS:
        (tmp_path / name).mkdir()
    for _ in range(3):
        made.write(swapped=True)
    return made


def run(world: World, *names: str) -> weft.Session:
    """A session that has run the chain and some more queries."""
    session = world.session(adapt="off")
    for name in names:
        session.query(QUERIES[name], name=name, sink=weft.to_count())
    session.run_available(end=False)
    return session


def check_sums(analysis: Analysis, session: weft.Session) -> None:
    """Nothing is lost, and nothing is charged twice."""
    batches = [metrics for _, metrics in session.batches_after(-1)]
    assert analysis.batches == len(batches)
    assert analysis.seconds >= sum(batch.elapsed for batch in batches)
    assert math.isclose(sum(step.seconds for step in analysis.steps), analysis.seconds)
    assert math.isclose(sum(bill.seconds for bill in analysis.bills), analysis.seconds)
    held = sum(store.bytes for store in batches[-1].stores.values())
    assert math.isclose(sum(bill.bytes for bill in analysis.bills), held)
    results = {bill.query: bill.results for bill in analysis.bills}
    assert sum(results.values()) == sum(batch.results for batch in batches)


@pytest.mark.parametrize("names", [(), ("pair",), ("lone", "kept"), ("near", "pair"), tuple(QUERIES)])
def test_bills_add_up_to_what_was_measured(world: World, names: tuple[str, ...]) -> None:
    """Whatever queries share, and also where rows are found by closing, by a band or without a join."""
    session = run(world, *names)
    check_sums(session.analysis(), session)


def test_steps_say_what_they_did_and_for_whom(world: World) -> None:
    """In SQL, the costliest first."""
    session = run(world, "pair")
    analysis = session.analysis()
    assert list(analysis.steps) == sorted(analysis.steps, key=lambda step: -step.seconds)
    steps = {step.step: step for step in analysis.steps}
    assert steps["read r"].users == ("chain", "pair")
    assert steps["read s"].text.endswith("WHERE s.b > 1000 (pair)")
    assert (steps["read r"].rows_in, steps["store r"].rows_in) == (360, 360)
    assert steps["store r"].bytes == session.batches_after(-1)[-1][1].stores["r"].bytes
    probes = [step for step in analysis.steps if "→" in step.step]
    assert sum(step.rows_in for step in probes) == sum(
        step.probes for _, batch in session.batches_after(-1) for step in batch.steps.values()
    )
    assert any(step.text == "r.a = s.a" and step.users == ("chain", "pair") for step in probes)
    assert all(step.busiest is not None and 0 < step.busiest <= 1 for step in probes)


def test_what_is_shared_costs_each_less(world: World) -> None:
    """Two queries that are the same pay the same, and half of what they share."""
    session = world.session(adapt="off")
    for name in ("one", "two"):
        session.query(QUERIES["pair"], name=name, sink=weft.to_count())
    session.run_available(end=False)
    bills = {bill.query: bill for bill in session.analysis().bills}
    assert math.isclose(bills["one"].seconds, bills["two"].seconds)
    assert math.isclose(bills["one"].bytes, bills["two"].bytes)


def test_a_query_sees_its_own_steps(world: World) -> None:
    """And its bill, as text, as a table and as data."""
    session = run(world, "lone")
    text = session.queries[-1].explain(analyze=True)
    assert "read t" in text
    assert "read r" not in text
    assert "lone" in text
    whole = session.explain(analyze=True)
    assert "Bill" in whole
    assert "chain" in whole
    assert "divided" in whole
    analysis = session.analysis()
    assert "read t" in analysis._repr_html_()
    assert len(repr(analysis)) < 100
    assert json.loads(json.dumps(analysis.to_dict()))["batches"] == 3


def test_before_the_first_batch_there_is_nothing_to_analyse(world: World) -> None:
    """Which is said, with the remedy."""
    with pytest.raises(ConfigError, match="no batch has run yet"):
        world.session().explain(analyze=True)
    with pytest.raises(StateError, match="no query has run yet"):
        analyse_checkpoint(world.root / "checkpoint")


def test_batches_that_measured_no_time_are_divided_all_the_same(world: World) -> None:
    """A graph that has not run costs nothing."""
    graph = world.session().shared_graph
    assert graph is not None
    nothing = analyse(graph, [])
    assert nothing.seconds == sum(bill.seconds for bill in nothing.bills) == 0
    assert str(nothing)


def test_the_command_line_reads_the_checkpoint(world: World) -> None:
    """Of a session that runs, too: nothing is locked, nothing changes."""
    lines = [f"checkpoint: {world.root / 'checkpoint'}", "execution: local", "streams:"]
    for name, columns in COLUMNS.items():
        schema = ", ".join([*(f"{column} long" for column in columns), "ts timestamp"])
        lines += [f"  {name}:", f"    schema: {schema}", "    event_time: ts"]
    lines += ["queries:", "  chain:", f"    sql: {QUERIES['pair']}"]
    file = world.root / "pipeline.yaml"
    file.write_text("\n".join(lines))
    session = world.session()
    session.start()
    session.process_all_available()
    shown = CliRunner().invoke(app, ["explain", str(file), "--analyze"])
    assert shown.exit_code == 0, shown.output
    assert "Bill" in shown.output
    assert "chain" in shown.output
    data = CliRunner().invoke(app, ["explain", str(file), "--analyze", "--json", "--query", "chain"])
    assert [bill["query"] for bill in json.loads(data.output)["bills"]] == ["chain"]
    wrong = CliRunner().invoke(app, ["explain", str(file), "--analyze", "--query", "chian"])
    assert wrong.exit_code != 0
    session.stop()
