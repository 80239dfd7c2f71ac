"""The process of a contender: `python -m benchmarks._alone MODULE FUNCTION TASK ANSWER`, the last two files of JSON.

Guarantees: it loads next to nothing of its own, so that a contender can measure how long its own start takes.
"""

from __future__ import annotations

import importlib
import json
import sys

TYPE_CHECKING = False  # as in typing, which need not be loaded
if TYPE_CHECKING:
    from typing import Any


def main(module: str, name: str, question: str, answer: str) -> None:
    """Call a function with the task in a file, as the value that it takes, and write its answer to another file."""
    home = importlib.import_module(module)
    contender = getattr(home, name)
    with open(question, encoding="utf-8") as file:
        task = json.load(file)
    kind: Any = getattr(home, next(iter(contender.__annotations__.values())), None)
    if hasattr(kind, "__dataclass_fields__"):
        task = kind(**{name: value for name, value in task.items() if name in kind.__dataclass_fields__})
    answered = contender(task)
    with open(answer, "w", encoding="utf-8") as file:
        json.dump(answered, file)


if __name__ == "__main__":
    main(*sys.argv[1:])
