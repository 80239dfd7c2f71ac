"""What is in the wheel that `make wheel` builds: Weft, its examples and nothing else."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "weft"
DOORS = {"weft", "weft.service.cli", "weft.testing"}  # what users import or start


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this tree, without a build environment of its own, which would have to be fetched."""
    folder = tmp_path_factory.mktemp("dist")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return next(folder.glob("weft-*.whl"))


def test_a_wheel_has_the_package_and_its_examples_alone(wheel: Path) -> None:
    """A user gets no benchmark and no test, and everything that Weft itself needs."""
    names = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    sources = {f"weft/{file.relative_to(PACKAGE).as_posix()}" for file in _shipped(PACKAGE)}
    folder = ROOT / "examples"
    examples = {f"weft/service/examples/{file.relative_to(folder).as_posix()}" for file in _shipped(folder)}
    assert names == sources | examples
    assert not [name for name in sources if re.search(r"(^|/)(test_|tests/|benchmarks/|conftest)", name)]


def _shipped(folder: Path) -> Iterator[Path]:
    for file in folder.rglob("*"):
        if file.is_file() and not {"__pycache__"} & set(file.parts):
            yield file


def test_every_module_serves_users() -> None:
    """What only tests or benchmarks use is theirs: no module is out of reach of what users import or start."""
    modules = {_module(file): file for file in PACKAGE.rglob("*.py")}
    reached, waiting = set[str](), set(DOORS)
    while waiting:
        name = waiting.pop()
        reached.add(name)
        waiting |= (_mentioned(modules[name]) & modules.keys()) - reached
    packages = {name for name, file in modules.items() if file.name == "__init__.py"}
    assert sorted(modules.keys() - reached - packages) == []


def _module(file: Path) -> str:
    parts = file.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _mentioned(file: Path) -> set[str]:
    """The modules that a file imports, or names in a text, as what is imported later does."""
    names = set[str]()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names |= set(re.findall(r"weft(?:\.\w+)+", node.value))
    return names
