"""Takes the pictures of the page that the documentation shows: `python -m tests.service.page.pictures FOLDER`.

The demo runs on Spark as `weft demo` runs it; a browser adds a query, makes the data drift and looks around, on a
laptop's width, light and dark.
"""

from __future__ import annotations

import re
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

from tests.service.page.conftest import ARGUMENTS, CHROMIUM, DEMO, Served, Visitor
from weft.service.client import Client
from weft.service.demo import PIPELINE

BAD = """
  logins:
    schema: usr long, at timestamp
    event_time: at
    source: {files: json, path: logins}
"""
READS = """
  seen:
    sql: SELECT l.usr, l.at FROM logins AS l
"""
LINES = (
    '{"usr": 7, "at": "2026-03-01T12:00:00Z"}',
    '{"usr": "seven", "at": "2026-03-01T12:00:01Z"}',
    '{"usr": 8, "at": "yesterday"}',
    '{"usr": 9, "at": "2026-03-01T12:00:0',
)
QUERY = """SELECT w.usr, v.vid, v.length, w.duration
FROM videos [RANGE 20 SECONDS] AS v, views [RANGE 5 SECONDS] AS w
WHERE v.vid = w.vid AND v.length > 500 AND w.duration > 100"""
WRONG = QUERY.replace("w.duration > 100", "w.durations > 100")


def main(folder: Path) -> None:
    """Take all pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="weft-pictures-", ignore_cleanup_errors=True) as root:
        service = Served(_pipeline(Path(root)), DEMO).start()
        try:
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
                _look(browser, service, folder)
                browser.close()
        finally:
            service.stop()


def _pipeline(root: Path) -> Path:
    """The demo, with a stream more, some of whose records are bad."""
    text = re.sub(r"\n    sink: .*", "", PIPELINE.read_text(encoding="utf-8"))
    text = text.replace("streams:\n", f"streams:{BAD}", 1).replace("queries:\n", f"queries:{READS}", 1)
    (root / "logins").mkdir()
    (root / "logins" / "monday.json").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    file = root / "p.yaml"
    file.write_text(text, encoding="utf-8")
    return file


def _look(browser: Any, service: Served, folder: Path) -> None:
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    visitor = Visitor(context.new_page())
    page = visitor.open(service.url + "/demo").page
    page.get_by_role("button", name="run loved").click()
    page.get_by_role("button", name="stop loved").wait_for()
    time.sleep(40)  # charts fill
    track = page.locator(".q-slider")
    box = track.bounding_box()
    track.click(position={"x": box["width"] - 12, "y": box["height"] - 12})
    client, until = Client(service.url), time.monotonic() + 60
    while not client.plan_history() and time.monotonic() < until:
        time.sleep(0.5)
    page.get_by_role("button", name="Kill a worker").click()
    time.sleep(6)
    page.screenshot(path=folder / "page-demo.png")
    visitor.open(service.url + "/query")
    visitor.type_query(QUERY, "binge")
    page.get_by_text(re.compile("^shares .* store")).wait_for()
    page.get_by_role("combobox", name="query").click()
    page.get_by_role("option", name="loved").click()
    page.get_by_text(re.compile(r"the newest [\d,]+ of")).wait_for()
    _settle(page)
    page.screenshot(path=folder / "page-query.png")
    visitor.type_query(WRONG, "binge")
    page.get_by_role("alert").filter(has_text="hint:").wait_for()
    page.screenshot(path=folder / "page-error.png", clip={"x": 0, "y": 0, "width": 1280, "height": 480})
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        for view in ("overview", "streams", "plan", "query", "dead-letters", "state", "log", "demo"):
            visitor.open(f"{service.url}/{'' if view == 'overview' else view}")
            _settle(page)
            page.screenshot(path=folder / f"all-{view}-{scheme}.png", full_page=True)
    shutil.copy(folder / "all-overview-dark.png", folder / "page-overview.png")
    shutil.copy(folder / "all-streams-light.png", folder / "page-streams.png")
    shutil.copy(folder / "all-plan-light.png", folder / "page-plan.png")
    shutil.copy(folder / "all-dead-letters-light.png", folder / "page-dead-letters.png")
    context.close()


def _settle(page: Any) -> None:
    page.wait_for_timeout(3000)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
