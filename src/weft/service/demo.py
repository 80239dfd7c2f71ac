"""`weft demo`: the video platform of AJoin's introduction, live.

Guarantees: it is a pipeline file like any other, served as `weft serve` serves one, with its page, or run as `weft run`
runs one, in the terminal; in a directory of its own, which is removed afterwards unless it is to be kept. Where there
is nobody to stop it (no terminal), it runs without a page and ends by itself. Where there is no Java, it runs without
Spark, and says so.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

from weft.errors import ConfigError
from weft.runtime.spark.java import find_java
from weft.service.commands.run import RunOptions, run_pipeline
from weft.service.commands.serve import ServeOptions, serve_pipeline
from weft.service.demo_kafka import brokers, fed, through_topics
from weft.service.pipeline import load_pipeline

__all__ = ["PIPELINE", "run_demo", "run_kafka_demo"]

PIPELINE = Path(__file__).with_name("demo.yaml")


UNATTENDED = 20.0  # seconds that the demo runs where there is no terminal


def run_demo(
    seconds: float | None,
    master: str | None,
    keep: Path | None,
    *,
    terminal: bool = False,
    port: int | None = None,
) -> None:
    """Run the demo for so many seconds, or until asked to stop; with its page, unless in the ``terminal``."""
    attended = sys.stdout.isatty()
    with _directory(keep) as root:
        pipeline = load_pipeline(root / PIPELINE.name, master=master, execution=_execution())
        if not terminal and attended and _can_serve():
            shown = (
                pipeline if keep is not None else replace(pipeline, sinks={})
            )  # the page shows their results
            serve_pipeline(shown, ServeOptions(port=port, demo=True, seconds=seconds, opened=_open))
            return
        limit = UNATTENDED if seconds is None and not attended else seconds
        run_pipeline(pipeline, RunOptions("weft demo", seconds=limit, kept=keep is not None))


def _execution() -> str | None:
    """How batches run: as the file says, or in this process where there is no Java for Spark, which is then said."""
    try:
        find_java()
    except ConfigError as error:
        print(
            f"note: {error.message}. `weft java` gets one; meanwhile the demo runs in this process, without Spark",
            file=sys.stderr,
        )
        return "local"
    return None


def _can_serve() -> bool:
    """Whether what the page needs is installed; if not, that is said."""
    missing = [name for name in ("fastapi", "uvicorn", "nicegui") if find_spec(name) is None]
    if missing:
        print(
            "note: the demo's page needs pip install 'weft[serve]'; here it is in the terminal",
            file=sys.stderr,
        )
    return not missing


def _open(address: str) -> None:
    """Open the page in a browser, if there is a screen to show it on."""
    print(f"open {address}/demo in a browser; Ctrl-C stops", flush=True)
    if sys.platform in ("darwin", "win32") or {"DISPLAY", "WAYLAND_DISPLAY"} & os.environ.keys():
        Thread(target=webbrowser.open, args=[f"{address}/demo"], daemon=True).start()


def run_kafka_demo(seconds: float | None, master: str | None, servers: str | None) -> None:
    """Run the demo through topics of a broker, which is started if none is named."""
    with _directory(None) as root, brokers(servers, root / "broker") as address:
        text, feeds = through_topics(PIPELINE.read_text(encoding="utf-8"), address, root)
        (root / PIPELINE.name).write_text(text, encoding="utf-8")
        pipeline = load_pipeline(root / PIPELINE.name, master=master)
        with fed(address, text, feeds):
            run_pipeline(pipeline, RunOptions("weft demo --kafka", seconds=seconds, kept=False, sure=True))


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    """A directory with the pipeline in it; if one to keep has it already, the demo goes on where it was."""
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="weft-demo-", ignore_cleanup_errors=True) as root:
            yield Path(shutil.copy(PIPELINE, root)).parent
        return
    try:
        keep.mkdir(parents=True, exist_ok=True)
        if not (keep / PIPELINE.name).exists():
            shutil.copy(PIPELINE, keep)
    except OSError as error:
        raise ConfigError(
            f"cannot keep the demo in {keep}: {error.strerror}", hint="name another directory"
        ) from None
    yield keep
