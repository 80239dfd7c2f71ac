"""A PostgreSQL server of the tests' own, on a socket that only they know."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

PASSWORD = "s3cret of the tests"


class PostgresServer:
    """A server with a folder of its own; `start` and `stop` may alternate, and tables stay.

    A server answers before `start` returns, so another thread's `stop` could come in between and make `start` fail:
    one waits for the other.
    """

    def __init__(self, root: Path, programs: Path, prefix: list[str | Path]) -> None:
        self._root, self._programs, self._prefix = root, programs, prefix
        self._one_at_a_time = threading.Lock()
        (root / "password").write_text(PASSWORD, encoding="utf-8")
        given = ["--auth=scram-sha-256", "--username=weft", f"--pwfile={root}/password", "--encoding=UTF8"]
        self._run("initdb", *given)

    @property
    def dsn(self) -> str:
        """The connection to its database, with the password."""
        return f"host={self._root} user=weft dbname=postgres password='{PASSWORD}'"

    def start(self) -> None:
        """Start it, and return when it answers."""
        options = f"-k {self._root} -c listen_addresses='' -c fsync=off"
        self._run("pg_ctl", "-w", "-l", f"{self._root}/log", "-o", options, "start")

    def stop(self) -> None:
        """Stop it as a crash would: connections are cut off."""
        self._run("pg_ctl", "-w", "-m", "immediate", "stop")

    def _run(self, program: str, *arguments: str) -> None:
        data = ["-D", str(self._root / "data")]
        command = [*self._prefix, self._programs / program, *data, *arguments]
        with self._one_at_a_time:
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    """A new server, which runs; skipped where PostgreSQL is not installed."""
    programs = _programs()
    if programs is None:
        pytest.skip("needs PostgreSQL's server: apt install postgresql")
    root = Path(tempfile.mkdtemp(prefix="weft-pg-"))
    try:
        prefix = _unprivileged(root)
        if prefix is None:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        found = PostgresServer(root, programs, prefix)
        found.start()
        try:
            yield found
        finally:
            found.stop()
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _programs() -> Path | None:
    """The folder with the server's programs."""
    found = shutil.which("initdb")
    folders = [Path(found).parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return folders[-1] if folders else None


def _unprivileged(root: Path) -> list[str | Path] | None:
    """What to put before a command so that it does not run as root; None if that cannot be."""
    if os.getuid() != 0:
        return []
    try:
        user = pwd.getpwnam("postgres")
    except KeyError:
        return None
    os.chown(root, user.pw_uid, user.pw_gid)
    return ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"]
