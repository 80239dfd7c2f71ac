"""The page, as somebody with a browser meets it: queries come and go, errors are shown, plans are seen to change."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Any

import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from tests.service.page.conftest import Served, Visitor

VIEWS = ("/", "/streams", "/plan", "/query", "/dead-letters", "/state", "/log")
NAMELESS = """[...document.querySelectorAll('button, input, a')]
  .filter(e => e.offsetParent && !(e.innerText || e.getAttribute('aria-label')))
  .filter(e => !(e.labels?.length || e.closest('label')))
  .map(e => e.outerHTML)"""
WINDOWS = "videos [RANGE 3 SECONDS] AS v, views [RANGE 3 SECONDS] AS w"
JOIN = f"SELECT w.usr, v.length, w.geo FROM {WINDOWS} WHERE v.vid = w.vid"


@pytest.mark.parametrize("visitor", ["light", "dark"], indirect=True)
def test_every_view_is_served_from_here_alone(served: Served, visitor: Visitor, request: Any) -> None:
    """A service behind a firewall would have no page, or one that tells others who looks at it."""
    for view in VIEWS:
        visitor.open(served.url + view)
        assert visitor.page.evaluate("document.documentElement.lang") == "en-US"
    policy = visitor.page.request.get(served.url).headers["content-security-policy"]
    assert "default-src 'self'" in policy
    dark = "dark" in request.node.name
    assert visitor.page.evaluate("document.body.classList.contains('body--dark')") == dark
    hosts = {
        re.sub(r"^\w+://([^/:]+).*", r"\1", url) for url in visitor.requests if not url.startswith("data:")
    }
    assert hosts == {"127.0.0.1"}


def test_the_overview_is_alive(served: Served, visitor: Visitor) -> None:
    page = visitor.open(served.url).page
    page.get_by_text("pairs", exact=True).first.wait_for()
    rows = page.locator(".w-big").first
    rows.filter(has_text=re.compile("[1-9]")).wait_for()
    assert page.locator("canvas").count() == 4
    table = page.locator(".w-card", has=page.get_by_text("Streams", exact=True))
    table.get_by_role("cell", name="views", exact=True).wait_for()


def test_light_or_dark_is_kept(served: Served, visitor: Visitor) -> None:
    page = visitor.open(served.url).page
    page.get_by_label("light or dark").click()
    page.locator("body.body--dark").wait_for()
    visitor.open(served.url + "/plan")
    page.locator("body.body--dark").wait_for()
    page.get_by_label("light or dark").click()
    page.locator("body.body--light").wait_for()


@pytest.mark.parametrize("visitor", ["light", "dark"], indirect=True)
def test_a_query_comes_and_goes(served: Served, visitor: Visitor, another: Visitor, request: Any) -> None:
    """It is planned before it runs, gives results, is in the plan, is seen by others, and stops."""
    name = f"mine_{'dark' if 'dark' in request.node.name else 'light'}"
    page = visitor.open(served.url + "/query").page
    visitor.type_query(JOIN, name)
    page.get_by_text(re.compile("^shares .* store")).wait_for()
    page.get_by_role("button", name="Strategies side by side").click()
    page.get_by_text(re.compile(r"^Strategies\s+strategy")).wait_for()
    page.get_by_role("button", name="Run").click()
    page.get_by_text(f"{name} runs from the next batch on").wait_for()
    page.get_by_text(re.compile(r"the newest [\d,]+ of [\d,]+ results")).wait_for()
    page.get_by_role("cell", name="US", exact=True).first.wait_for()
    page.get_by_role("cell", name="<script>window.hacked=1</script>").first.wait_for()
    other = another.open(served.url).page
    other.get_by_role("cell", name=name, exact=True).wait_for()
    visitor.open(served.url + "/plan")
    page.get_by_role("button", name=re.compile(rf"\+ {name}")).wait_for()
    visitor.open(served.url + "/query")
    page.get_by_role("combobox", name="query").click()
    page.get_by_role("option", name=name).click()
    page.get_by_role("button", name="Stop").click()
    page.get_by_text(re.compile("^stopped · ")).wait_for()
    visitor.open(served.url + "/plan")
    page.get_by_role("button", name=re.compile(rf"− {name}")).wait_for()
    assert page.evaluate("window.hacked") is None


def test_an_error_has_a_caret_and_a_hint_while_one_types(served: Served, visitor: Visitor) -> None:
    page = visitor.open(served.url + "/query").page
    visitor.type_query("SELECT v.vid FROM videos [RANGE 3 SECONDS] AS v, views AS w\nWHERE v.vid = w.vdi")
    error = page.get_by_role("alert").filter(has_text="hint:")
    error.wait_for()
    lines = error.inner_text().splitlines()
    assert lines[0] == "SQL: w has no column vdi"
    assert lines[1].index("vdi") == lines[2].index("^^^")
    assert lines[3].startswith("hint: did you mean vid?")
    page.locator(".w-wrong", has_text="vdi").wait_for()
    visitor.type_query("SELECT v.vid FROM videos [RANGE 3 SECONDS] AS v")
    page.get_by_text(re.compile("^shares ")).wait_for()
    assert not error.is_visible()
    assert page.locator(".w-wrong").count() == 0


def test_streams_and_columns_are_completed(served: Served, visitor: Visitor) -> None:
    page = visitor.open(served.url + "/query").page
    page.wait_for_timeout(1000)
    page.locator(".cm-content").click()
    page.keyboard.type("SELECT x.v FROM videos AS x")
    for _ in range(len(" FROM videos AS x")):
        page.keyboard.press("ArrowLeft")
    page.keyboard.type("i")
    offered = page.locator(".cm-tooltip-autocomplete li", has_text="vidlong")  # the column, with its type
    offered.wait_for()
    page.wait_for_timeout(400)  # the editor takes no choice of a list that has just come up
    offered.click()
    page.locator(".cm-content", has_text="SELECT x.vid FROM").wait_for()
    page.keyboard.press("Control+End")
    page.keyboard.type(", vie")
    page.locator(".cm-tooltip-autocomplete", has_text="views").wait_for()


def test_a_step_is_predicted_and_observed(served: Served, visitor: Visitor) -> None:
    page = visitor.open(served.url + "/plan").page
    page.locator('[data-part^="step:"]').first.click()
    card = page.locator(".w-card", has=page.get_by_role("columnheader", name="predicted"))
    card.get_by_text("probes").wait_for()
    row = card.get_by_role("row").filter(has_text="tuples in")
    assert re.search(r"tuples in/s\s+[\d.]+\w?\s+[\d.]+", row.first.inner_text())
    page.locator('[data-part^="store:"]').first.press("Enter")
    card.get_by_text("Store ").wait_for()
    page.get_by_role("combobox", name="probe trees of").click()
    page.get_by_role("option", name="pairs").click()
    page.locator('[data-part="input:w"]').wait_for()  # under its author's names


def test_results_can_be_downloaded(served: Served, visitor: Visitor, tmp_path: Path) -> None:
    page = visitor.open(served.url + "/query").page
    page.get_by_text(re.compile(r"the newest [\d,]+ of")).wait_for()
    for kind in ("CSV", "Parquet"):
        with page.expect_download() as waiting:
            page.get_by_role("button", name=kind).click()
        waiting.value.save_as(tmp_path / kind)
        assert waiting.value.suggested_filename == f"pairs.{kind.lower()}"
    csv = pa_csv.read_csv(io.BytesIO((tmp_path / "CSV").read_bytes()))
    parquet = pq.read_table(tmp_path / "Parquet")
    assert csv.column_names == parquet.column_names == ["vid", "usr"]
    older, first = csv.to_pylist(), parquet.to_pylist()[:50]  # some of the oldest may have gone meanwhile
    assert any(older[place : place + 50] == first for place in range(len(older)))


def test_names_are_never_markup(served: Served, visitor: Visitor) -> None:
    """A name could run a script in the browser of everybody who looks."""
    page = visitor.open(served.url + "/query").page
    name = "<img src=x onerror=window.hacked=2>\"'&"
    visitor.type_query('SELECT w.usr AS `<b onclick="window.hacked=3">x</b>` FROM views AS w', name)
    page.get_by_role("button", name="Run").click()
    page.get_by_text("runs from the next batch on").wait_for()
    page.get_by_role("columnheader", name='<b onclick="window.hacked=3">x</b>').wait_for()
    for view in VIEWS:
        visitor.open(served.url + view)
        page.wait_for_timeout(1500)
        assert page.evaluate("window.hacked") is None
        assert page.locator("img[src=x]").count() == 0
    visitor.open(served.url + "/plan")
    page.get_by_role("button", name=name, exact=True).wait_for()


def test_the_catalogue_leads_to_a_query(served: Served, visitor: Visitor) -> None:
    """Streams with their columns, some rows on demand, and a text to begin with; a link holds the text."""
    page = visitor.open(served.url + "/streams").page
    card = page.locator(".w-card", has=page.get_by_role("heading", name="videos", exact=True))
    card.get_by_role("cell", name="length", exact=True).wait_for()
    card.get_by_role("button", name="show some rows of videos").click()
    card.get_by_text(re.compile(r"the newest \d+ rows")).wait_for()
    card.get_by_role("link", name="Write a query over it").click()
    page.get_by_text(re.compile("^(shares|adds) .* store")).first.wait_for()
    page.get_by_role("button", name="Copy a link to it").click()
    page.wait_for_url(re.compile(r"/query\?sql=SELECT"))
    address = page.url
    visitor.open(address)
    page.locator(".cm-content", has_text="s.length").wait_for()


def test_columns_are_offered_before_a_stream_is_named(served: Served, visitor: Visitor) -> None:
    """One begins with SELECT, and does not know yet from where."""
    page = visitor.open(served.url + "/query").page
    page.locator(".cm-content").click()
    page.keyboard.type("SELECT leng")
    offered = page.locator(".cm-tooltip-autocomplete li", has_text="length")
    offered.first.wait_for()
    assert "videos" in (offered.first.text_content() or "")


def test_functions_are_completed(served: Served, visitor: Visitor) -> None:
    """Nobody remembers the names of two hundred functions."""
    page = visitor.open(served.url + "/query").page
    page.locator(".cm-content").click()
    page.keyboard.type("SELECT levensh")
    page.locator(".cm-tooltip-autocomplete li", has_text="levenshtein").first.wait_for()


def test_who_does_not_see_finds_the_way(served: Served, visitor: Visitor) -> None:
    """One heading of the first rank, others below; landmarks; every button and field has a name; keys reach all."""
    for view in VIEWS:
        page = visitor.open(served.url + view).page
        page.locator("#content").wait_for()
        assert page.locator("h1").count() == 1, view
        assert page.locator("h2").count() >= 1, view
        assert page.get_by_role("navigation", name="views").count() == 1
        nameless = page.evaluate(NAMELESS)
        assert not nameless, (view, nameless)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.innerText") == "Skip to the content"


def test_every_view_fits_a_phone(served: Served, visitor: Visitor) -> None:
    """Nothing is wider than the screen, and tables are cards."""
    page = visitor.page
    page.set_viewport_size({"width": 390, "height": 844})
    for view in VIEWS:
        visitor.open(served.url + view)
        page.locator("#content").wait_for()
        page.wait_for_timeout(1500)
        assert page.evaluate("document.documentElement.scrollWidth") <= 390, view
    visitor.open(served.url)
    page.locator(".q-table__grid-item").first.wait_for()
