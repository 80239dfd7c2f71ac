"""Paths and references in a pipeline file: relative ones begin where the file is, wherever it is run from."""

from __future__ import annotations

import re
from pathlib import Path

from weft.service.pipeline.document import Node

__all__ = ["resolve_path", "resolve_reference"]


def resolve_path(node: Node, root: Path) -> str:
    """The path or URI that an entry names; a relative path begins at ``root``."""
    text = node.text("name a path, as in in/videos")
    if not text.strip() or "\0" in text:
        raise node.error(f"{text!r} is not a path", "name one, as in in/videos")
    return text if re.match(r"[A-Za-z][\w+.-]+:", text) else str(root / text)


def resolve_reference(node: Node, root: Path) -> str:
    """A text that may say where it is found: `env:NAME`, or `file:PATH`, whose relative path begins at ``root``."""
    text = node.text("write it as a text, or say where it is found: env:NAME or file:PATH")
    kind, _, path = text.partition(":")
    return f"file:{root / path}" if kind == "file" and path and not path.startswith("//") else text
