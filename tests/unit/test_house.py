"""The rules of the house that a reader relies on: one idea in one place, small constructors, words that are explained.

`python -m tests.house.trace_paths` prints the figures that these tests bound.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.measures import House

ROOT = Path(__file__).parents[2]
CODE = ROOT / "src" / "weft"
MODULES = sorted(CODE.rglob("*.py"))
LINES = 450
ARGUMENTS = 8

# What users write by keyword; it becomes one value at once (`weft.session.settings`).
PUBLIC = {"session.session.Session"}

HOUSE = House(CODE)

# Small modules that only a neighbour imports, and why they stand by themselves nevertheless.
ALONE = {
    "weft.runtime.spark.executor_init": "it is sent to executors as a file of its own",
    "weft.testing.grouped": "groups by brute force are an idea beside joins by brute force",
    "weft.service.bench": "it finds the benchmarks of a checkout, which the command line must not load",
}

# Ordinary words, and words of Python, Arrow and Spark, that need no entry in the glossary.
PLAIN = frozenset((Path(__file__).parent / "plain_words.txt").read_text(encoding="utf-8").split())


def name_of(module: Path) -> str:
    """A module's name inside the package."""
    return ".".join(module.relative_to(CODE).with_suffix("").parts)


@pytest.mark.parametrize("module", MODULES, ids=name_of)
def test_a_module_is_one_idea(module: Path) -> None:
    """A module that has grown past so many lines is two."""
    assert len(module.read_text(encoding="utf-8").splitlines()) <= LINES


def test_a_folder_of_more_than_a_dozen_modules_has_rooms() -> None:
    """Who looks for a line finds its room by the names of folders, each of which is read at a glance."""
    assert HOUSE.crowded == {}


def test_a_fragment_is_part_of_the_module_that_needs_it() -> None:
    """Who reads an idea need not open a file for each of its functions."""
    assert HOUSE.fragments.keys() == ALONE.keys(), HOUSE.fragments


def test_a_name_stands_for_one_thing() -> None:
    """Who searches for a public class finds one."""
    assert HOUSE.names_twice == {}


def is_record(node: ast.ClassDef) -> bool:
    """Whether a class is plain, frozen data."""
    marks = " ".join(ast.unparse(mark) for mark in node.decorator_list)
    return "dataclass" in marks and "frozen=True" in marks


def arguments(node: ast.ClassDef) -> int:
    """How many arguments a class is made with, itself aside."""
    for part in node.body:
        if isinstance(part, ast.FunctionDef) and part.name == "__init__":
            return len(part.args.args) + len(part.args.kwonlyargs) - 1
    fields = [part for part in node.body if isinstance(part, ast.AnnAssign)]
    given = [
        one for one in fields if "init=False" not in ast.unparse(one) and "ClassVar" not in ast.unparse(one)
    ]
    return len(given) if "dataclass" in " ".join(map(ast.unparse, node.decorator_list)) else 0


def test_what_is_no_record_is_made_of_few_things() -> None:
    """A constructor with more arguments wants a value."""
    large = {}
    for module in MODULES:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not is_record(node) and arguments(node) > ARGUMENTS:
                large[f"{name_of(module)}.{node.name}"] = arguments(node)
    assert large.keys() <= PUBLIC, large


def words_of_the_data_path() -> Iterator[tuple[str, str]]:
    """The words in the names of modules and public classes that a batch passes through, and where they stand."""
    for room in ("runtime", "ports", "storage", "bucket", "kernels", "plan", "connectors"):
        for module in sorted((CODE / room).rglob("*.py")):
            tree = ast.parse(module.read_text(encoding="utf-8"))
            classes = [node.name for node in tree.body if isinstance(node, ast.ClassDef)]
            for name in (module.stem, *(one for one in classes if not one.startswith("_"))):
                for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name):
                    yield word.lower(), f"{name_of(module)}: {name}"


def test_private_words_are_in_the_glossary() -> None:
    """A word that a stream-processing engineer would not guess is explained; `plain_words.txt` has the others."""
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    explained = {
        word
        for entry in re.findall(r"\*\*(.+?)\*\*", glossary)
        for word in re.findall(r"[a-z]+", entry.lower())
    }
    known = explained | PLAIN
    missing = {
        word: where
        for word, where in words_of_the_data_path()
        if word not in known and word.removesuffix("s") not in known and word.removesuffix("es") not in known
    }
    assert missing == {}


def test_benchmarks_leave_the_engine_as_it_is() -> None:
    """A figure of an engine of which a part was replaced is not a figure of the engine."""
    files = (ROOT / "benchmarks").rglob("*.py")
    replacing = re.compile(r"\bmock\b|monkeypatch|patch\.object")
    assert [file.name for file in files if replacing.search(file.read_text(encoding="utf-8"))] == []
