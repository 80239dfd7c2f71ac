"""Which Java is taken, and how one is got: on machines that are made of a few scripts."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from typer.testing import CliRunner

from weft.errors import ConfigError
from weft.runtime.spark.java import Java, find_java, use_own_java
from weft.service import get_java as module
from weft.service.cli import app
from weft.service.get_java import get_java

# What the download is, as seen by Python: `python -c PROGRAM VERSION TARGET`, after `python -m pip install …`.
_PYTHON = """
case "$1" in
  -m) [ -e {root}/no-pip ] && echo "No module named pip" && exit 1; exit 0;;
  -c) [ -e {root}/offline ] && echo "urlopen error: no such host" && exit 1
      mkdir -p "$4/jdk-17-jre/{home}" && cp -r {root}/downloaded/bin "$4/jdk-17-jre/{home}/bin";;
esac
"""
_APT = """
[ "$1" = update ] && exit 0
echo "$4" >> {root}/apt.log
[ "$4" = "{package}" ] && cp {root}/packaged/bin/java {root}/bin/java && exit 0
echo "E: Unable to locate package $4" && exit 100
"""


def script(file: Path, text: str) -> Path:
    """A program on the machine."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"#!/bin/sh\n{text}")
    file.chmod(0o755)
    return file


def java_in(home: Path, version: str) -> Path:
    """A Java that says its version, in its home."""
    script(home / "bin" / "java", f"echo 'openjdk version \"{version}\" 2023-10-17' >&2\n")
    return home


@dataclass
class Machine:
    """A machine without Java, where we are an ordinary user in a virtual environment."""

    root: Path
    patch: pytest.MonkeyPatch
    said: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        (self.root / "bin").mkdir()
        for tool in ("sh", "mkdir", "cp", "cat"):
            (self.root / "bin" / tool).symlink_to(str(shutil.which(tool)))
        self.patch.setenv("PATH", str(self.root / "bin"))
        self.patch.setenv("JAVA_HOME", "")  # which is as if it were not set, and undone afterwards
        self.patch.setattr(sys, "prefix", str(self.root / "env"))
        self.patch.setattr(os, "geteuid", lambda: 1000)
        self.patch.setattr(module, "_PLACES", (str(self.root / "jvm" / "*"),))
        (self.root / "env").mkdir()
        (self.root / "offline").touch()
        self.python(home="")

    def python(self, *, home: str) -> None:
        """Have Python download a Java whose directory is inside what is unpacked."""
        java_in(self.root / "downloaded", "17.0.1")
        program = script(self.root / "python", _PYTHON.format(root=self.root, home=home))
        self.patch.setattr(sys, "executable", str(program))

    def debian(self, package: str) -> None:
        """Be root on a Debian that has one package."""
        java_in(self.root / "packaged", "21.0.2")
        script(self.root / "bin" / "apt-get", _APT.format(root=self.root, package=package))
        self.patch.setattr(os, "geteuid", lambda: 0)

    def get(self) -> Java:
        return get_java(self.said.append)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def test_java_home_is_taken_before_all_others(machine: Machine) -> None:
    """It is what Spark takes."""
    java_in(machine.root, "21.0.1")
    java_in(machine.root / "env" / "jdk", "17.0.9")
    machine.patch.setenv("JAVA_HOME", str(java_in(machine.root / "mine", "25")))
    assert machine.get() == Java(machine.root / "mine", 25)
    assert machine.said == []


@pytest.mark.parametrize(
    ("version", "message"),
    [(None, "JAVA_HOME, which is .*mine, has none"), ("11.0.2", "needs Java 17 or newer; .*java is Java 11")],
)
def test_a_java_home_that_does_not_fit_is_the_users_to_change(
    machine: Machine, version: str | None, message: str
) -> None:
    """Whatever else were installed, Spark would go on taking it."""
    java_in(machine.root / "jvm" / "java-17", "17.0.9")
    if version is not None:
        java_in(machine.root / "mine", version)
    machine.patch.setenv("JAVA_HOME", str(machine.root / "mine"))
    with pytest.raises(ConfigError, match=rf"{message}\nhint: set JAVA_HOME to"):
        machine.get()
    assert machine.said == []


