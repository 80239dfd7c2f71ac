"""`weft demo`: the video platform of AJoin's introduction, live.

Guarantees: it is a pipeline file like any other, run as `weft run` runs one, in a directory of its own, which is
removed afterwards unless it is to be kept.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from weft.errors import ConfigError
from weft.service.demo_kafka import brokers, fed, through_topics
from weft.service.pipeline import load_pipeline
from weft.service.run import RunOptions, run_pipeline

__all__ = ["PIPELINE", "run_demo", "run_kafka_demo"]

PIPELINE = Path(__file__).with_name("demo.yaml")


def run_demo(seconds: float | None, master: str | None, keep: Path | None) -> None:
    """Run the demo for so many seconds, or until asked to stop."""
    with _directory(keep) as root:
        pipeline = load_pipeline(root / PIPELINE.name, master=master)
        run_pipeline(pipeline, RunOptions("weft demo", seconds=seconds, kept=keep is not None))


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
