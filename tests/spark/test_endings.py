"""How programs on Spark end: what went well ends without a word, and what did not says what happened."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "ending_program.py"

pytestmark = pytest.mark.ci


def run(folder: Path, execution: str, way: str) -> tuple[int, str, str]:
    """Run the program in a folder; its exit code, its output, and what it said on stderr since it ran."""
    command = [sys.executable, str(PROGRAM), str(folder / "ck"), execution, way]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300, check=False)
    before, ran, after = done.stderr.partition("it runs\n")
    assert ran, before
    return done.returncode, done.stdout, after


@pytest.mark.parametrize(
    ("execution", "way"),
    [
        ("resident", "stop"),
        ("jobs", "end without a stop"),
        pytest.param("jobs", "stop", marks=pytest.mark.slow),
        pytest.param("resident", "end without a stop", marks=pytest.mark.slow),
    ],
)
def test_a_run_that_went_well_ends_without_a_word(tmp_path: Path, execution: str, way: str) -> None:
    """Also where the working directory has modules with the names of libraries."""
    (tmp_path / "types.py").write_text("raise SystemExit('this is not the library')\n")
    (tmp_path / "json.py").write_text("raise SystemExit('this is not the library')\n")
    assert run(tmp_path, execution, way) == (0, "", "")


@pytest.mark.parametrize("execution", ["resident", pytest.param("jobs", marks=pytest.mark.slow)])
def test_ctrl_c_ends_a_program_as_it_ends_others(tmp_path: Path, execution: str) -> None:
    """By a `KeyboardInterrupt`, after which Spark may say which jobs it has cancelled; Python was aborted."""
    code, _, said = run(tmp_path, execution, "interrupt")
    assert code in (130, -2)
    assert "\nKeyboardInterrupt" in said
    assert "Fatal" not in said


@pytest.mark.parametrize("execution", ["jobs", pytest.param("resident", marks=pytest.mark.slow)])
def test_the_death_of_java_is_named(tmp_path: Path, execution: str) -> None:
    """With what to do, instead of a refused connection."""
    code, told, _ = run(tmp_path, execution, "java dies")
    assert (code, "Java, on which Spark runs, has died" in told) == (3, True), told
    assert "start the program again" in told
