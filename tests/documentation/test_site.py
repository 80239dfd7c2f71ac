"""The documentation site: what is made by programs is as they make it, and it builds without a broken link."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import pytest
from docs.drawn import pictures, reference, site

import weft
from weft import errors
from weft.errors import WeftError
from weft.session.settings import Settings

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("name", reference.PAGES)
def test_pages_of_reference_are_those_of_the_code(name: str) -> None:
    """A function, a parameter or an error would be missing; `make docs` writes them anew."""
    assert (DOCS / name).read_text(encoding="utf-8") == reference.PAGES[name]()


@pytest.mark.parametrize("name", pictures.PICTURES)
def test_pictures_are_those_that_are_drawn(name: str) -> None:
    """Somebody would change a picture by hand, and lose it."""
    drawn = pictures.PICTURES[name]().svg()
    assert (pictures.IMAGES / f"{name}.svg").read_text(encoding="utf-8") == drawn


def _documented() -> list[tuple[str, Any, Any]]:
    """What users call: sessions, sources and sinks; each with what documents its parameters."""
    functions = [
        (name, getattr(weft, name)) for group in ("Sources", "Sinks") for name in reference.GROUPS[group]
    ]
    called = [(name, value, value) for name, value in functions if inspect.isfunction(value)]
    methods = ("query", "stream", "table", "function", "preview", "start", "run_available", "reset_watermark")
    called += [
        (f"Session.{name}", getattr(weft.Session, name), getattr(weft.Session, name)) for name in methods
    ]
    values = (weft.Options, weft.Adaptation, weft.Weights, weft.DeadLetterLimit, weft.Limits)
    return [
        *called,
        ("Session", Settings, weft.Session),
        *((value.__name__, value, value) for value in values),
    ]


@pytest.mark.parametrize(
    ("name", "called", "documented"), _documented(), ids=lambda value: value if isinstance(value, str) else ""
)
def test_every_parameter_is_documented(name: str, called: Any, documented: Any) -> None:
    """Who meets a parameter would have to read our source."""
    words = set(re.findall(r"\w+", inspect.getdoc(documented) or ""))
    parameters = [p for p in inspect.signature(called).parameters if p != "self"]
    assert [parameter for parameter in parameters if parameter not in words] == [], name


def test_every_class_of_errors_has_a_code_of_its_own() -> None:
    """Who has a code finds its part of the page."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, WeftError)]
    assert len({kind.code for kind in kinds}) == len(kinds)
    page = reference.errors_page()
    assert all(f"\n## {kind.code}\n" in page for kind in kinds)


def test_messages_are_found_however_they_are_raised() -> None:
    """By a class of errors, with parts that differ; and by the method of a text of SQL."""
    raised = {(error.kind, error.message) for error in reference.raised_errors()}
    assert ("ConfigError", "the session is running already") in raised
    assert ("SqlError", "there is nothing here") in raised
    assert any(kind == "CatalogError" and "…" in message for kind, message in raised)


def test_what_a_page_loads_from_elsewhere_is_noticed(tmp_path: Path) -> None:
    """The site would not work without a network, and tell others who reads it."""
    page = tmp_path / "page.html"
    page.write_text(
        '<a href="https://x.y"></a><script src="https://x.y/z.js"></script><link href="http://f.g/h.css">'
    )
    assert site.loaded_from_elsewhere(page) == ["https://x.y/z.js", "http://f.g/h.css"]


@pytest.mark.ci
def test_the_site_builds(capfd: pytest.CaptureFixture[str]) -> None:
    """A link that leads nowhere, or an asset from elsewhere, fails the build."""
    site.build()
    assert "pages: open site/index.html" in capfd.readouterr().out
