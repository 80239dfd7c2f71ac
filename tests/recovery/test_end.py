"""An end of the input that was planned stays planned, and what comes after it is refused without a loss."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import weft
import weft.session.run
from tests.recovery.cases import Ask, Case, Rows, given, run_query, wanted
from tests.recovery.moments import last_batch
from tests.recovery.queries import CLOSED, ENDED
from weft.errors import QueryError, StateError
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import Manifest
from weft.runtime.model import batch_order as batch_order

CASE = Case(0, 3, "outer")
WINDOWED = Ask("o0", CLOSED[0].format(w0=2, w1=1, w2=3))
ENDLESS = Ask("o1", ENDED[0])


class Uncommitted(Checkpoint):
    """A checkpoint that never comes to the manifest of the batch that ends the input."""

    def commit(self, manifest: Manifest) -> None:
        """Its results are in place by now."""
        if batch_order.ENDED in manifest.closed.values():
            raise RuntimeError("broken off")
        Checkpoint.commit(self, manifest)


def _session(root: Path, spark: Any, *asks: Ask) -> weft.Session:
    session = CASE.empty_session(root, spark=spark)
    for ask in asks:
        run_query(session, root, ask)
    return session


def _break_off(root: Path, spark: Any, *asks: Ask) -> None:
    """Run until the end is planned, and no further."""
    CASE.write(root)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weft.session.run, "Checkpoint", Uncommitted)
        with pytest.raises(RuntimeError, match="broken off"):
            _session(root, spark, *asks).run_available()


def _given(session: weft.Session, root: Path) -> dict[str, Rows]:
    """What every query has given."""
    return {q.name: given(root, q.name, [o.name for o in q.query.projection]) for q in session.queries}


def _check(session: weft.Session, root: Path) -> None:
    """Everything is there, and once."""
    assert _given(session, root) == {q.name: wanted(root, q.query) for q in session.queries}


def _run(session: weft.Session) -> None:
    """Run what is there, leaving open whether more comes."""
    session.start()
    try:
        session.process_all_available()
    finally:
        session.stop()


def test_an_end_that_was_planned_is_carried_out_by_whoever_starts(spark: Any, tmp_path: Path) -> None:
    """Readers may have seen the rows of the end: they must not be taken back, or repeated."""
    _break_off(tmp_path, spark, WINDOWED)
    planned, session = last_batch(tmp_path) + 1, _session(tmp_path, spark, WINDOWED)
    seen = _given(session, tmp_path)
    _run(session)
    assert last_batch(tmp_path) >= planned
    assert _given(session, tmp_path) == seen
    _check(session, tmp_path)

    before = last_batch(tmp_path)
    shutil.copy(tmp_path / "in" / "a" / "000.json", tmp_path / "in" / "a" / "003.json")
    for run in (_run, weft.Session.run_available, _run):
        session = _session(tmp_path, spark, WINDOWED)
        with pytest.raises(StateError, match="there is more input, but query o0 was told that it had ended"):
            run(session)
        assert _given(session, tmp_path) == seen, "what was there has changed"
        assert last_batch(tmp_path) == before


def test_rows_that_never_close_wait_for_an_end(spark: Any, tmp_path: Path) -> None:
    """A session that would wait for ever is refused, also when the end was planned; the end comes all the same."""
    _break_off(tmp_path, spark, WINDOWED, ENDLESS)
    planned = last_batch(tmp_path) + 1
    with pytest.raises(QueryError, match="query o1 would never give the rows"):
        _session(tmp_path, spark, WINDOWED, ENDLESS).start()
    assert last_batch(tmp_path) == planned - 1
    for _ in range(2):  # an end may come again, and brings nothing
        session = _session(tmp_path, spark, WINDOWED, ENDLESS)
        session.run_available()
        _check(session, tmp_path)
