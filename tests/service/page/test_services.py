"""The page of services that are not as they should be: locked, failed, gone, or full."""

from __future__ import annotations

import json
import re
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.service.page.conftest import DEMO, PIPELINE, Served, Visitor
from weft.service.demo import PIPELINE as DEMO_FILE

FULL, READ = "a-token-for-everything", "a-token-for-reading"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Served]:
    """A service that is not started yet."""
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE)
    made = Served(file)
    yield made
    made.stop()


def test_a_token_opens_the_page(service: Served, visitor: Visitor, another: Visitor) -> None:
    """It is typed into a form, never in a URL; one that may only read has nothing to press."""
    service.environment = {"WEFT_TOKEN": FULL, "WEFT_READ_TOKEN": READ}
    service.start()
    visitor.expected = ("401",)
    page = visitor.page
    page.goto(service.url + "/query")
    for token in ("something-else-entirely", FULL):
        page.get_by_label("This service demands a token.").fill(token)
        page.get_by_role("button", name="Log in").click()
        if token != FULL:
            page.get_by_role("alert").filter(has_text="This token is not known.").wait_for()
    visitor.alive()
    visitor.open(service.url + "/query")
    page.get_by_role("button", name="Run").wait_for()
    page.get_by_role("button", name="Stop").wait_for()
    other = another.page
    other.goto(service.url)
    other.get_by_label("This service demands a token.").fill(READ)
    other.get_by_role("button", name="Log in").click()
    another.alive()
    another.open(service.url + "/query")
    other.get_by_text("read only").wait_for()
    other.get_by_text(re.compile(r"the newest [\d,]+ of")).wait_for()
    assert not other.get_by_role("button", name="Run").is_visible()
    assert not other.get_by_role("button", name="Stop").is_visible()
    assert not any(token in url for token in (FULL, READ) for url in (*visitor.requests, *another.requests))
    cookies = page.context.cookies()
    login = next(cookie for cookie in cookies if cookie["name"] == "weft_login")
    assert (login["httpOnly"], login["sameSite"]) == (True, "Strict")
    assert FULL not in json.dumps(cookies)


def test_a_session_that_failed_says_why(service: Served, visitor: Visitor) -> None:
    """Whoever opens the page would see figures that stand still, and wonder."""
    text = PIPELINE.replace(
        "  videos:", "  broken: {schema: k long, source: {files: json, path: in}}\n  videos:"
    ).replace("queries:", "dead_letter_limit: 0\nqueries:\n  reads: {sql: SELECT b.k FROM broken AS b}")
    service.file.write_text(text)
    folder = service.file.parent / "in"
    folder.mkdir()
    service.start()
    page = visitor.open(service.url).page
    page.get_by_role("cell", name="reads", exact=True).first.wait_for()
    (folder / "bad.json").write_text('{"k": 1}\n{"k": "<script>window.hacked=1</script>"}\n')
    alert = page.get_by_role("alert").filter(has_text="The session has failed: 1 of ")
    alert.wait_for()
    assert "more than the limit of 0 records" in alert.inner_text()
    assert "hint: " in alert.inner_text()
    visitor.open(service.url + "/dead-letters")
    page.get_by_role("cell", name=re.compile("window.hacked=1")).first.wait_for()
    assert page.evaluate("window.hacked") is None


@pytest.mark.slow
def test_a_service_that_comes_back_is_shown_again(service: Served, visitor: Visitor) -> None:
    """A page would show the last figures for ever."""
    service.start()
    visitor.expected = ("ERR_CONNECTION_REFUSED", "WebSocket", "Failed to load")
    page = visitor.open(service.url).page
    service.stop()
    page.get_by_text(re.compile("Connection lost", re.IGNORECASE)).first.wait_for()
    service.start(int(service.url.rpartition(":")[2]))
    page.get_by_text(re.compile("Connection lost", re.IGNORECASE)).first.wait_for(state="hidden")
    page.get_by_role("status").filter(has_text="running").first.wait_for()
    page.locator(".w-big").first.filter(has_text=re.compile("[1-9]")).wait_for()


@pytest.mark.slow
def test_many_queries_and_a_large_one_are_drawn(service: Served, visitor: Visitor) -> None:
    """Fifty queries, and one that joins a stream with itself eleven times."""
    service.start()
    inputs = ", ".join(f"views [RANGE 1 SECOND] AS w{n}" for n in range(12))
    keys = " AND ".join(f"w0.usr = w{n}.usr" for n in range(1, 12))
    rare = " AND ".join(f"w{n}.vid = {n}" for n in range(12))
    texts = [f"SELECT w0.usr FROM {inputs} WHERE {keys} AND {rare}"]
    pair = (
        "SELECT v.vid FROM videos [RANGE {0} SECONDS] AS v, views [RANGE {0} SECONDS] AS w "
        "WHERE v.vid = w.vid AND w.usr = {0}"
    )
    texts += [pair.format(1 + number) for number in range(50)]
    for number, text in enumerate(texts):
        body = json.dumps({"sql": text, "name": f"query number {number}"}).encode()
        asked = urllib.request.Request(
            f"{service.url}/api/v1/queries", body, {"Content-Type": "application/json"}
        )
        with urllib.request.urlopen(asked, timeout=120) as answer:
            assert answer.status == 201
    page = visitor.open(service.url + "/plan").page
    page.get_by_role("button", name="query number 50", exact=True).wait_for()
    assert page.locator("[data-part]").count() > 100
    began = time.monotonic()
    page.get_by_role("button", name="query number 7", exact=True).click()
    page.locator(".faded").first.wait_for(state="attached")
    assert time.monotonic() - began < 30
    visitor.open(service.url)
    page.get_by_role("cell", name="query number 50", exact=True).wait_for()


def demo_file(folder: Path) -> Path:
    """The demo's pipeline, in one process, with a tenth of the rows."""
    text = re.sub(r"rate: (\d+)0\b", r"rate: \1", DEMO_FILE.read_text(encoding="utf-8"))
    text = re.sub(r"adaptation: .*", "adapt: always\nadaptation: {epoch_batches: 4, epoch_seconds: 0}", text)
    file = folder / "p.yaml"
    file.write_text(text + "\nexecution: local\n")
    return file


@pytest.mark.slow
def test_the_demo_drifts_and_loses_nothing(tmp_path: Path, visitor: Visitor) -> None:
    """Queries are added with a click, the slider makes the plan change, and every video comes out once."""
    service = Served(demo_file(tmp_path), DEMO)
    visitor.expected = ("ERR_CONNECTION_REFUSED", "WebSocket")  # of the end, when the service goes first
    try:
        service.start()
        page = visitor.open(service.url + "/demo").page
        page.get_by_text(re.compile(r"✓ of the last [\d,]+ videos, each came out exactly once")).wait_for()
        page.get_by_role("button", name="run loved").click()
        page.get_by_role("button", name="stop loved").wait_for()
        track = page.locator(".q-slider")
        width = track.bounding_box()["width"]
        track.click(position={"x": width - 12, "y": track.bounding_box()["height"] - 12})
        page.get_by_text(re.compile(r"The plan has followed the data (once|\d+ times)")).wait_for()
        page.get_by_role("button", name="Kill a worker").click()
        page.get_by_text("there is no worker to kill now").wait_for()  # batches run in the service itself
        visitor.open(service.url + "/plan")
        page.get_by_text(re.compile(r"batch \d+: (eager|at once|side by side|filled)")).first.wait_for()
        page.locator("[data-version]").last.click()
        page.get_by_text("the first plan").first.wait_for()
    finally:
        service.stop()
