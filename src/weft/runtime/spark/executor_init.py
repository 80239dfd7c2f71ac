"""The `weft/__init__.py` of a Weft sent to executors (`executor_setup.py`): it unpacks the rest and loads that.

Guarantees: it is unpacked once per host, user and content, into a directory that only this user can write to, where
compiled kernels are then cached, too. A directory appears under its name complete, or not at all. This file is read
before any other of Weft, so it imports nothing of it.
"""

import os
import stat
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

CONTENT = "content"  # the folder of the archive that holds the package


def _unpacked(archive: Path) -> Path:
    """The directory with the content of an archive, which is named after it."""
    reasons = []
    for place in _places():
        try:
            return _unpacked_at(place, archive)
        except OSError as error:
            reasons.append(f"{place}: {error}")
    raise ImportError(f"Weft was sent to {_host()} and can be unpacked nowhere: {'; '.join(reasons)}")


def _places() -> list[Path]:
    """Where it may be unpacked: in the user's cache or, where there is no home, among temporary files."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return [Path(home, "weft", "shipped"), Path(tempfile.gettempdir(), f"weft-{os.getuid()}", "shipped")]


def _unpacked_at(place: Path, archive: Path) -> Path:
    folder = place / archive.stem
    if not folder.is_dir():
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        partial = Path(tempfile.mkdtemp(dir=place))
        with ZipFile(archive) as file:
            file.extractall(partial)
        try:
            partial.rename(folder)
        except OSError:  # another worker was quicker
            if not folder.is_dir():
                raise
    for directory in (place, folder):
        status = directory.stat()
        if status.st_uid != os.getuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise PermissionError("somebody else can write to it")
    return folder / CONTENT


def _host() -> str:
    return os.uname().nodename


def _load(archive: Path) -> None:
    """Make this module the package that was unpacked."""
    folder = _unpacked(archive) / "weft"
    module = sys.modules[__name__]
    module.__path__ = [str(folder)]
    module.__file__ = str(folder / "__init__.py")
    if module.__spec__ is not None:
        module.__spec__.submodule_search_locations = [str(folder)]
        module.__spec__.origin = module.__file__
    source = Path(module.__file__).read_text(encoding="utf-8")
    vars(module)["SHIPPED"] = archive.stem
    exec(compile(source, module.__file__, "exec"), vars(module))


if __name__ == "weft":
    _load(Path(__loader__.archive))  # type: ignore[name-defined]  # a zipimporter
