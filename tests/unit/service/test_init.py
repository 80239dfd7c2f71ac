"""`weft init` and `weft examples`: what a newcomer gets to begin with."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.service.command import weft
from weft.errors import ConfigError
from weft.service.cli import app
from weft.service.commands import init
from weft.service.commands.init import example_titles, init_project
from weft.service.pipeline import load_pipeline


def test_a_first_project_is_written_and_says_what_to_run(tmp_path: Path) -> None:
    """Data of two streams, a pipeline file, the same in Python and a test of it."""
    said = CliRunner().invoke(app, ["init", str(tmp_path / "shop")]).stdout
    names = sorted(str(file.relative_to(tmp_path / "shop")) for file in (tmp_path / "shop").rglob("*.*"))
    assert names == [
        "README.md",
        "in/orders/1.csv",
        "in/payments/1.csv",
        "shop.py",
        "shop.yaml",
        "test_shop.py",
    ]
    assert "weft run shop.yaml --available-now" in said
    assert "python shop.py" in said


def test_the_two_first_programs_are_one(tmp_path: Path) -> None:
    """What differs between the pipeline file and the Python program would puzzle a newcomer."""
    init_project(tmp_path)
    pipeline = load_pipeline(tmp_path / "shop.yaml")
    names: dict[str, object] = {"__name__": "shop"}
    exec((tmp_path / "shop.py").read_text(encoding="utf-8"), names)
    session = names["make_session"]()  # type: ignore[operator]
    assert pipeline.parse("paid") == session.queries[0].query


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    """A second `weft init` in a directory leaves what a user has changed."""
    init_project(tmp_path)
    (tmp_path / "shop.yaml").write_text("mine")
    (tmp_path / "README.md").unlink()
    with pytest.raises(ConfigError, match="is there already"):
        init_project(tmp_path)
    assert (tmp_path / "shop.yaml").read_text() == "mine"
    assert not (tmp_path / "README.md").exists()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="cannot write"):
        init_project(tmp_path / "file")


def test_every_example_can_be_had(tmp_path: Path) -> None:
    """Also one that reads files: they come with it."""
    titles = json.loads(CliRunner().invoke(app, ["examples", "--json"]).stdout)
    assert titles == example_titles()
    assert all(len(title) > 10 for title in titles.values())
    for name in titles:
        assert init_project(tmp_path / name, name)
    assert (tmp_path / "files" / "in" / "orders" / "1.csv").exists()
    with pytest.raises(ConfigError, match="did you mean tpch"):
        init_project(tmp_path / "x", "tpcg")


def test_an_installed_weft_has_its_examples_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`pip` may not install what is outside the package."""
    monkeypatch.setattr(init, "_FOLDERS", (tmp_path / "none",))
    with pytest.raises(ConfigError, match="examples of this installation are gone"):
        example_titles()


def test_help_loads_no_engine() -> None:
    """`weft --help` answers at once, because it loads neither the compiler nor Arrow, Spark or the planner's solver."""
    code = (
        "import sys; from weft.service.cli import app; "
        "print([name for name in ('numba', 'numpy', 'pyarrow', 'pyspark', 'sqlglot', 'highspy', 'pandas') "
        "if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_flags_are_shown_as_flags_and_machines_are_served() -> None:
    """`--json` is there wherever something is shown."""
    for command in (["run"], ["explain"], ["state"], ["query", "list"], ["bench"], ["examples"]):
        shown = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1"}).invoke(app, [*command, "--help"]).stdout
        assert "--json" in shown, command
        assert "--no-json" not in shown
    assert "--install-completion" in weft("--help").stdout
