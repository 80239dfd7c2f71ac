"""Tasks that change between two batches, and partitions that are shared out among them by their load."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from tests.shares import examples
from weft.errors import ConfigError
from weft.runtime.model.assignment import Assignment, balanced_owners, busiest_share, even_owners

LOADS = st.lists(st.floats(0, 100), min_size=1, max_size=20)


@examples(50)
@given(LOADS, st.integers(1, 9))
def test_no_task_has_much_more_than_the_best_assignment_would_give_it(loads: list[float], tasks: int) -> None:
    """One task would be waited for by all others."""
    load = dict(enumerate(loads))
    owners = balanced_owners(len(loads), tasks, load)
    least = max(max(loads), sum(loads) / tasks)
    if sum(loads):
        assert busiest_share(owners, tasks, load) * sum(loads) <= least * 4 / 3 + max(loads) / 3 + 1e-6
    else:
        assert owners == even_owners(len(loads), tasks)


@examples(50)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=20))
def test_places_of_partitions_are_those_of_their_tasks(owners: list[int]) -> None:
    """Rows would go to another partition than the one that their parcel says."""
    assignment = Assignment(5, tuple(owners))
    places = assignment.places().tolist()
    for task in range(5):
        for place, partition in enumerate(assignment.partitions_of(task)):
            assert places[partition] == task * assignment.width + place
    assert len(set(places)) == len(places)


def test_tasks_change_with_the_next_batch_and_the_history_says_why(tmp_path: Path) -> None:
    """Who scales by hand would not know what came of it."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    session = weft.Session(checkpoint=tmp_path / "ck", execution="local", options=weft.Options(partitions=4))
    for name in ("a", "b"):
        session.stream(name, weft.files("parquet", tmp_path / name, schema="k long"))
    query = session.query("SELECT a.k FROM a, b WHERE a.k = b.k", sink=weft.to_memory())
    session.start()
    try:
        for number, tasks in enumerate((2, 4, 1)):
            if tasks != 2:
                session.scale(tasks=tasks)
            for name in ("a", "b"):
                keys = pa.table({"k": range(100 * number, 100 * number + 100)})
                pq.write_table(keys, tmp_path / name / f"{number}.parquet")
            session.process_all_available()
        with pytest.raises(ConfigError, match="0 tasks"):
            session.scale(tasks=0)
        with pytest.raises(ConfigError, match=r"(?s)0 partitions.*scale\(partitions=8\)"):
            session.scale(partitions=0)
        with pytest.raises(ConfigError, match=r"(?s)nothing is scaled.*scale\(tasks=2\)"):
            session.scale()
    finally:
        session.stop()
    assert sorted(query.results()["k"].to_pylist()) == list(range(300))
    assert [(one.way, one.what) for one in session.plan_history] == [
        ("scaled up", "2 → 4 tasks"),
        ("scaled down", "4 → 1 tasks"),
    ]
    assert "4 tasks were asked for" in session.explain()
