"""The command line in a process of its own."""

from __future__ import annotations

import subprocess
import sys


def weft(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command, as installed."""
    code = "from weft.service.cli import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=120, check=False
    )
