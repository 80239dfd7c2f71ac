"""A newcomer: an empty home, an empty environment, no Java; installs the wheel and does what we tell newcomers to do.

`python -m tests.newcomer.newcomer WHEEL` (`make newcomer`) runs the first page and the first project word for word, and
writes what each step took to docs/first_hour.md. With `--borrow`, packages that Weft needs are taken from this Python's
environment instead of being installed, so that it works without a network.

Guarantees: nothing of this machine is used but its Python, and nothing is left behind. A step that fails, or prints
something else than its page says, ends the run.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Newcomer", "Step", "table"]

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "first_hour.md"
_BLOCK = re.compile(r'^```(python|sh|text title="Output")\n(.*?)^```$', re.DOTALL | re.MULTILINE)
_RESULTS = re.compile(r"results: .*[1-9]")  # in a line of `weft demo` once there are some
_TOOLS = ("sh", "env", "uname")  # all that is on the newcomer's PATH beside the environment
_LIMIT = 900  # seconds that a step may take


_HEAD = (
    "# The first hour, measured",
    "",
    "`make newcomer` is somebody who has never run Weft: an empty home, an empty environment and no Java.",
    "It installs the wheel, and does what the first page, the tutorial and `weft init` say, word for word;",
    "if anything fails or prints something else, so does the command.",
)


@dataclass(frozen=True, slots=True)
class Step:
    """What the newcomer did, how long it took, and how long it may take on a quiet machine, if that is promised."""

    name: str
    seconds: float
    target: float | None = None


class StepError(Exception):
    """A step did not go as its page says."""


class Newcomer:
    """Somebody with a folder that holds all they have: a home, an environment and their programs."""

    def __init__(self, folder: Path, *, borrow: bool = False) -> None:
        self.folder, self.borrow = folder, borrow
        self.work = folder / "work"
        self.steps: list[Step] = []
        for name in ("home", "work", "tools"):
            (folder / name).mkdir(parents=True)
        for tool in _TOOLS:
            if (place := shutil.which(tool)) is not None:
                (folder / "tools" / tool).symlink_to(place)

    @property
    def environment(self) -> Mapping[str, str]:
        """What programs see: no Java, no settings, no caches; where packages come from is this machine's affair."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name.startswith("PIP_") or "proxy" in name.lower()
        }
        path = os.pathsep.join((str(self.folder / "env" / "bin"), str(self.folder / "tools")))
        home = str(self.folder / "home")
        return {**kept, "PATH": path, "HOME": home, "LANG": "C.UTF-8", "SPARK_LOCAL_IP": "127.0.0.1"}

    def run(
        self, command: str, name: str = "", *, target: float | None = None, folder: Path | None = None
    ) -> str:
        """Run a command as it would be typed, note how long it took, and return what it printed."""
        began = time.monotonic()
        done = subprocess.run(
            ["sh", "-c", command],
            cwd=folder or self.work,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_LIMIT,
            check=False,
        )
        self._note(name or f"`{command}`", time.monotonic() - began, target)
        if done.returncode:
            raise StepError(f"{command}: it ended with {done.returncode}\n{done.stdout}{done.stderr}")
        return done.stdout

    def install(self, wheel: Path) -> None:
        """Make an empty environment and install the wheel into it."""
        began = time.monotonic()
        subprocess.run([sys.executable, "-m", "venv", str(self.folder / "env")], check=True)
        self._note("`python -m venv env`", time.monotonic() - began)
        if self.borrow:
            packages = subprocess.run(
                [
                    str(self.folder / "env/bin/python"),
                    "-c",
                    "import sysconfig; print(sysconfig.get_path('purelib'))",
                ],
                capture_output=True,
                text=True,
                check=True,
            ).stdout.strip()
            Path(packages, "borrowed.pth").write_text(sysconfig.get_path("purelib"), encoding="utf-8")
        flags = "--no-deps --no-index" if self.borrow else "--quiet"
        self.run(f"pip install {flags} '{wheel}'", "`pip install weft`")

    def watch_demo(self) -> None:
        """Start the demo, and note when it shows its first results."""
        began, first = time.monotonic(), None
        process = subprocess.Popen(
            ["weft", "demo", "--for", "6s"],
            cwd=self.work,
            env=dict(self.environment),
            executable=str(self.folder / "env" / "bin" / "weft"),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        said = []
        with process:
            for line in process.stdout or ():
                said.append(line)
                if first is None and (_RESULTS.search(line) or re.match(r" *trolls .*[1-9]", line)):
                    first = time.monotonic() - began
        text = "".join(said)
        if process.returncode or first is None or "without Spark" not in text or "weft java" not in text:
            raise StepError(f"weft demo: it ended with {process.returncode}\n{text}")
        self._note("`weft demo`, until its first results", first, 20.0)

    def read_page(self, page: Path, name: str) -> None:
        """Run the programs of a page as one, without Java as the page says, and compare what is printed."""
        blocks = _BLOCK.findall(page.read_text(encoding="utf-8"))
        program = "\n".join(text for kind, text in blocks if kind == "python")
        program = program.replace("weft.Session()", 'weft.Session(execution="local")')
        expected = "".join(text for kind, text in blocks if kind.startswith("text"))
        if not expected:
            return
        folder = self.work / page.parent.name  # pages of a folder build upon each other
        folder.mkdir(exist_ok=True)
        (folder / f"{name}.py").write_text(program, encoding="utf-8")
        first = folder / "shop.py"  # as which the tutorial has its first program saved
        if not first.exists():
            first.write_text(blocks[[kind for kind, _ in blocks].index("python")][1], encoding="utf-8")
        printed = self.run(f"python {name}.py", f"the programs of {page.relative_to(ROOT)}", folder=folder)
        if printed.split() != expected.split():
            raise StepError(f"{page}: it says\n{expected}\nand what is printed is\n{printed}")

    def try_first_project(self) -> None:
        """Do what `weft init` says, in the project that it wrote."""
        said = self.run("weft init shop")
        commands = [line.split("#")[0].strip() for line in said.splitlines() if line.startswith("  ")]
        if len(commands) < 3:
            raise StepError(f"weft init shop: it does not say what to run\n{said}")
        for command in commands:
            if "pytest" in command and not self.borrow:
                self.run("pip install --quiet pytest")
            self.run(command, folder=self.work / "shop")

    def _note(self, name: str, seconds: float, target: float | None = None) -> None:
        self.steps.append(Step(name, seconds, target))
        print(f"{seconds:6.1f} s  {name}", flush=True)


def table(steps: list[Step], note: str) -> str:
    """The page that says what each step took."""
    lines = [*_HEAD, note, "", "| step | seconds | at most |", "|---|---:|---:|"]
    lines += [
        f"| {step.name} | {step.seconds:.1f} | {'' if step.target is None else f'{step.target:g}'} |"
        for step in steps
    ]
    return "\n".join([*lines, ""])


def _pages() -> Iterator[tuple[Path, str]]:
    yield ROOT / "README.md", "first"
    for page in sorted((ROOT / "docs" / "tutorial").glob("*.md")):
        yield page, f"step_{page.stem[0]}"


def main(arguments: list[str]) -> int:
    """Be the newcomer; 1 if something was not as it is told to newcomers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("wheel", type=Path)
    parser.add_argument("--borrow", action="store_true", help="take packages from this environment")
    parser.add_argument("--write", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="weft-newcomer-") as folder:
        newcomer = Newcomer(Path(folder), borrow=options.borrow)
        try:
            newcomer.install(options.wheel.absolute())
            newcomer.run("weft --help", target=0.5)
            newcomer.watch_demo()
            newcomer.try_first_project()
            for page, name in _pages():
                newcomer.read_page(page, name)
        except StepError as error:
            print(error, file=sys.stderr)
            return 1
    cores = f"On {os.cpu_count()} cores"
    how = "with packages that were there already" if options.borrow else "with packages from the network"
    if options.write:
        PAGE.write_text(table(newcomer.steps, f"{cores}, {how}:"), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
