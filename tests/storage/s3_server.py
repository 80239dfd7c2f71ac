"""A real S3 interface on loopback: the server of moto, in a process and an environment of its own.

`python -m tests.storage.s3_server fetch` installs it into `.venv/cache/s3`. It is not among the development
dependencies, since it needs an older python-dateutil than the others are pinned with.
"""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["environment", "fetch", "make_bucket", "serving", "why_missing"]

_VERSION = "5.2.5"
_FOLDER = Path(__file__).parents[2] / ".venv" / "cache" / "s3" / f"moto-{_VERSION}"
_SERVE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


def why_missing() -> str | None:
    """Why there is no S3 here; None if there is."""
    found = (_FOLDER / "complete").exists()
    return None if found else "the server of moto is not here: `make s3` fetches it"


def fetch() -> None:
    """Install the server, unless it is there."""
    if why_missing() is None:
        return
    venv.create(_FOLDER / "venv", with_pip=True)
    install = [
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        f"moto[server,s3]=={_VERSION}",
    ]
    subprocess.run([_FOLDER / "venv" / "bin" / "python", *install], check=True)
    (_FOLDER / "complete").touch()


@contextmanager
def serving() -> Iterator[str]:
    """The URL of a server that ends with this block."""
    python = str(_FOLDER / "venv" / "bin" / "python")
    server = subprocess.Popen(
        [python, "-c", _SERVE],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert server.stdout is not None
        yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    finally:
        server.kill()
        server.communicate()


def environment(url: str) -> dict[str, str]:
    """What points the tools of S3 to a server; what asks a cloud's machine for credentials finds nobody."""
    keys = {"AWS_ACCESS_KEY_ID": "weft", "AWS_SECRET_ACCESS_KEY": "not-a-secret", "AWS_REGION": "us-east-1"}
    return {
        **keys,
        "AWS_ENDPOINT_URL": url,
        "AWS_METADATA_ENDPOINT": "http://127.0.0.1:9",
        "AWS_ALLOW_HTTP": "true",
    }


def make_bucket(url: str, name: str) -> None:
    """Make a bucket."""
    with urllib.request.urlopen(urllib.request.Request(f"{url}/{name}", method="PUT"), timeout=60):
        pass


if __name__ == "__main__":
    fetch()
    print(f"ready in {os.path.relpath(_FOLDER)}" if sys.argv[1:] == ["fetch"] else "use: fetch")
