"""A PostgreSQL server of the tests' own, on a socket that only they know."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

PASSWORD = "s3cret of the tests"


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """The connection to a database of a new server, with its password; skipped where PostgreSQL is not installed."""
    binaries = _binaries()
    if binaries is None:
        pytest.skip("needs PostgreSQL's server: apt install postgresql")
    root = Path(tempfile.mkdtemp(prefix="weft-pg-"))
    try:
        prefix = _unprivileged(root)
        if prefix is None:
            pytest.skip("PostgreSQL does not run as root, and there is no user postgres")
        (root / "password").write_text(PASSWORD, encoding="utf-8")
        data = str(root / "data")
        given = ["--auth=scram-sha-256", "--username=weft", f"--pwfile={root}/password", "--encoding=UTF8"]
        subprocess.run(
            [*prefix, binaries / "initdb", "-D", data, *given], check=True, stdout=subprocess.DEVNULL
        )
        options = f"-k {root} -c listen_addresses='' -c fsync=off"
        control = [*prefix, binaries / "pg_ctl", "-D", data, "-w"]
        subprocess.run(
            [*control, "-l", f"{root}/log", "-o", options, "start"], check=True, stdout=subprocess.DEVNULL
        )
        try:
            yield f"host={root} user=weft dbname=postgres password='{PASSWORD}'"
        finally:
            subprocess.run([*control, "-m", "immediate", "stop"], check=True, stdout=subprocess.DEVNULL)
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _binaries() -> Path | None:
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
