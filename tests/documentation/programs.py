"""The programs of a page of the documentation: its Python, and what the page says that they print.

A block of `python` is run. A block of `text title="Output"` is what was printed since the last such block.
"""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r'^```(python|text title="Output")\n(.*?)^```$', re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a page: a program, or the output that the programs before it have."""

    is_program: bool
    text: str
    line: int


def blocks_of(page: Path) -> list[Block]:
    """The programs and outputs of a page, in their order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(match[1] == "python", match[2], text.count("\n", 0, match.start()) + 1)
        for match in _BLOCK.finditer(text)
    ]


def run_page(page: Path) -> list[tuple[Block, str]]:
    """Run a page in the working directory: every output that it shows, and the one that there was."""
    names: dict[str, Any] = {"__name__": page.stem}
    printed = io.StringIO()
    outputs = []
    for block in blocks_of(page):
        if block.is_program:
            code = compile("\n" * block.line + block.text, str(page), "exec")
            with redirect_stdout(printed):
                exec(code, names)
        else:
            outputs.append((block, printed.getvalue()))
            printed = io.StringIO()
    return outputs
