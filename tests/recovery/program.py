"""The program that is killed: `python -m tests.recovery.program ROOT SEED FILES MASTER`.

It runs a case from where its checkpoint stands until all input is processed, and ends with 0; on any error, with 1.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.recovery.cases import Case


def main(root: str, seed: str, files: str, master: str) -> None:
    """Run to the end of the input."""
    session = Case(int(seed), int(files)).session(Path(root), master=master)
    session.start(available_now=True)
    try:
        session.await_termination()
    finally:
        session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
