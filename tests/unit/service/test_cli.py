"""The command line, as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.service.command import weft
from tests.unit.service.samples import GOOD
from weft.errors import ConfigError
from weft.plan.physical.graph import CODEC, PhysicalGraph
from weft.service.bench import benchmark_titles, find_benchmarks, load_benchmark
from weft.service.cli import app

EXAMPLES = Path(__file__).parents[3] / "examples"
VIDEO = EXAMPLES / "video.yaml"


def test_explain_shows_every_query_and_all_strategies() -> None:
    """The README's first command."""
    done = weft("explain", str(VIDEO), "--compare")
    assert done.returncode == 0, done.stderr
    for expected in (
        "3 queries · 6 stores",  # what they share, when they run
        "Plan of preferences",
        "Plan of trolls",
        "Plan of angry",
        "Strategies",
        "greedy_left_deep",
    ):
        assert expected in done.stdout


def test_explain_says_what_costs_are_in() -> None:
    """A number without a unit tells nothing."""
    done = weft("explain", str(VIDEO), "--query", "angry")
    assert done.stdout.endswith("cost: seconds of work per second of stream; a hop counts 0.1\n")
    assert done.stderr == ""


def test_explain_as_json_has_the_graph() -> None:
    """Other tools read it."""
    done = weft("explain", str(VIDEO), "--query", "trolls", "--format", "json", "--strategy", "left_deep")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["name"], found["strategy"]) == ("trolls", "left_deep")
    graph = CODEC.decode(found["graph"])
    assert isinstance(graph, PhysicalGraph)
    assert graph.query.aliases == ("c", "v", "w")
    assert PhysicalGraph.from_json(json.dumps(found["graph"])) == graph


def test_explain_of_several_queries_is_one_json_array() -> None:
    """Several values one after the other are not JSON."""
    done = weft("explain", str(VIDEO), "--format", "json", "--probe-orders", "greedy")
    assert [found["name"] for found in json.loads(done.stdout)] == ["preferences", "trolls", "angry"]


def test_explain_as_a_diagram() -> None:
    """People would rather look than read."""
    done = weft("explain", str(VIDEO), "--query", "angry", "--format", "mermaid")
    assert done.stdout.startswith("flowchart LR")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("explain", "nowhere.yaml"), "cannot read nowhere.yaml"),
        (("explain", str(VIDEO), "--query", "trols"), "did you mean trolls?"),
        (("explain", str(VIDEO), "--compare", "--format", "json"), "--compare is a text, not json"),
        (("explain", str(VIDEO), "--compare", "--format", "mermaid"), "--compare is a text, not mermaid"),
        (("explain", str(VIDEO), "--probe-orders", "lucky"), "--probe-orders"),
        (("bench", "strategy"), "did you mean strategies?"),
        (("run", "nowhere.yaml"), "cannot read nowhere.yaml"),
        (("run", str(VIDEO)), "add checkpoint: ck, or give --checkpoint DIR"),
        (("run", str(VIDEO), "--checkpoint", "ck"), "streams.comments: a stream without a source"),
        (("run", str(VIDEO), "--for", "soon"), "--for: cannot read 'soon' as a duration"),
        (("run", str(VIDEO), "--once", "--available-now"), "--once is the end of the input"),
        (("demo", "--for", "0s"), "--for: 0s is no time to run"),
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
    assert f"{file}, queries.q: a has no column kk" in done.stderr


def test_an_error_in_the_last_query_leaves_no_half_of_an_answer(tmp_path: Path) -> None:
    """Whoever reads the output of a command that failed would take it for all."""
    file = tmp_path / "p.yaml"
    file.write_text(GOOD + "  bad: SELECT nope FROM a\n")
    done = weft("explain", str(file))
    assert done.returncode == 2
    assert done.stdout == ""
    assert "queries.bad" in done.stderr
    assert weft("explain", str(file), "--query", "q").returncode == 0


def test_statistics_for_nothing_are_noted(tmp_path: Path) -> None:
    """On the standard error, where they do not disturb who reads the plan."""
    file = tmp_path / "p.yaml"
    file.write_text(GOOD + "statistics: {selectivity: {'b.k < a.k': 0.1}}\n")
    done = weft("explain", str(file), "--format", "json")
    assert done.returncode == 0
    assert done.stderr == f"note: {file}, statistics.selectivity: no query uses the predicate b.k < a.k\n"
    assert len(json.loads(done.stdout)) == 1


def test_benchmarks_are_found() -> None:
    """`weft bench` lists what it can run."""
    assert "strategies" in find_benchmarks()
    with pytest.raises(ConfigError, match="no benchmark"):
        load_benchmark("nothing")


def test_an_installed_weft_says_where_the_benchmarks_are(tmp_path: Path) -> None:
    """Nor does it take a folder of that name beside it for them, or let its own modules shadow others."""
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "pair.py").touch()
    with pytest.raises(ConfigError, match="not part of an installed Weft") as error:
        find_benchmarks(tmp_path)
    assert "in a checkout" in str(error.value)


def test_bench_help_lists_the_benchmarks() -> None:
    """With help or without a name, they are what one looks for."""
    listed, helped = weft("bench").stdout, weft("bench", "--help").stdout
    assert [line.split()[0] for line in listed.splitlines()] == list(find_benchmarks())
    assert helped.endswith(listed)
    assert "bench [OPTIONS] [name]" in helped


@pytest.mark.parametrize("name", find_benchmarks())
def test_a_benchmark_has_its_own_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """`weft bench NAME --help` says what it measures and which options it has; nothing is run."""
    result = CliRunner().invoke(app, ["bench", name, "--help"])
    shown = capsys.readouterr().out + result.stdout
    assert result.exit_code == 0
    assert shown.startswith(f"usage: weft bench {name} [-h]")
    assert benchmark_titles()[name].split()[0] in shown


def test_the_strategies_benchmark_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """Small, to show that it works; its figures are taken by hand."""
    assert load_benchmark("strategies")(["--queries", "3", "--timed", "2", "--workers", "1"]) == 0
    shown = capsys.readouterr().out
    assert "Cost relative to the best plan" in shown
    assert "10-relation chain" in shown
    assert "…" not in shown  # nothing is cut off
    assert shown.count("verdict: ") == 5


def test_the_strategies_benchmark_fails_only_when_asked_to(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In CI a missed target is an error, at a desk it is a figure."""
    main = load_benchmark("strategies")
    monkeypatch.setitem(main.__globals__, "TIMED", ((3, None, 1e-9),))
    small = ["--queries", "1", "--timed", "1", "--workers", "1"]
    assert (main(small), main([*small, "--strict"])) == (0, 1)
    assert "verdict: missed   3 relations" in capsys.readouterr().out
