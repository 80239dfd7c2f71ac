"""`weft init` and `weft examples`: a first project, or one of the examples, in a directory of the user's own.

Guarantees: nothing that is there is overwritten. The examples are those of the repository; an installed Weft has them
beside this package.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from weft.errors import ConfigError, nearest

__all__ = ["FIRST", "example_titles", "init_project"]

FIRST = "first"  # the example that `weft init` takes if none is named
_SERVICE = Path(__file__).parents[1]
_FOLDERS = (_SERVICE / "examples", _SERVICE.parents[2] / "examples")  # in an installation, in a checkout
_DATA = "in"  # the folder of files that pipeline files among the examples read


def example_titles() -> dict[str, str]:
    """What each example is about, by name: the first line of its pipeline file or of its README."""
    return {name: _title(path) for name, path in sorted(_examples().items())}


def init_project(directory: Path, example: str = FIRST) -> list[Path]:
    """Write an example into a directory, and give the files that it has, the first to be read first."""
    examples = _examples()
    if example not in examples:
        raise ConfigError(f"there is no example {example!r}", hint=nearest(example, examples))
    try:
        return _copy(examples[example], directory)
    except OSError as error:
        raise ConfigError(
            f"cannot write {directory}: {error.strerror}", hint="name another directory"
        ) from None


def _examples() -> dict[str, Path]:
    folder = next((folder for folder in _FOLDERS if folder.is_dir()), None)
    if folder is None:
        raise ConfigError("the examples of this installation are gone", hint="install Weft again")
    return {
        entry.stem: entry
        for entry in sorted(folder.iterdir())
        if entry.suffix == ".yaml" or (entry.is_dir() and entry.name not in (_DATA, "__pycache__"))
    }


def _title(path: Path) -> str:
    if path.is_dir():
        path = path / "README.md" if (path / "README.md").exists() else min(path.iterdir())
    first = path.read_text(encoding="utf-8").split("\n", 1)[0]
    return first.lstrip("# ").strip('"').rstrip(".")


def _copy(source: Path, directory: Path) -> list[Path]:
    files = {entry.relative_to(source): entry for entry in source.rglob("*")} if source.is_dir() else {}
    if not source.is_dir():
        files[Path(source.name)] = source
        if f"path: {_DATA}/" in source.read_text(encoding="utf-8"):
            data = source.parent / _DATA
            files |= {entry.relative_to(source.parent): entry for entry in data.rglob("*")}
    files = {name: file for name, file in files.items() if file.is_file() and "__pycache__" not in name.parts}
    there = [directory / name for name in files if (directory / name).exists()]
    if there:
        raise ConfigError(f"{there[0]} is there already", hint="name a directory that is new or empty")
    for name, file in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, directory / name)
    return sorted((directory / name for name in files), key=lambda path: (path.suffix != ".md", path))
