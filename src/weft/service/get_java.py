"""`weft java`: a Java for Spark where there is none.

Guarantees: nothing is done where Spark finds a Java that fits, nor where JAVA_HOME names one that does not, since
Spark would go on taking that. Else the first of these that works: one that is installed where Spark does not look, the
system's package if we are root on Debian, and a download into this virtual environment. What is got has run once
before it counts. If nothing works, the error says what was tried and what to do.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from weft.errors import ConfigError
from weft.runtime.spark.java import GET_JAVA, OLDEST, Java, find_java, look_at, own_java

__all__ = ["get_java"]

Say = Callable[[str], None]

# Where a Java may be that is not on PATH; Homebrew leaves it to users to put it there.
_PLACES = ("/usr/lib/jvm/*", "/opt/homebrew/opt/openjdk@*", "/usr/local/opt/openjdk@*")
# Newer Debians and Ubuntus have only the second.
_PACKAGES = (f"openjdk-{OLDEST}-jre-headless", "openjdk-21-jre-headless")
_INSTALL_JDK = "install-jdk==1.1.0"
# In a process of its own: it has no time limit, and downloads to the directory for temporary files, under a plain name.
_DOWNLOAD = """
import socket, sys
socket.setdefaulttimeout(60)
import jdk
jdk.install(sys.argv[1], jre=True, path=sys.argv[2])
"""


class _FailedError(Exception):
    """One way to get a Java did not work; the text says why."""


def get_java(say: Say) -> Java:
    """The Java that Spark will take, got first if need be; ``say`` is told what is done."""
    try:
        return find_java()
    except ConfigError as error:
        if os.environ.get("JAVA_HOME"):
            raise
        missing = error.message
    tried = []
    for way in (_link_another, _install_package, _download):
        try:
            way(say)
            return find_java()
        except _FailedError as error:
            tried.append(str(error))
        except ConfigError as error:  # it was installed, and Spark would still take another
            tried.append(error.message)
        except OSError as error:  # the environment is not ours to write to
            tried.append(f"{error.filename}: {error.strerror}")
    raise ConfigError("\n  ".join([missing, *tried]), hint=GET_JAVA)


def _link_another(_say: Say) -> None:
    """Link the environment's own Java to the oldest that fits of those in the usual places."""
    found = (look_at(home / "bin" / "java") for home in _homes(_PLACES))
    fitting = [(java.version or 0, java.home) for java in found if java is not None and java.fits]
    if not fitting:
        raise _FailedError(f"no Java {OLDEST} or newer in {', '.join(_PLACES)}")
    _check_environment()
    _replace_own(min(fitting)[1], link=True)


def _homes(places: Iterable[str]) -> list[Path]:
    return sorted({home.resolve() for place in places for home in Path("/").glob(place[1:])})


def _install_package(say: Say) -> None:
    """Install Debian's package, and link to it if another Java is before it on PATH."""
    if os.geteuid() or shutil.which("apt-get") is None:
        raise _FailedError("apt-get: only root on Debian or Ubuntu can install its package")
    say(f"Getting Java: apt-get install {_PACKAGES[0]} …")
    quiet = {"DEBIAN_FRONTEND": "noninteractive"}
    _run(["apt-get", "update", "-qq"], "apt-get update", quiet)
    for package in _PACKAGES:
        try:
            _run(["apt-get", "install", "-y", "-qq", package], f"apt-get install {package}", quiet)
            break
        except _FailedError:
            if package == _PACKAGES[-1]:
                raise
    try:
        find_java()
    except ConfigError:
        _link_another(say)


def _download(say: Say) -> None:
    """Download a Java by the package install-jdk, from Adoptium, and move it into place when it has run."""
    _check_environment()
    say("Getting Java: a download of 45 MB from adoptium.net into this virtual environment …")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", _INSTALL_JDK]
    _run(pip, f"pip install {_INSTALL_JDK}")
    with tempfile.TemporaryDirectory(prefix=".jdk-", dir=sys.prefix) as folder:
        target = Path(folder) / "jdk"
        download = [sys.executable, "-c", _DOWNLOAD, str(OLDEST), str(target)]
        _run(download, "install-jdk", {"TMPDIR": folder})
        programs = [
            *target.glob("*/bin/java"),
            *target.glob("*/Contents/Home/bin/java"),
        ]  # the latter on macOS
        if not programs or look_at(programs[0]) is None:
            raise _FailedError("install-jdk: what it downloaded does not run here")
        _replace_own(programs[0].parents[1])


def _check_environment() -> None:
    if sys.prefix == sys.base_prefix:
        raise _FailedError("Weft is not in a virtual environment, so there is no place for a Java of its own")


def _replace_own(home: Path, *, link: bool = False) -> None:
    """Put a Java, or a link to it, where the environment's own belongs."""
    place = own_java()
    if place.is_symlink():
        place.unlink()
    elif place.exists():
        shutil.rmtree(place)
    if link:
        place.symlink_to(home)
    else:
        home.rename(place)


def _run(command: list[str], name: str, more: Mapping[str, str] | None = None) -> None:
    """Run a command in silence; if it fails, the last line that it wrote says why."""
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **(more or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=900,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise _FailedError(f"{name}: {error}") from None
    if done.returncode:
        lines = done.stdout.strip().splitlines() or [f"it ended with {done.returncode}"]
        raise _FailedError(f"{name}: {lines[-1]}")
