"""`weft serve` in a process of its own."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.unit.service.api.running import wait_for
from weft.errors import WeftError
from weft.service.client import Client

__all__ = ["is_ready", "serving"]


@contextmanager
def serving(
    file: Path, *arguments: str, **environment: str
) -> Iterator[tuple[Client, subprocess.Popen[str]]]:
    """A service that runs a pipeline; it is asked to stop at the end, if it was not before."""
    code = "from weft.service.cli import main; main()"
    with (file.parent / "output.txt").open("a+") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", code, "serve", str(file), "--port", "0", *arguments],
            stdout=subprocess.PIPE,
            stderr=output,
            text=True,
            env={**os.environ, **environment},
        )
        assert process.stdout is not None
        try:
            found = re.fullmatch(r"serving on (http://\S+)\n", process.stdout.readline())
            assert found is not None, (file.parent / "output.txt").read_text()
            client = Client(found[1], token=environment.get("WEFT_TOKEN"))
            wait_for(lambda: is_ready(client) or process.poll() is not None)
            yield client, process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
            process.wait(120)
            process.stdout.close()


def is_ready(client: Client) -> bool:
    """Whether the session of a service runs."""
    try:
        return client.health().ready
    except WeftError:
        return False
