"""The command line in processes of their own, which begin where all that it imports is loaded.

Guarantees: each command has a process, an environment and a folder of its own, as if a user had started it; only the
second that Python takes to import Weft is paid once, by a process that imports it and is copied for each command.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

PATIENCE = 120  # seconds for a command

# Loads the command line, and for every line that it is told answers with the exit code of a copy that ran the command.
_SERVER = f"""
import json, os, signal, sys
from weft.service.cli import main
import highspy, pydantic, weft.session.session, weft.optimizer.joint.methods, weft.kernels.warm_up

def run(folder, environment, arguments, out, err):
    signal.alarm({PATIENCE})
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(out, os.O_WRONLY), 1)
    os.dup2(os.open(err, os.O_WRONLY), 2)
    sys.argv = ["-c", *arguments]
    main()

for line in sys.stdin:
    child = os.fork()
    if child == 0:
        run(*json.loads(line))
        sys.exit(0)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@cache
def _server() -> subprocess.Popen[str]:
    """The process that is copied; it ends with this one, when its input does."""
    return subprocess.Popen(
        [sys.executable, "-c", _SERVER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def weft(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command of ``weft``, and wait for its end."""
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as place:
        texts = [Path(place) / name for name in ("out", "err")]
        for text in texts:
            text.touch()
        told = (os.getcwd(), dict(os.environ), arguments, *map(str, texts))
        server.stdin.write(json.dumps(told) + "\n")
        server.stdin.flush()
        code = int(server.stdout.readline())
        return subprocess.CompletedProcess(arguments, code, *(text.read_text() for text in texts))
