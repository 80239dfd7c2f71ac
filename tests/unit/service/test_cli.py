"""The command line and pipeline files, as a user meets them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from weft.errors import ConfigError, PipelineError
from weft.plan.graph import PhysicalGraph
from weft.service.bench import find_benchmarks, load_benchmark
from weft.service.pipeline import load_pipeline

EXAMPLES = Path(__file__).parents[3] / "examples"
VIDEO = EXAMPLES / "video.yaml"

GOOD = """
streams:
  a: {schema: "k long, x string, ts timestamp", event_time: ts, lateness: 5 seconds,
      statistics: {rate: 10, distinct: {k: 100}}}
  b: {schema: "k long, ts timestamp"}
queries:
  q: SELECT a.k FROM a [RANGE 1 MINUTE], b [RANGE 1 MINUTE] WHERE a.k = b.k
"""


def weft(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, as installed."""
    code = "from weft.service.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=False
    )


def test_explain_shows_every_query_and_all_strategies() -> None:
    """The README's first command."""
    done = weft("explain", str(VIDEO), "--compare")
    assert done.returncode == 0, done.stderr
    for expected in (
        "Plan of preferences",
        "Plan of trolls",
        "Plan of angry",
        "Strategies",
        "greedy_left_deep",
    ):
        assert expected in done.stdout


def test_explain_as_json_is_a_graph() -> None:
    """Other tools read it."""
    done = weft("explain", str(VIDEO), "--query", "trolls", "--format", "json", "--strategy", "left_deep")
    assert done.returncode == 0, done.stderr
    graph = PhysicalGraph.from_json(done.stdout)
    assert graph.query.aliases == ("c", "v", "w")
    assert json.loads(done.stdout)["is"] == "PhysicalGraph"


def test_explain_as_a_diagram() -> None:
    """People would rather look than read."""
    done = weft("explain", str(VIDEO), "--query", "angry", "--format", "mermaid")
    assert done.stdout.startswith("flowchart LR")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("explain", "nowhere.yaml"), "cannot read nowhere.yaml"),
        (("explain", str(VIDEO), "--query", "trols"), "did you mean trolls?"),
        (("bench", "strategy"), "did you mean strategies?"),
    ],
)
def test_mistakes_get_a_message_and_exit_code_2(arguments: tuple[str, ...], expected: str) -> None:
    """Never a stack trace."""
    done = weft(*arguments)
    assert done.returncode == 2
    assert expected in done.stderr
    assert "Traceback" not in done.stderr


def test_an_error_in_a_query_shows_where(tmp_path: Path) -> None:
    """The SQL with a caret, from the file."""
    file = tmp_path / "p.yaml"
    file.write_text(GOOD.replace("a.k = b.k", "a.kk = b.k"))
    done = weft("explain", str(file))
    assert done.returncode == 2
    assert "^^" in done.stderr
    assert "did you mean k?" in done.stderr


def test_a_good_file_is_read_whole(tmp_path: Path) -> None:
    """Streams, statistics and queries all arrive."""
    file = tmp_path / "p.yaml"
    extra = 'statistics: {horizon: 10 minutes, selectivity: {"b.k = a.k": 0.01}}\n'
    file.write_text(GOOD + extra + "options: {partitions: 2, strategy: flat, weights: {hop: 0}}\n")
    pipeline = load_pipeline(file)
    session = pipeline.session
    assert session.catalog.names == ("a", "b")
    assert session.catalog.stream("a").lateness.total_seconds() == 5
    assert session.statistics.stream("a").rate == 10
    assert session.statistics.selectivities == {"a.k = b.k": 0.01}
    assert session.options.partitions == 2
    assert session.options.weights.hop == 0
    assert session.query(pipeline.queries["q"]).plan.strategy == "flat"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1, 2", "is not YAML"),
        ("- a", "expected names with values"),
        (GOOD.replace("queries:", "querys:"), "did you mean queries?"),
        (GOOD.replace("event_time", "event_tme"), "did you mean event_time?"),
        (GOOD.replace("event_time: ts", "event_time: time"), "no column 'time'"),
        (GOOD.replace("x string", "x strin"), "did you mean string?"),
        (GOOD.replace("rate: 10", "rate: fast"), "'fast' is not a number"),
        (GOOD.replace("rate: 10", "rate: -1"), "cannot be"),
        (GOOD.replace("{k: 100}", "{kk: 100}"), "a has no column 'kk'"),
        (GOOD.replace("5 seconds", "5 bananas"), "cannot read '5 bananas'"),
        (GOOD + "options: {partitions: 0}", "partitions is 0"),
        (GOOD + "options: {partitons: 1}", "did you mean partitions?"),
        (GOOD + "options: {weights: {hopp: 1}}", "did you mean hop?"),
        (GOOD + "statistics: {selectivity: {'a.k = b.z': 0.1}}", "b has no column z"),
        (GOOD + "statistics: {selectivity: {'a.k = b.k': 7}}", "not between 0 and 1"),
        ("streams: {}\nqueries: {q: SELECT 1}", "streams: there are none"),
        ("streams: {a: {schema: k long}}", "queries: there are none"),
        ("streams: {a: {schema: k long}}\nqueries: {q: [1]}", "a query is a text"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(text: str, expected: str, tmp_path: Path) -> None:
    """Before anything starts, with the file, the place and what would be right."""
    file = tmp_path / "p.yaml"
    file.write_text(text)
    with pytest.raises(PipelineError) as caught:
        load_pipeline(file)
    assert expected in str(caught.value)
    assert str(file) in str(caught.value)


def test_every_example_plans() -> None:
    """Examples that do not work teach the wrong thing."""
    for file in sorted(EXAMPLES.glob("*.yaml")):
        pipeline = load_pipeline(file)
        for name, text in pipeline.queries.items():
            assert pipeline.session.query(text, name=name).graph.hops > 0


def test_benchmarks_are_found() -> None:
    """`weft bench` lists what it can run."""
    assert "strategies" in find_benchmarks()
    with pytest.raises(ConfigError, match="no benchmark"):
        load_benchmark("nothing")


def test_the_strategies_benchmark_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Small, to show that it works; its figures are taken by hand."""
    assert load_benchmark("strategies")(["--queries", "3", "--timed", "2", "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert "Cost relative to the best plan" in shown
    assert "10-relation chain" in shown
