"""The wheel, installed into an empty environment, does what newcomers are told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.newcomer.newcomer import ROOT, Newcomer, Step, StepError, table

pytestmark = pytest.mark.xdist_group("newcomer")  # one installation for all
PATHS = """
import sys
from contextlib import suppress
from weft.service.bench import load_benchmark

with suppress(Exception):
    load_benchmark("pair")
print([path for path in sys.path if path.endswith("weft")])
"""


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Newcomer:
    """Somebody who has installed the wheel; what it needs is borrowed, since there may be no network."""
    folder = tmp_path_factory.mktemp("newcomer")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    somebody = Newcomer(folder / "somebody", borrow=True)
    somebody.install(next((folder / "dist").glob("*.whl")))
    return somebody


def test_what_is_installed_is_the_wheel(newcomer: Newcomer) -> None:
    """Not a checkout that is on the path: else all below would say nothing about the wheel."""
    place = newcomer.run("python -c 'import weft; print(weft.__file__)'").strip()
    assert Path(place).is_relative_to(newcomer.folder)


def test_benchmarks_are_elsewhere_and_nothing_is_shadowed(newcomer: Newcomer) -> None:
    """`weft bench` of a wheel says where they are; the folders of the package are no modules of their own."""
    with pytest.raises(StepError, match="in a checkout"):
        newcomer.run("weft bench pair")
    (newcomer.work / "paths.py").write_text(PATHS, encoding="utf-8")
    assert newcomer.run("python paths.py") == "[]\n"


def test_the_demo_runs_without_java(newcomer: Newcomer) -> None:
    """In this process, and it says so."""
    newcomer.watch_demo()


def test_the_first_project_does_what_it_says(newcomer: Newcomer) -> None:
    """All the commands that `weft init` names work."""
    newcomer.try_first_project()
    assert "example" in newcomer.run("weft examples --help")
    newcomer.run("weft init files --example files && weft explain files/files.yaml")


def test_the_first_page_is_true(newcomer: Newcomer) -> None:
    """The README's program prints what the README says."""
    newcomer.read_page(ROOT / "README.md", "first")


def test_the_tutorial_is_true(newcomer: Newcomer) -> None:
    """Its first steps, in an environment that has nothing but the wheel."""
    for page in sorted((ROOT / "docs" / "tutorial").glob("[12]-*.md")):
        newcomer.read_page(page, f"step_{page.stem[0]}")


def test_the_table_has_a_row_for_each_step() -> None:
    """With what was promised, where something was."""
    text = table([Step("`weft --help`", 0.31, 0.5), Step("`pip install weft`", 61.0)], "On 2 cores:")
    assert "| `weft --help` | 0.3 | 0.5 |" in text
    assert text.endswith("| `pip install weft` | 61.0 |  |\n")
