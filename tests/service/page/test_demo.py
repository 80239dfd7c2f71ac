"""The demo as somebody with a browser meets it, at a terminal and on Spark: a worker is killed, and nothing is lost."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.service.page.conftest import SERVE, Visitor
from tests.unit.service.api.process import is_ready
from tests.unit.service.api.running import wait_for
from weft.service.client import Client
from weft.service.demo import PIPELINE
from weft.service.demo_controls import AUDIT

ONCE = re.compile(r"✓ of the last [\d,]+ videos, each came out exactly once")


@dataclass(frozen=True)
class Shown:
    """The demo that runs at a terminal: where its page is, what the terminal shows, and what a browser was given."""

    url: str
    screen: str
    opened: Path


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Shown]:
    """`weft demo` at a terminal, with a fifth of the rows, since browsers and tests share the machine with it."""
    folder = tmp_path
    text = re.sub(
        r"rate: (\d+)", lambda rate: f"rate: {int(rate[1]) // 5}", PIPELINE.read_text(encoding="utf-8")
    )
    (folder / PIPELINE.name).write_text(f"{text}\nexecution: resident\n", encoding="utf-8")
    browser = folder / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" >> {folder / "opened"}\n')
    browser.chmod(0o755)
    terminal, inside = os.openpty()
    with (folder / "stderr").open("w") as complaints:
        process = subprocess.Popen(
            [
                sys.executable,
                "-c",
                SERVE,
                "demo",
                "--keep",
                str(folder),
                "--port",
                "0",
                "--master",
                "local[2]",
            ],
            stdout=inside,
            stderr=complaints,
            env={**os.environ, "DISPLAY": ":0", "BROWSER": f"{browser} %s"},
        )
    os.close(inside)
    try:
        screen = ""
        while "in a browser" not in screen:
            screen += os.read(terminal, 1000).decode()
        url = re.findall(r"serving on (http://\S+)", screen)[0]
        wait_for(lambda: is_ready(Client(url)))
        yield Shown(url, screen, folder / "opened")
    finally:
        process.send_signal(signal.SIGTERM)
        ended = process.wait(120)
        os.close(terminal)
    assert ended == 0
    assert "Traceback" not in (folder / "stderr").read_text()


def test_the_demo_at_a_terminal(demo: Shown, visitor: Visitor) -> None:
    """Its page opens, and a worker is killed; in one test, since Spark starts for it."""
    opens(demo)
    visitor.open(demo.url + "/demo")
    survives(demo, visitor)


def opens(demo: Shown) -> None:
    """The address is printed, and a browser opens where there is a screen."""
    assert f"open {demo.url}/demo in a browser; Ctrl-C stops" in demo.screen
    wait_for(demo.opened.exists)
    assert demo.opened.read_text() == f"{demo.url}/demo\n"


def survives(demo: Shown, visitor: Visitor) -> None:
    """The batch under way is run again; every video, also of those batches, comes out exactly once."""
    page, client = visitor.page, Client(demo.url)
    page.get_by_text(ONCE).wait_for()
    page.get_by_role("button", name="Kill a worker").click()
    page.get_by_text(re.compile(r"killed process \d+, one of \d+ workers")).wait_for()
    killed, before = client.batches(limit=1)[-1].number, client.results(AUDIT, after=-1).newest
    page.get_by_text(re.compile("is run again")).first.wait_for()
    wait_for(lambda: client.batches(limit=1)[-1].number >= killed + 5)
    newest, numbers, last = client.results(AUDIT, after=-1).newest, list[int](), 0
    while last < newest:
        found = client.results(AUDIT, after=last, limit=min(1000, newest - last))
        numbers += [row["n"] for row in found.rows]
        last = found.last
    assert last > before
    assert sorted(numbers) == list(range(min(numbers), max(numbers) + 1))
    page.get_by_text(ONCE).wait_for()
    assert client.health().ready
