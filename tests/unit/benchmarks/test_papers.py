"""The papers' experiments: every figure can be measured, and what is said of it follows from what was measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.paper import EVIDENCE, asked, main, write_pages
from benchmarks.papers.all_figures import FIGURES
from benchmarks.papers.figures import (
    RESULTS,
    Claim,
    Figure,
    means,
    over,
    read_results,
    spread,
    spread_text,
    verdicts,
    write,
)
from benchmarks.papers.page import evidence, number
from benchmarks.papers.workloads import QUERIES, Workload, linear, run, tpch, with_windows, written

from weft.errors import ConfigError

pytestmark = pytest.mark.bench

TWICE = Figure(
    name="some-1",
    paper="Some",
    title="Figure 1: twice",
    there="one thing",
    here="another",
    differs="much",
    facts=(),
    measure=lambda _: [{"way": "one", "n": 2.0}, {"way": "other", "n": 1.0}],
    keys=("way",),
    claims=(
        Claim("one is twice the other", over("n", {"way": "one"}, {"way": "other"}), 2.0),
        Claim("one is thrice the other", over("n", {"way": "one"}, {"way": "other"}), 3.0, "it is not"),
    ),
    plots=(("way", "way", "n"),),
)


def result(*runs: list[dict[str, Any]]) -> dict[str, Any]:
    """A result of a figure, as it is written."""
    return {
        "figure": "some-1",
        "command": "weft bench paper some-1",
        "small": False,
        "measured": "2026-01-01T00:00:00+00:00",
        "machine": {"cores": 2, "memory_gb": 24, "python": "3.11"},
        "versions": {"weft": "1", "pyarrow": "1", "numba": "1"},
        "load": 0.0,
        "runs": runs,
    }


TWO = result(
    [{"way": "one", "n": 2.0}, {"way": "other", "n": 1.0}],
    [{"way": "one", "n": 4.0}, {"way": "other", "n": 1.0}],
)


def test_runs_are_averaged_and_their_spread_is_told() -> None:
    """A single run tells nothing of how much to trust it."""
    assert means(TWICE, TWO["runs"])[0] == {"way": "one", "n": 3.0}
    assert spread(TWICE, TWO["runs"]) == {"n": pytest.approx(2 / 3)}
    assert (
        spread_text(TWICE, TWO["runs"]) == "means of 2 runs; a value differs between them by at most: n 67%"
    )
    assert spread_text(TWICE, TWO["runs"][:1]).endswith("nothing")


def test_whether_a_claim_holds_is_computed() -> None:
    """From the means, by the factor that the claim asks for."""
    first, second = verdicts(TWICE, result([{"way": "one", "n": 2.0}, {"way": "other", "n": 1.0}]))
    assert (str(first), first.holds) == ("holds: ×2.00", True)
    assert str(second) == "does not hold: ×2.00, because it is not"


def test_the_page_has_every_figure_and_its_command(tmp_path: Path) -> None:
    """Also those that were not measured, which it says."""
    write(TWO, tmp_path)
    found = read_results(tmp_path)
    page = evidence([TWICE, *FIGURES.values()], found)
    assert "| one | 3 |" in page
    assert "| Some, Figure 1 | one is twice the other | holds: ×3.00 | `weft bench paper some-1` |" in page
    for figure in FIGURES.values():
        assert f"`{figure.command}` (not measured yet)" in page
        assert figure.there in page


def test_the_page_in_the_repository_is_made_from_its_results() -> None:
    """No value on it is written by hand; `weft bench paper --page` writes it anew."""
    page = EVIDENCE.read_text(encoding="utf-8")
    assert page == evidence(list(FIGURES.values()), read_results(RESULTS))


def test_names_are_unique_and_every_figure_says_how_it_differs() -> None:
    """Who compares must know what is compared."""
    for name, figure in FIGURES.items():
        assert figure.name == name
        assert all((figure.there, figure.here, figure.differs, figure.facts, figure.keys))


def test_a_figure_that_is_not_there_is_refused_with_the_nearest() -> None:
    """By its name."""
    with pytest.raises(ConfigError, match=r"there is no figure 'clash-5\.88'"):
        asked(["clash-5.88"])
    assert asked(["all"]) == list(FIGURES.values())


def test_figures_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """Without a name, nothing is measured."""
    assert main([]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in FIGURES)


def test_numbers_are_short() -> None:
    """A table of seventeen digits is not read."""
    assert [number(one) for one in (0.123456, 3.0, 12345.678, "Q2")] == ["0.123", "3", "12,346", "Q2"]


@pytest.mark.parametrize("name", sorted(QUERIES))
@pytest.mark.parametrize("theta", [False, True])
def test_every_strategy_gives_the_results_of_the_definition(name: str, theta: bool) -> None:
    """What is compared must be the same join."""
    text = written(QUERIES[name], tuple(_joins(name)) if theta else ())
    some = Workload({name: text}, tpch(0.0005), 2).only(name)
    counts = {
        strategy: run(some, strategy=strategy, partitions=2, warm=False).results
        for strategy in ("flat", "left_deep", "auto")
    }
    assert len(set(counts.values())) == 1
    assert counts["flat"] > 0


def _joins(name: str) -> list[str]:
    from benchmarks.papers.workloads import JOINS

    return [join for join in JOINS if f"{{{join}}}" in QUERIES[name]]


def test_windows_are_put_behind_every_stream() -> None:
    """In the words of the query."""
    assert with_windows("SELECT a.k FROM a AS a, b AS b WHERE a.k = b.k", "[ROWS 2]") == (
        "SELECT a.k FROM a [ROWS 2] AS a, b [ROWS 2] AS b WHERE a.k = b.k"
    )


def test_linear_joins_have_the_selectivities_of_their_name() -> None:
    """A tuple of MHM has one partner, then ten, then one."""
    tables = linear("MHM", 1_000)
    for (left, right, column), partners in zip(
        (("r1", "r2", "a"), ("r2", "r3", "b"), ("r3", "r4", "c")), (1, 10, 1), strict=True
    ):
        found = tables[left].join(tables[right], column, join_type="inner").num_rows
        assert found == pytest.approx(1_000 * partners, rel=0.15)


@pytest.mark.ci
@pytest.mark.parametrize("name", FIGURES)
def test_figures_are_measured(name: str, tmp_path: Path) -> None:
    """Small, once: rows come out, the claims can be computed, and the pages are written."""
    rows = [dict(row) for row in FIGURES[name].measure(True)]
    assert rows
    one = {**result(json.loads(json.dumps(rows))), "figure": name}
    assert all(verdict.factor > 0 for verdict in verdicts(FIGURES[name], one))
    write(one, tmp_path)
    assert FIGURES[name].title.partition(":")[2].strip() in write_pages(tmp_path).read_text(encoding="utf-8")
