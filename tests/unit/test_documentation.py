"""Documentation that leads somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def _anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub names them, and the anchors that it sets itself."""
    text = page.read_text(encoding="utf-8")
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    named = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    return named | set(re.findall(r'<a id="([^"]+)"></a>', text))


def _broken(page: Path) -> list[str]:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    found = []
    for link in _LINK.findall(prose):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        is_ours = re.match(r"[a-z]+:", link) is None
        if is_ours and (not target.exists() or (anchor and anchor not in _anchors(target))):
            found.append(link)
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files(page: Path) -> None:
    """Pages are moved and renamed; who follows a link should arrive."""
    assert _broken(page) == []


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    """Of every kind: a file, a heading of a page, a heading of the same page."""
    (tmp_path / "other.md").write_text("# A heading, or two\n")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md#a-heading-or-two) [b](https://x.y/z) `[c](none.md)` [d](gone.md) [e](#not-here)\n"
    )
    assert _broken(page) == ["gone.md", "#not-here"]


@pytest.mark.parametrize("page", sorted((ROOT / "docs").glob("*.md")), ids=lambda page: page.name)
def test_a_page_is_linked_from_another(page: Path) -> None:
    """A page that nobody is led to is not read."""
    others = [other for other in PAGES if other != page]
    links = [
        other.parent / link for other in others for link in _LINK.findall(other.read_text(encoding="utf-8"))
    ]
    assert page in {link.resolve() for link in links}
