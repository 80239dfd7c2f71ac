"""The programs of the tutorial, the concepts and the cookbook, run as they stand there.

Who copies one has something that works, and sees what the page says.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.documentation.programs import blocks_of, run_page

DOCS = Path(__file__).parents[2] / "docs"
TUTORIAL = sorted((DOCS / "tutorial").glob("*.md"))
PAGES = sorted([*(DOCS / "cookbook").glob("*.md"), *(DOCS / "concepts").glob("*.md")])


def _check(page: Path) -> None:
    for block, printed in run_page(page):
        assert printed.rstrip() == block.text.rstrip(), f"{page.name}, line {block.line}"


def test_the_tutorial_runs_from_its_first_step_to_its_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newcomer follows it word for word: later steps go on with the files of earlier ones."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "shop.py").write_text(blocks_of(TUTORIAL[0])[0].text, encoding="utf-8")
    assert len(TUTORIAL) == 6
    for page in TUTORIAL:
        _check(page)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}/{page.stem}")
def test_programs_do_what_the_page_says(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A recipe that does not work is worse than none."""
    monkeypatch.chdir(tmp_path)
    _check(page)


def test_every_recipe_has_a_program_and_its_output() -> None:
    """A recipe without an output is not checked."""
    recipes = [page for page in PAGES if page.parent.name == "cookbook" and page.stem != "index"]
    assert len(recipes) >= 12
    for page in recipes:
        assert {block.is_program for block in blocks_of(page)} == {True, False}, page.name
