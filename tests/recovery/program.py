"""The program that is killed: `python -m tests.recovery.program ROOT SEED FILES KIND MASTER [EXECUTION [PLACE]]`.

It runs a case from where its checkpoint stands until all input is processed, and ends with 0; on any error, with 1. On
its way it asks for queries and stops some, each at its batch or, if that has passed and the query does not know of it,
at once. Only the queries of the beginning are registered: the others must be there again by themselves.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from pathlib import Path

import weft
import weft.runtime.output.ordered_results
import weft.session.run
from tests.recovery.cases import Case, Change, run_query
from tests.recovery.moments import last_batch
from tests.recovery.processes import PATIENCE
from tests.recovery.records import FOLDER, Recorded, RecordedLoop, record_stop
from weft.errors import ConfigError, StateError
from weft.runtime.log import lease

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
                while self._last() < change.batch:
                    if self.over.wait(POLL):
                        return
                self._do(change)
        except (ConfigError, StateError) as error:  # the session has ended, and takes no more
            if "is not running" not in error.message and "the session has ended" not in error.message:
                self.error = error
        except BaseException as error:
            self.error = error

    def begin(self) -> None:
        """Start, if it has not been started."""
        if self.ident is None:
            self.start()

    def end(self) -> None:
        """Do no more, and say what went wrong."""
        self.over.set()
        if self.ident is not None:
            self.join()
        if self.error is not None:
            raise self.error

    def _last(self) -> int:
        """The last batch that was committed."""
        return Recorded.committed if self.case.place else last_batch(self.root)

    def _do(self, change: Change) -> None:
        name = change.add.name if change.add else change.stop
        status = self.session.query_progress(name).status
        known = name in {
            query.name for query in self.session.queries
        }  # also if it was asked for before a kill
        if change.add is not None and not known and status != "stopped":
            run_query(self.session, self.case.at(self.root), change.add)
        elif change.add is None and status != "stopped" and known:
            self.session.stop_query(name)
            record_stop(self.root, name)
        print(f"{time.time():.3f} after batch {self._last()}: {change}, {status}", flush=True)


def run_case(session: weft.Session, case: Case, root: Path) -> None:
    """Run to the end of the input, changing what the case changes."""
    changing = Changing(session, case, root)
    try:
        if case.outer:
            _run_available(session, changing)
        else:
            session.start(available_now=True)
            changing.begin()
            if not session.await_termination(int(PATIENCE)):
                raise TimeoutError("the session does not end")
    finally:
        try:
            changing.end()
        finally:
            session.stop()


def _run_available(session: weft.Session, changing: Changing) -> None:
    """Changes begin as soon as the session waits for its input, and so is running."""
    process = session.process_all_available

    def begun() -> None:
        changing.begin()
        process()

    setattr(session, "process_all_available", begun)  # noqa: B010
    session.run_available()


def main(
    root: str, seed: str, files: str, kind: str, master: str, execution: str = "auto", place: str = ""
) -> None:
    """Run to the end of the input; a lease may last shorter than usual (`LEASE_SECONDS`)."""
    lease.LEASE_SECONDS = float(os.environ.get("LEASE_SECONDS", lease.LEASE_SECONDS))
    Recorded.folder = Path(root) / FOLDER
    setattr(weft.session.run, "Checkpoint", Recorded)  # noqa: B010
    setattr(weft.session.run, "Loop", RecordedLoop)  # noqa: B010
    case = Case(int(seed), int(files), kind, place)
    if case.seed % 4:  # tasks merge ordered results, however few there are
        setattr(weft.runtime.output.ordered_results, "FEW", 0)  # noqa: B010
        setattr(weft.runtime.output.ordered_results, "LEAST", 1)  # noqa: B010
    run_case(case.session(Path(root), master=master, execution=execution), case, Path(root))


if __name__ == "__main__":
    main(*sys.argv[1:])
