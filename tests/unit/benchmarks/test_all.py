"""`weft bench all` runs each benchmark, shows it next to what was committed, and names what has become worse."""

from __future__ import annotations

import json
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from benchmarks import all as every
from benchmarks._all_run import BenchmarkTask, run_benchmark
from benchmarks._committed import Result, committed, machine, save, versions, worse
from benchmarks._harness import ContenderError
from benchmarks._sizes import NOT_MEASURED, SIZES

from weft.service.bench import find_benchmarks

DONE = Result(
    "pair",
    "small",
    ("--rows", "10"),
    2.0,
    "│ a table <of> it │",
    {"pair ÷ rocksdb": 40.0, "pair ÷ batch": 0.5},
    (("at most one job", True), ("at least 45 ×", False), ("not looked at", None)),
    (),
    machine(),
    versions(),
)


def test_small_sizes_are_those_of_benchmarks_that_exist() -> None:
    """A benchmark that is renamed would else run for hours at its full size."""
    assert set(SIZES["small"]) <= set(find_benchmarks()) - set(NOT_MEASURED)


def test_what_is_saved_is_compared_at_the_same_size_only(tmp_path: Path) -> None:
    """A smaller run has other ratios, of which none is worse."""
    save(tmp_path, DONE)
    kept = committed(tmp_path, DONE)
    assert kept == DONE
    assert committed(tmp_path, replace(DONE, size="full")) is None
    assert committed(tmp_path, replace(DONE, arguments=("--rows", "20"))) is None
    told = json.loads((tmp_path / "pair.json").read_text(encoding="utf-8"))
    assert told["machine"]["cores"]
    assert told["versions"]["pyarrow"]


def test_a_run_that_failed_is_not_saved(tmp_path: Path) -> None:
    """Later runs would be compared with it."""
    save(tmp_path, replace(DONE, troubles=("results differ",)))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("now", "named"),
    [
        ({"pair ÷ rocksdb": 36.1, "pair ÷ batch": 0.6}, []),
        ({"pair ÷ rocksdb": 35.9, "pair ÷ batch": 0.5}, ["pair ÷ rocksdb"]),
        ({"pair ÷ rocksdb": 40.0}, ["pair ÷ batch"]),
    ],
)
def test_ratios_that_are_a_tenth_worse_or_gone_are_named(now: dict[str, float], named: list[str]) -> None:
    """Those that are a little worse are noise."""
    lines = worse(replace(DONE, ratios=now), DONE)
    assert len(lines) == len(named)
    assert all(what in line for what, line in zip(named, lines, strict=True))
    assert not worse(DONE, None)


class _Tags(HTMLParser):
    """Checks that what is opened is closed, and collects the text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:  # noqa: ARG002
        if tag not in ("meta", "rect"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag != "rect":
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


def run_all(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, ratios: dict[str, float], *more: str) -> int:
    """Run all of one benchmark that gives these ratios."""
    answer = {"output": DONE.output, "ratios": ratios, "judged": DONE.judged, "troubles": []}
    monkeypatch.setattr(every, "run_alone", lambda *_: answer)
    return every.main(["--only", "pair", "--results", str(tmp_path / "kept"), *more])


def test_the_page_and_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first run is kept; a second one that is worse is named, on the page and on the screen."""
    page = tmp_path / "page.html"
    assert run_all(monkeypatch, tmp_path, dict(DONE.ratios), "--save") == 0
    assert run_all(monkeypatch, tmp_path, dict(DONE.ratios), "--report", str(page)) == 0
    assert "No ratio is more than a tenth worse" in page.read_text(encoding="utf-8")
    capsys.readouterr()
    code = run_all(
        monkeypatch, tmp_path, {"pair ÷ rocksdb": 20.0, "pair ÷ batch": 0.6}, "--report", str(page)
    )
    assert code == 1
    assert "pair ÷ rocksdb is 20.00 ×" in capsys.readouterr().out
    tags = _Tags()
    tags.feed(page.read_text(encoding="utf-8"))
    assert not tags.open
    for told in ("pair ÷ rocksdb is 20.00 ×", "-50%", "+20%", "a table <of> it", "missed: at least 45 ×"):
        assert told in tags.text


def test_a_benchmark_that_fails_gives_the_exit_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What does not run measures nothing."""

    def fail(*_: object) -> dict[str, object]:
        raise ContenderError("it ended with 1")

    monkeypatch.setattr(every, "run_alone", fail)
    page = tmp_path / "page.html"
    assert every.main(["--only", "pair", "--report", str(page), "--results", str(tmp_path)]) == 1
    assert "it ended with 1" in page.read_text(encoding="utf-8")


def test_a_real_benchmark_gives_its_ratios() -> None:
    """Those that have a peer tell how they compare with it."""
    small = ["--rows", "500", "--keys", "200", "--batches", "2", "--end-rows", "500"]
    found = run_benchmark(BenchmarkTask("closing", small))
    assert "of inner" in found["output"]
    assert set(found["ratios"]) == {f"inner ÷ {kind}" for kind in ("left", "full", "semi", "anti")}
    assert found["troubles"] == []
