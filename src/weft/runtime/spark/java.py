"""Which Java Spark runs on.

Guarantees: Java is looked for where Spark looks, in the same order: JAVA_HOME, then PATH. In between comes `jdk` in
this Python's own environment, where `weft java` puts one if neither has one that fits. JAVA_HOME is never overruled.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from weft.errors import ConfigError

__all__ = ["GET_JAVA", "OLDEST", "Java", "find_java", "java_version", "look_at", "own_java", "use_own_java"]

OLDEST = 17
GET_JAVA = (
    "Debian, Ubuntu: apt-get install openjdk-17-jre-headless; macOS: brew install openjdk@17; elsewhere: "
    "https://adoptium.net. Where there is one already, set JAVA_HOME to its directory"
)


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs: its directory, which JAVA_HOME would name, and its version if it says one that we can read."""

    home: Path
    version: int | None

    @property
    def fits(self) -> bool:
        """Whether Spark runs on it."""
        return self.version is None or self.version >= OLDEST


def own_java() -> Path:
    """Where this environment's own Java is, if it has one."""
    return Path(sys.prefix) / "jdk"


def use_own_java() -> None:
    """Have what this process starts use the environment's own Java, if there is one and JAVA_HOME is not set."""
    if not os.environ.get("JAVA_HOME") and (own_java() / "bin" / "java").exists():
        os.environ["JAVA_HOME"] = str(own_java())


def find_java() -> Java:
    """The Java that Spark will take; an error if there is none, or if it is too old."""
    use_own_java()
    home = os.environ.get("JAVA_HOME")
    program = shutil.which(str(Path(home) / "bin" / "java") if home else "java")
    java = None if program is None else look_at(program)
    if java is None:
        where = f"JAVA_HOME, which is {home}, has none" if home else "there is none here"
        raise ConfigError(
            f"Weft runs on Spark, which needs Java {OLDEST} or newer: {where}", hint=_hint(home)
        )
    if not java.fits:
        raise ConfigError(
            f"Spark needs Java {OLDEST} or newer; {program} is Java {java.version}", hint=_hint(home)
        )
    return java


def _hint(home: str | None) -> str:
    """What to do; to get another Java does not help where JAVA_HOME names one."""
    if home:
        return f"set JAVA_HOME to the directory of a Java {OLDEST} or newer, or unset it and run `weft java`"
    return f"run `weft java`, which gets one if it can; or yourself: {GET_JAVA}"


def look_at(program: str | Path) -> Java | None:
    """What a `java` says of itself; None if it does not run, like the placeholder that macOS has."""
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if done.returncode:
        return None
    told = done.stderr + done.stdout
    home = re.search(r"^\s*java\.home = (.+?)\s*$", told, re.MULTILINE)
    return Java(Path(home[1]) if home else Path(program).resolve().parents[1], java_version(told))


def java_version(text: str) -> int | None:
    """The version in what `java -version` says.

    >>> java_version('openjdk version "17.0.9" 2023-10-17'), java_version('java version "1.8.0_392"')
    (17, 8)
    """
    found = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(found[1]) if found else None
