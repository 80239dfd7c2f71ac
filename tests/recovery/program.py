"""The program that is killed: `python -m tests.recovery.program ROOT SEED FILES KIND MASTER`.

It runs a case from where its checkpoint stands until all input is processed, and ends with 0; on any error, with 1. On
its way it asks for queries and stops some, each at its batch or, if that has passed and the query does not know of it,
at once. Only the queries of the beginning are registered: the others must be there again by themselves.
"""

from __future__ import annotations

import sys
import threading
import time
from pathlib import Path

import weft
import weft.runtime.launch
from tests.recovery.cases import Case, Change, run_query
from tests.recovery.moments import last_batch
from tests.recovery.records import Recorded, record_stop

POLL = 0.01


class Changing(threading.Thread):
    """What a case does to its session while that runs."""

    def __init__(self, session: weft.Session, case: Case, root: Path) -> None:
        super().__init__(daemon=True)
        self.session, self.case, self.root = session, case, root
        self.over = threading.Event()
        self.error: BaseException | None = None

    def run(self) -> None:
        """Everything in its turn, until the session is over."""
        try:
            for change in self.case.changes():
                while last_batch(self.root) < change.batch:
                    if self.over.wait(POLL):
                        return
                self._do(change)
        except BaseException as error:
            self.error = error

    def _do(self, change: Change) -> None:
        name = change.add.name if change.add else change.stop
        status = self.session.query_progress(name).status
        if change.add is not None and status not in ("running", "stopped"):
            run_query(self.session, self.root, change.add)
        elif change.add is None and status != "stopped" and name in {q.name for q in self.session.queries}:
            self.session.stop_query(name)
            record_stop(self.root, name)
        print(f"{time.time():.3f} after batch {last_batch(self.root)}: {change}, {status}", flush=True)


def main(root: str, seed: str, files: str, kind: str, master: str) -> None:
    """Run to the end of the input."""
    setattr(weft.runtime.launch, "Checkpoint", Recorded)  # noqa: B010
    case = Case(int(seed), int(files), kind == "changing")
    session = case.session(Path(root), master=master)
    session.start(available_now=True)
    changing = Changing(session, case, Path(root))
    changing.start()
    try:
        session.await_termination()
    finally:
        changing.over.set()
        changing.join()
        session.stop()
    if changing.error is not None:
        raise changing.error


if __name__ == "__main__":
    main(*sys.argv[1:])
