"""Functions that pipeline files name: found beside the file, sent with what they need, refused at their place."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.service.command import weft
from tests.unit.service.samples import GOOD
from weft.errors import PipelineError
from weft.runtime.wire.functions import PackedFunction
from weft.service.pipeline import Pipeline, load_pipeline

MODULE = """
import pyarrow.compute as pc
LIMIT = 1
def similar(one, other):
    return pc.less(pc.abs(pc.subtract(one, other)), limit())
def limit():
    return LIMIT
"""
SIMILAR = (
    'functions: {similar: {python: "weft_test_functions:similar", returns: boolean, selectivity: 0.1}}\n'
)
CALLED = GOOD.replace("a.k = b.k", "similar(a.k, b.k)")


@pytest.fixture(autouse=True)
def _forget() -> None:
    """Modules of other tests."""
    sys.modules.pop("weft_test_functions", None)


def load(root: Path, functions: str, module: str = MODULE, pipeline: str = CALLED) -> Pipeline:
    """A pipeline file with a module beside it."""
    (root / "weft_test_functions.py").write_text(module)
    (root / "p.yaml").write_text(pipeline + functions)
    return load_pipeline(root / "p.yaml")


def test_a_function_beside_the_file_is_called_by_its_queries(tmp_path: Path) -> None:
    """A pipeline that needs a package for three lines of code."""
    said = 'statistics: {selectivity: {"similar(a.k, b.k)": 0.2}}\n'
    pipeline = load(tmp_path, SIMILAR + said)
    assert str(tmp_path) not in sys.path
    assert pipeline.session.statistics.likely == {"similar": 0.1}
    assert pipeline.session.statistics.selectivities == {"SIMILAR(a.k, b.k)": 0.2}
    assert pipeline.session.statistics.stream("a").rate == 10
    assert pipeline.plan("q").calls[0].selectivity == 0.2


def test_the_module_goes_with_the_function(tmp_path: Path) -> None:
    """A worker that cannot import what lies beside a file on another machine."""
    packed: PackedFunction = load(tmp_path, SIMILAR).session._registered.functions["similar"]
    call = "f(pa.array([1, 5]), pa.array([1, 1])).to_pylist()"
    code = f"import pickle, pyarrow as pa; f = pickle.loads({packed.data!r}); print({call})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd="/", check=False)
    assert done.stdout.strip() == "[True, False]", done.stderr


@pytest.mark.parametrize(
    ("functions", "message", "hint"),
    [
        ("functions: {f: {returns: long}}", "p.yaml, functions.f: a function needs python", "as in python"),
        (
            "functions: {f: {python: 'weft_test_functions:limit'}}",
            "a function needs returns",
            "as in returns",
        ),
        (
            "functions: {f: {python: similar, returns: long}}",
            "'similar' names no function",
            "my_functions:similar",
        ),
        ("functions: {f: {python: 5, returns: long}}", "functions.f.python: 5 is not a text", "my_functions"),
        (
            "functions: {f: {python: 'weft_no_such:f', returns: long}}",
            "functions.f.python: cannot import weft_no_such: ModuleNotFoundError",
            "my_functions",
        ),
        (
            "functions: {f: {python: 'weft_test_functions:simlar', returns: long}}",
            "functions.f.python: weft_test_functions has no simlar",
            "did you mean similar?",
        ),
        (
            "functions: {similar: {python: 'weft_test_functions:similar', returns: boolen}}",
            "functions.similar: function similar: unknown type 'boolen'",
            "boolean",
        ),
        (
            "functions: {lower: {python: 'weft_test_functions:similar', returns: long}}",
            "functions.lower: a function cannot be called 'lower'",
            "no word or function of SQL",
        ),
        (
            "functions: {f: {python: 'weft_test_functions:LIMIT', returns: long}}",
            "functions.f: function f cannot be 1",
            "Arrow array",
        ),
        ("functions: {f: {pyton: x, returns: long}}", "unknown entry 'pyton'", "did you mean python?"),
    ],
)
def test_what_is_wrong_is_refused_at_its_place(
    tmp_path: Path, functions: str, message: str, hint: str
) -> None:
    """A stack trace from the depths of an import."""
    with pytest.raises(PipelineError) as caught:
        load(tmp_path, functions + "\n")
    assert message in str(caught.value)
    assert hint in str(caught.value)


def test_a_module_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    """A mistake in the user's own file."""
    with pytest.raises(PipelineError, match="cannot import weft_test_functions: SyntaxError"):
        load(tmp_path, SIMILAR, module="def similar(:")


@pytest.mark.parametrize("command", ["explain", "run"])
def test_code_that_is_not_trusted_is_not_imported(command: str, tmp_path: Path) -> None:
    """To look at the plan of somebody's file would run what lies beside it."""
    ran = tmp_path / "ran"
    (tmp_path / "weft_test_functions.py").write_text(f"open({str(ran)!r}, 'w').close()\n{MODULE}")
    (tmp_path / "p.yaml").write_text(CALLED + SIMILAR)
    done = weft(command, "--no-functions", str(tmp_path / "p.yaml"))
    assert done.returncode == 2
    assert (
        "functions.similar: the file names Python code, which --no-functions refuses to import" in done.stderr
    )
    assert "leave out --no-functions if you trust the file" in done.stderr
    assert not ran.exists()
    if command == "explain":
        assert weft("explain", str(tmp_path / "p.yaml")).returncode == 0
        assert ran.exists()


def test_files_without_functions_need_no_trust(tmp_path: Path) -> None:
    """Who is careful could not look at any file."""
    (tmp_path / "p.yaml").write_text(GOOD)
    done = weft("explain", "--no-functions", str(tmp_path / "p.yaml"))
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("command", ["explain", "run"])
def test_the_help_says_that_files_are_code(command: str) -> None:
    """Nobody would expect that to explain a query runs a program."""
    words = " ".join(weft(command, "--help").stdout.replace("│", " ").split())
    assert "imported, which runs their code" in words
    assert "--no-functions" in words
