"""Aggregates that come and go while plans change give what DuckDB makes of the rows of the same joins.

Every query with aggregates has a twin without: the same join, from the same batch on, of which the rows are given.
"""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, replace
from itertools import count

import pyarrow as pa
import pytest

import weft
from tests.equivalence.grouped import SCHEMA, STREAMS, random_tables, random_text, rounded
from tests.equivalence.test_derived import split
from tests.equivalence.test_grouped import last_per_key
from tests.restless import made_restless, restless
from tests.shares import quick, seeds
from weft.logical.query.grouping import MODES
from weft.testing import LocalRun, reference_join
from weft.testing.reference import groups_of_rows

_KEPT = (  # so that there is a past to fill from
    "SELECT a.k FROM a [RANGE 30 SECONDS], b [RANGE 30 SECONDS] WHERE a.k = b.k",
    "SELECT b.k FROM b [RANGE 30 SECONDS], c [RANGE 30 SECONDS] WHERE b.x = c.x",
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A query with aggregates, which is asked for together with its twin."""

    name: str
    text: str
    mode: str
    backfill: bool

    @classmethod
    def random(cls, rng: random.Random, number: int) -> Asked:
        """Any query in any mode that it can have."""
        text = random_text(rng)
        if rng.random() < 0.5:
            text = re.sub(r"RANGE \d+ SECONDS", "RANGE 30 SECONDS", text)
        final = any(word in text for word in ("SELECT DISTINCT", "session_window", "HAVING"))
        mode = "append" if final else rng.choice(MODES)
        return cls(f"q{number}", text, mode, rng.random() < 0.5)

    def begin(self, session: weft.Session) -> None:
        """Ask for the query and its twin."""
        twin = str(replace(session.parse(self.text), grouping=None))
        session.query(
            self.text, name=self.name, sink=weft.to_memory(), mode=self.mode, backfill=self.backfill
        )
        session.query(twin, name=self.twin, sink=weft.to_memory(), backfill=self.backfill)

    @property
    def twin(self) -> str:
        """The name of the query that gives the rows."""
        return f"rows_{self.name}"

    def check(self, session: weft.Session, run: LocalRun) -> None:
        """Compare the groups with those of the rows that the twin gave."""
        given = run.results(self.name)
        if self.mode == "update":
            given = last_per_key(given)
        expected = groups_of_rows(session.parse(self.text), run.results(self.twin))
        assert rounded(given) == rounded(expected), self


def _restless_session(rng: random.Random) -> weft.Session:
    session = weft.Session(options=weft.Options(partitions=rng.choice((1, 2, 3))), **restless(rng))
    made_restless(session, rng, {name: ["k", "x", "s"] for name in STREAMS})
    for name in STREAMS:
        session.stream(name, SCHEMA, event_time="ts", lateness="2 seconds")
    for number, text in enumerate(_KEPT):
        session.query(text, name=f"kept{number}", sink=weft.to_memory())
    return session


@pytest.mark.parametrize("seed", quick(seeds(30), 2))
def test_groups_of_queries_that_come_and_go(seed: int) -> None:
    """Groups would be lost with a plan, begin anew, miss the past, or be mixed with those of a query that went."""
    rng = random.Random(seed)
    session, tables = _restless_session(rng), random_tables(rng, 20)
    run, asked, numbers = LocalRun(session), dict[str, Asked](), count()
    for batch in split(rng, tables, rng.randint(2, 6)):
        for _ in range(rng.randint(0, 2)):
            one = Asked.random(rng, next(numbers))
            one.begin(session)
            asked[one.name] = one
        run.batch(batch)
        if asked and rng.random() < 0.2:
            gone = asked.pop(rng.choice(sorted(asked)))
            run.stop_query(gone.name)
    run.end()
    for one in asked.values():
        one.check(session, run)


def test_the_group_of_no_rows() -> None:
    """Counting nothing gives 0 when the input ends, in both modes, as in SQL."""
    session = weft.Session(options=weft.Options(partitions=3), adapt="off")
    for name in STREAMS:
        session.stream(name, SCHEMA, event_time="ts", lateness="2 seconds")
    text = "SELECT count(*) AS n, sum(a.x) AS x FROM a [RANGE 5 SECONDS], b [RANGE 5 SECONDS] WHERE a.k = b.k"
    for mode in MODES:
        session.query(text, name=mode, sink=weft.to_memory(), mode=mode)
    run = LocalRun(session)
    run.batch(
        {
            name: pa.Table.from_pylist([], schema=table.schema)
            for name, table in random_tables(random.Random(0), 1).items()
        }
    )
    run.end()
    for mode in MODES:
        assert run.results(mode).to_pylist() == [{"n": 0, "x": None}]


@pytest.mark.parametrize("seed", seeds(6))
def test_late_tuples_that_join_change_the_groups_there_are(seed: int) -> None:
    """A group that was given up would begin anew with a late tuple, and replace what readers have of it."""
    rng = random.Random(seed)
    session = weft.Session(options=weft.Options(partitions=rng.choice((1, 3))), adapt="off")
    session.stream("a", SCHEMA, event_time="ts", lateness="1 second", late="join")
    text = "SELECT k AS k0, window.start AS w0, count(*) AS n, sum(x) AS x FROM a GROUP BY k, window(ts, '4 seconds')"
    session.query(text, name="u", sink=weft.to_memory(), mode="update")
    distinct = "SELECT DISTINCT k, x % 2 AS p FROM a"
    session.query(distinct, name="d", sink=weft.to_memory())
    tables = {"a": random_tables(rng, 60)["a"].take(rng.sample(range(60), 60))}
    run = LocalRun(session)
    for batch in split(rng, tables, 15):
        run.batch(batch)
    for name, query in (("u", text), ("d", distinct)):
        given = run.results(name) if name == "d" else last_per_key(run.results(name))
        assert rounded(given) == rounded(reference_join(session.parse(query), tables))
