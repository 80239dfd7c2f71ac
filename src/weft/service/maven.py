"""What Maven fetches for `weft demo --kafka`, tests and benchmarks, kept in the virtual environment.

Guarantees: a folder is either complete or taken for missing; what is there is not fetched again.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from weft.errors import ConfigError

__all__ = ["cache", "fetch_files", "fetch_jars", "is_fetched"]

_DEPENDENCY = "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version></dependency>"
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>weft</groupId><artifactId>fetched</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""


def cache() -> Path:
    """Where fetched things are kept: in this Python's environment."""
    return Path(sys.prefix) / "cache"


def is_fetched(folder: Path) -> bool:
    """Whether everything of a folder is there."""
    return (folder / "complete").exists()


def fetch_jars(folder: Path, artifacts: Sequence[str]) -> None:
    """Put artifacts (`group:name:version`) and what they depend on into a folder, unless they are there."""
    pom = _POM.format("".join(_DEPENDENCY.format(*artifact.split(":")) for artifact in artifacts))
    if not is_fetched(folder):
        _run(folder, pom, "dependency:copy-dependencies", "-DincludeScope=runtime")
        (folder / "complete").touch()


def fetch_files(folder: Path, artifacts: Sequence[str]) -> None:
    """Put the files of artifacts (`group:name:version`, `:type:classifier` may follow) and no others into a folder."""
    for artifact in artifacts if not is_fetched(folder) else ():
        _run(folder, _POM.format(""), "dependency:copy", f"-Dartifact={artifact}")
    (folder / "complete").touch()


def _run(folder: Path, pom: str, *goal: str) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise ConfigError("Maven is not installed", hint="Debian, Ubuntu: apt-get install maven")
    with tempfile.TemporaryDirectory() as place:
        Path(place, "pom.xml").write_text(pom, encoding="utf-8")
        command = [maven, "-q", "-B", "-f", f"{place}/pom.xml", *goal, f"-DoutputDirectory={folder}"]
        done = subprocess.run(command, check=False)
    if done.returncode:
        raise ConfigError(
            f"Maven could not fetch what belongs into {folder}", hint="its own messages stand above"
        )
