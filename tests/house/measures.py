"""What the rooms of the package are made of, read from its source text alone.

Guarantees: nothing of the package is imported, so any checkout can be measured (`python -m tests.house.trace_paths`
does). A *room* is a folder directly inside the package; a *neighbour* is a module in the same folder.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

__all__ = ["DOZEN", "SMALL", "House", "Module"]

DOZEN = 12  # a folder of more modules wants rooms inside
SMALL = 100  # a module of fewer lines that one neighbour imports belongs into that neighbour


@dataclass(frozen=True, slots=True)
class Module:
    """A module: its dotted name, its file, its lines and its syntax tree."""

    name: str
    file: Path
    lines: int
    tree: ast.Module

    @property
    def is_package(self) -> bool:
        """Whether this is the `__init__` of a folder."""
        return self.file.name == "__init__.py"

    @property
    def folder(self) -> str:
        """The dotted name of the folder that the module is in."""
        return self.name if self.is_package else self.name.rpartition(".")[0]

    @property
    def room(self) -> str:
        """The room: the first folder inside the package, or nothing for what is directly in it."""
        folders = self.folder.split(".")
        return folders[1] if len(folders) > 1 else ""

    @property
    def public_classes(self) -> list[str]:
        """The classes of the module that others may name."""
        classes = (node for node in ast.walk(self.tree) if isinstance(node, ast.ClassDef))
        return [node.name for node in classes if not node.name.startswith("_")]


class House:
    """All modules of a package, and who imports whom."""

    def __init__(self, package: Path) -> None:
        self.modules = {module.name: module for module in _modules(package)}

    @cached_property
    def importers(self) -> Mapping[str, set[str]]:
        """By module: the modules that import it or something of it."""
        importers: dict[str, set[str]] = defaultdict(set)
        for module in self.modules.values():
            for imported in self._imported(module):
                if imported != module.name:
                    importers[imported].add(module.name)
        return importers

    def _imported(self, module: Module) -> Iterator[str]:
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                yield from (alias.name for alias in node.names if alias.name in self.modules)
            elif isinstance(node, ast.ImportFrom) and node.module in self.modules:
                for alias in node.names:
                    inside = f"{node.module}.{alias.name}"
                    yield inside if inside in self.modules else node.module

    @property
    def rooms(self) -> dict[str, tuple[int, int]]:
        """By room: how many files and lines it has."""
        rooms: dict[str, tuple[int, int]] = defaultdict(lambda: (0, 0))
        for module in self.modules.values():
            files, lines = rooms[module.room]
            rooms[module.room] = files + 1, lines + module.lines
        return dict(sorted(rooms.items()))

    @property
    def crowded(self) -> dict[str, int]:
        """The folders of more than a dozen modules, and how many they have; `__init__` does not count."""
        counts: dict[str, int] = defaultdict(int)
        for module in self.modules.values():
            if not module.is_package:
                counts[module.folder] += 1
        return {folder: count for folder, count in sorted(counts.items()) if count > DOZEN}

    @property
    def with_one_importer(self) -> dict[str, str]:
        """The modules that exactly one other one imports, a neighbour, and that neighbour.

        A package that gives a module's names to whoever imports it is no neighbour.
        """
        single = {}
        for name, module in sorted(self.modules.items()):
            importers = self.importers.get(name, set())
            if module.is_package or len(importers) != 1:
                continue
            (importer,) = importers
            neighbour = self.modules[importer]
            if neighbour.folder == module.folder and not neighbour.is_package:
                single[name] = importer
        return single

    @property
    def fragments(self) -> dict[str, str]:
        """Those of `with_one_importer` that are small."""
        return {
            name: importer
            for name, importer in self.with_one_importer.items()
            if self.modules[name].lines < SMALL
        }

    @property
    def names_twice(self) -> dict[str, list[str]]:
        """Public classes of which there are several of one name, and where these are."""
        places: dict[str, list[str]] = defaultdict(list)
        for name, module in sorted(self.modules.items()):
            for public in module.public_classes:
                places[public].append(name)
        return {public: where for public, where in sorted(places.items()) if len(where) > 1}


def _modules(package: Path) -> Iterator[Module]:
    for file in sorted(package.rglob("*.py")):
        parts = file.relative_to(package.parent).with_suffix("").parts
        text = file.read_text(encoding="utf-8")
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        yield Module(name, file, len(text.splitlines()), ast.parse(text))
