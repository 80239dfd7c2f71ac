"""A service with its page, as people start it, and a browser that looks at it.

The browser is Debian's Chromium, driven by Playwright; without one of them, these tests are skipped and say so. All
batches run in the service's own process, without Spark.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
pytest.importorskip("nicegui", reason="NiceGUI is not installed")

CHROMIUM = next((found for name in ("chromium", "chromium-browser") if (found := shutil.which(name))), None)
ARGUMENTS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
)
PATIENCE = 60_000  # milliseconds for what the page should show; machines may be busy

SERVE = "from weft.service.cli import main; main()"
DEMO = (
    "import sys; from pathlib import Path; from weft.service.pipeline import load_pipeline;"
    "from weft.service.commands.serve import ServeOptions, serve_pipeline;"
    "serve_pipeline(load_pipeline(Path(sys.argv[2]), idle=True), ServeOptions(port=0, demo=True))"
)


@dataclass
class Served:
    """A service that runs in a process of its own."""

    file: Path
    code: str = SERVE
    options: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict)
    url: str = ""
    process: subprocess.Popen[str] | None = None

    def start(self, port: int = 0, *, ready: bool = True) -> Served:
        """Start it, and wait until its session runs, if it should."""
        command = [sys.executable, "-W", "error", "-c", self.code, "serve", str(self.file)]
        environment = {**os.environ, **self.environment}
        with (self.file.parent / "stderr").open("w") as complaints:
            self.process = subprocess.Popen(
                [*command, "--port", str(port), *self.options],
                stdout=subprocess.PIPE,
                stderr=complaints,
                text=True,
                env=environment,
            )
        assert self.process.stdout is not None
        found = re.search(r"http://\S+", self.process.stdout.readline())
        assert found is not None, self.stderr()
        self.url = found.group(0)
        until = time.monotonic() + 120
        while ready and not self._answers("/api/v1/health/ready"):
            assert self.process.poll() is None, self.stderr()
            assert time.monotonic() < until, "the session does not start"
            time.sleep(0.1)
        return self

    def _answers(self, path: str) -> bool:
        try:
            with urllib.request.urlopen(self.url + path, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def stderr(self) -> str:
        """What it has complained of."""
        return (self.file.parent / "stderr").read_text()

    def stop(self) -> None:
        """Ask it to end, and wait for that."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process is not None and self.process.stdout is not None:
            self.process.stdout.close()


PIPELINE = """
streams:
  views:
    event_time: ts
    source:
      rate: 60
      seed: 1
      columns:
        usr: {uniform: 50}
        vid: {uniform: 20}
        geo: {choice: [US, "<script>window.hacked=1</script>"]}
        ts: timestamps
  videos:
    event_time: ts
    source: {rate: 30, seed: 2, columns: {vid: {uniform: 20}, length: {uniform: 100}, ts: timestamps}}
options: {partitions: 2}
execution: local
checkpoint: ck
queries:
  pairs:
    sql: SELECT v.vid, w.usr FROM videos [RANGE 5 SECONDS] AS v, views [RANGE 5 SECONDS] AS w WHERE v.vid = w.vid
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with two streams and a query, without tokens."""
    file = tmp_path_factory.mktemp("served") / "p.yaml"
    file.write_text(PIPELINE)
    service = Served(file)
    try:
        yield service.start()
    finally:
        service.stop()
    assert service.stderr().strip() in ("", "the session runs")


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """A browser."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium (on Debian: apt-get install chromium)")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Visitor:
    """A page in a browser of its own, with what it asked for and what went wrong in it."""

    page: Any
    expected: tuple[str, ...] = ()  # parts of errors that are no surprise
    requests: list[str] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("websocket", lambda socket: self.requests.append(socket.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)

    def open(self, url: str) -> Visitor:
        """Go to a page and wait until it is alive."""
        self.page.goto(url)
        self.alive()
        return self

    def alive(self) -> None:
        """Wait until the page says how the session is."""
        self.page.get_by_role("status").filter(has_text=re.compile("running|failed|stopped")).first.wait_for()

    def type_query(self, text: str, name: str = "") -> None:
        """Write a query into the editor, in place of what is there."""
        if name:
            self.page.get_by_label("name").fill(name)
        self.page.locator(".cm-content").click()
        self.page.keyboard.press("Control+A")
        self.page.keyboard.press("Delete")
        self.page.keyboard.insert_text(text)


@pytest.fixture
def visitor(chromium: Any, request: pytest.FixtureRequest) -> Iterator[Visitor]:
    """Somebody with a browser; `parametrize("visitor", ["dark"], indirect=True)` likes it dark."""
    scheme = getattr(request, "param", "light")
    context = chromium.new_context(viewport={"width": 1280, "height": 800}, color_scheme=scheme)
    found = Visitor(context.new_page())
    yield found
    context.close()
    assert [one for one in found.errors if not any(part in one for part in found.expected)] == []


@pytest.fixture
def another(chromium: Any) -> Iterator[Visitor]:
    """Somebody else, with another browser."""
    context = chromium.new_context(viewport={"width": 1024, "height": 768})
    yield Visitor(context.new_page())
    context.close()