def test_a_java_on_the_path_is_enough(machine: Machine) -> None:
    """Nothing is done on most machines."""
    java_in(machine.root, "17.0.9")
    assert machine.get() == Java(machine.root, 17)
    assert not (machine.root / "env" / "jdk").exists()
    assert not os.environ["JAVA_HOME"]


def test_the_environments_own_java_goes_before_an_old_one_on_the_path(machine: Machine) -> None:
    """It is there because the other one did not fit."""
    java_in(machine.root, "1.8.0_392")
    own = java_in(machine.root / "env" / "jdk", "17.0.9")
    use_own_java()
    assert os.environ["JAVA_HOME"] == str(own)
    assert find_java() == Java(own, 17)


def test_a_java_that_is_installed_elsewhere_is_linked_to(machine: Machine) -> None:
    """The oldest that fits: it is the one that Spark has been run on longest. Homebrew's are not on the PATH."""
    java_in(machine.root, "11.0.2")
    for version in ("8", "11", "25", "17"):
        java_in(machine.root / "jvm" / f"java-{version}", f"{version}.0.1")
    assert machine.get().version == 17
    assert (machine.root / "env" / "jdk").resolve() == machine.root / "jvm" / "java-17"
    assert machine.said == []


def test_a_link_to_a_java_that_is_gone_is_made_anew(machine: Machine) -> None:
    """As after an upgrade of the system's."""
    (machine.root / "env" / "jdk").symlink_to(machine.root / "jvm" / "java-17.0.1")
    java_in(machine.root / "jvm" / "java-17.0.2", "17.0.2")
    assert machine.get().version == 17


@pytest.mark.parametrize("package", ["openjdk-17-jre-headless", "openjdk-21-jre-headless"])
def test_root_on_debian_gets_its_package(machine: Machine, package: str) -> None:
    """The first that this Debian has."""
    machine.debian(package)
    assert machine.get() == Java(machine.root, 21)
    assert (machine.root / "apt.log").read_text().split()[-1] == package
    assert machine.said == ["Getting Java: apt-get install openjdk-17-jre-headless …"]


@pytest.mark.parametrize("home", ["", "Contents/Home"])
def test_others_get_a_download_into_the_environment(machine: Machine, home: str) -> None:
    """On macOS its home is further inside."""
    (machine.root / "offline").unlink()
    machine.python(home=home)
    assert machine.get() == Java(machine.root / "env" / "jdk", 17)
    assert [entry.name for entry in (machine.root / "env").iterdir()] == ["jdk"]
    assert len(machine.said) == 1


def test_a_download_that_does_not_run_is_not_kept(machine: Machine) -> None:
    """As one for another C library."""
    (machine.root / "offline").unlink()
    script(machine.root / "downloaded" / "bin" / "java", "exit 1\n")
    with pytest.raises(ConfigError, match="what it downloaded does not run here"):
        machine.get()
    assert list((machine.root / "env").iterdir()) == []


def test_where_nothing_works_it_says_what_was_tried_and_what_to_do(machine: Machine) -> None:
    """As root without a network: each way with its own reason, and no stack trace."""
    machine.debian("none at all")
    result = CliRunner().invoke(app, ["java"])
    assert isinstance(result.exception, ConfigError)
    message = str(result.exception)
    for part in (
        "needs Java 17 or newer: there is none here",
        "apt-get install openjdk-21-jre-headless: E: Unable to locate package openjdk-21-jre-headless",
        "install-jdk: urlopen error: no such host",
        "macOS: brew install openjdk@17",
        "set JAVA_HOME",
    ):
        assert part in message
    assert len(re.findall("Getting Java", result.output)) == 2


def test_without_pip_or_a_virtual_environment_it_says_so(machine: Machine) -> None:
    """Nothing is put into a Python that others use."""
    (machine.root / "no-pip").touch()
    with pytest.raises(ConfigError, match=r"pip install install-jdk==[\d.]+: No module named pip"):
        machine.get()
    machine.patch.setattr(sys, "base_prefix", sys.prefix)
    with pytest.raises(ConfigError, match="Weft is not in a virtual environment"):
        machine.get()


def test_a_program_called_java_that_is_none_counts_as_none(machine: Machine) -> None:
    """macOS has one, which only says where to buy a Java."""
    script(machine.root / "bin" / "java", "echo 'Unable to locate a Java Runtime.'; exit 1\n")
    with pytest.raises(ConfigError, match=r"there is none here\nhint: run `weft java`"):
        find_java()
