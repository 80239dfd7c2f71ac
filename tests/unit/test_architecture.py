"""`docs/architecture.md` names every room of the house, and nothing that is not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CODE = ROOT / "src" / "weft"
TEXT = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")

PACKAGES = sorted(
    f"{file.parent.relative_to(CODE)}/" for file in CODE.rglob("__init__.py") if file.parent != CODE
)
# A file after a room in the same row of a table, as in "| `runtime/loop/` | … | `loop.py` |", is a file of that room.
ROWS = re.findall(r"^\| `([a-z_/]+/)` \|.*\|$", TEXT, re.MULTILINE)
NAMED = sorted(set(re.findall(r"`([a-z_/0-9]+(?:/|\.py|\.md))`", TEXT)))


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_is_named(package: str) -> None:
    """A newcomer finds a line about every room."""
    assert f"`{package}`" in TEXT, f"docs/architecture.md does not say what {package} is"


@pytest.mark.parametrize("name", NAMED)
def test_what_is_named_exists(name: str) -> None:
    """A file or folder that the picture shows is there; a bare file name is that of its row's room."""
    places = [ROOT, CODE, CODE.parent, *(CODE / row for row in ROWS if name.endswith(".py"))]
    assert any((place / name).exists() for place in places), f"{name} is nowhere"


def test_words_in_links_are_in_the_glossary() -> None:
    """A word that a reader follows is explained."""
    anchors = set(re.findall(r'<a id="([^"]+)"></a>', GLOSSARY))
    used = set(re.findall(r"\(glossary\.md#([^)]+)\)", TEXT))
    assert used
    assert used <= anchors, sorted(used - anchors)
