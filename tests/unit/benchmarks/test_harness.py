"""What all benchmarks rely on: contenders in processes of their own, and verdicts that say what was measured."""

from __future__ import annotations

import argparse
import io
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from benchmarks._harness import ContenderError, conclude, make_parser, run_alone, say
from benchmarks._joins import WINDOW
from benchmarks._race import race_options
from rich.console import Console


@dataclass(frozen=True, slots=True)
class Sum:
    """A task as a value."""

    numbers: list[int]
    launched: float = 0.0


@dataclass(frozen=True, slots=True)
class Untimed:
    """A task that does not ask when it was launched."""

    number: int


def add(task: Sum) -> dict[str, Any]:
    say("adding")
    return {"sum": sum(task.numbers), "pid": os.getpid(), "waited": time.time() - task.launched}


def double(task: Untimed) -> dict[str, Any]:
    return {"twice": 2 * task.number}


def echo(task: dict[str, Any]) -> dict[str, Any]:
    return {"task": task["words"]}


def fail(task: dict[str, Any]) -> dict[str, Any]:
    raise RuntimeError(f"no {task['what']}")


def sleep(_: dict[str, Any]) -> dict[str, Any]:
    time.sleep(60)
    return {}


def test_a_contender_answers_from_a_process_of_its_own(capfd: pytest.CaptureFixture[str]) -> None:
    """With its task as the value that it takes, and the time of its launch."""
    answer = run_alone(add, Sum([1, 2]), 60)
    assert answer["sum"] == 3
    assert answer["pid"] != os.getpid()
    assert 0 < answer["waited"] < 60
    assert "» adding" in capfd.readouterr().err
    assert run_alone(double, Untimed(4), 60) == {"twice": 8}
    assert run_alone(echo, {"words": ["a"]}, 60) == {"task": ["a"]}


def test_a_contender_that_fails_or_hangs_is_told() -> None:
    """With its last words, and without what it has started."""
    with pytest.raises(ContenderError, match="RuntimeError: no data"):
        run_alone(fail, {"what": "data"}, 60)
    with pytest.raises(ContenderError, match="ended with -9"):
        run_alone(sleep, {}, 1.0)


@pytest.mark.parametrize(
    ("judged", "troubles", "strict", "code"),
    [
        ([("fast", True)], [], True, 0),
        ([("fast", False)], [], False, 0),
        ([("fast", False)], [], True, 1),
        ([("fast", None)], [], True, 0),
        ([], ["results differ"], False, 1),
    ],
)
def test_exit_codes_say_what_went_wrong(
    tmp_path: Path, judged: Any, troubles: list[str], strict: bool, code: int
) -> None:
    """What was not measured is neither reached nor missed."""
    out, file = io.StringIO(), tmp_path / "figures.json"
    options = argparse.Namespace(strict=strict, json=str(file))
    assert conclude(Console(file=out), options, judged, troubles, {"rate": 1}) == code
    assert json.loads(file.read_text()) == {"rate": 1}
    words = {True: "reached", False: "missed ", None: "unknown"}
    assert out.getvalue().splitlines() == [
        *troubles,
        *(f"verdict: {words[reached]}  {target}" for target, reached in judged),
    ]


def test_shared_options_have_their_defaults() -> None:
    """Unless a benchmark has others."""
    options = make_parser("pair", "text", "cores timeout json strict", timeout=60.0).parse_args(
        ["--cores", "4"]
    )
    assert vars(options) == {"cores": 4, "timeout": 60.0, "json": None, "strict": False}


def test_a_race_has_as_many_keys_as_the_asked_matches_need(capsys: pytest.CaptureFixture[str]) -> None:
    """`weft bench star3 --matches 20` would measure a join with another number of partners."""
    found = race_options("star3", "", ["--matches", "20", "--rate", "1000"])
    assert found.rate * WINDOW / found.keys == 20
    with pytest.raises(SystemExit):
        race_options("star3", "", ["--matches", "0"])
    assert "--matches must be 1 or more" in capsys.readouterr().err
