"""Rows without a partner: each must leave once, and not before it is sure that none comes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.local_runner import LocalRunner
from tests.unit.runtime.joins import SECOND, c, graph, session, sorted_rows, v, w
from weft.kernels.outer.tree import rows_of
from weft.optimizer.space import Options
from weft.runtime.hop import closing

LEFT = "SELECT v.x, w.uid FROM v [RANGE 5 SECONDS] LEFT JOIN w [RANGE 3 SECONDS] ON v.vid = w.vid"
FULL = "SELECT v.x, w.uid FROM v [RANGE 5 SECONDS] FULL JOIN w [RANGE 3 SECONDS] ON v.vid = w.vid"


def left(found: pa.Table) -> list[tuple[Any, ...]]:
    """The rows that left, sorted; NULL is last."""
    return sorted((tuple(row.values()) for row in found.to_pylist()), key=lambda row: str(row))


def test_a_row_leaves_once_when_no_partner_can_come() -> None:
    """A row given before its partner comes is wrong, given again it counts double, and kept back it is lost."""
    runner = LocalRunner(graph(LEFT))
    assert left(runner.process({"v": v((1, 10, 0)), "w": w((2, 7, None, 0))})) == []
    # A partner may be of up to second 5; all streams must have passed it, and the batch after that tells.
    assert left(runner.process({"v": v((3, 30, 6)), "w": w((4, 7, None, 5))})) == []
    assert left(runner.process({"w": w((4, 8, None, 5.5))})) == []
    assert left(runner.process({})) == [(10, None)]
    assert left(runner.process({})) == []
    assert left(runner.end()["query_1"]) == [(30, None)]
    assert left(runner.end()["query_1"]) == []
    assert [metrics.closed for metrics in runner.metrics] == [
        {},
        {},
        {},
        {"query_1": 1},
        {},
        {"query_1": 1},
        {},
    ]


def test_a_partner_in_the_last_moment_is_one() -> None:
    """At the very end of the window; a moment later it is none."""
    for second, expected in ((5, [(10, 7)]), (5.000001, [(10, None)])):
        runner = LocalRunner(graph(LEFT))
        runner.process({"v": v((1, 10, 0))})
        runner.process({"w": w((1, 7, None, second)), "v": v((9, 90, 20))})
        runner.process({"w": w((8, 8, None, 20))})
        runner.process({})
        assert left(runner.results()) == expected


def test_a_partner_that_came_before_counts_within_its_own_window() -> None:
    """w has a window of 3 seconds, and is stored for as long as some v may still ask for it."""
    for second, expected in ((3, [(10, 7)]), (3.5, [(10, None)])):
        runner = LocalRunner(graph(LEFT))
        runner.process({"w": w((1, 7, None, 0))})
        runner.process({"v": v((1, 10, second))})
        runner.process({"w": w((8, 8, None, 30)), "v": v((9, 90, 20))})
        runner.process({})
        assert left(runner.results()) == expected


@pytest.mark.parametrize("partitions", [1, 3])
def test_tuples_without_a_key_leave_once(partitions: int) -> None:
    """NULL joins nothing, so these rows are results for sure; no partition may drop or repeat them."""
    sql = FULL.replace("[RANGE 5 SECONDS]", "").replace("[RANGE 3 SECONDS]", "")
    made = session()
    made.options = Options(partitions=partitions)
    runner = LocalRunner(made.query(sql, name="q").graph)
    assert runner.partitions == partitions
    runner.process(
        {"v": v((None, 1, 0), (None, 2, 0), (1, 3, 0)), "w": w((None, 7, None, 0), (1, 8, None, 0))}
    )
    runner.end()
    assert left(runner.results()) == [(1, None), (2, None), (3, 8), (None, 7)]


@pytest.mark.parametrize(
    ("join", "expected"),
    [
        ("LEFT", [(1, 5), (2, 5), (6, None)]),
        ("FULL", [(1, 5), (2, 5), (6, None), (None, 0)]),
    ],
)
def test_replicated_stores_give_a_row_once(join: str, expected: list[tuple[Any, ...]]) -> None:
    """Every partition has every tuple: a row would leave once per partition."""
    made = session()
    made.options = Options(partitions=4)
    sql = f"SELECT v.x, w.uid FROM v {join} JOIN w ON v.x < w.uid"
    runner = LocalRunner(made.query(sql, name="q").graph)
    assert runner.program.sweeps[0].everywhere == (join == "FULL")
    runner.process({"v": v((1, 1, 0), (1, 2, 0), (1, 6, 0))})
    runner.process({"w": w((1, 5, None, 0), (1, 0, None, 0))})
    runner.end()
    assert left(runner.results()) == expected


def test_semi_and_anti_joins_give_a_row_once() -> None:
    """Two partners make one row of a semi join, given with the first; an anti join waits for the end of the window."""
    sql = "SELECT v.x FROM v [RANGE 5 SECONDS] {} JOIN w ON v.vid = w.vid"
    semi, anti = (LocalRunner(graph(sql.format(kind))) for kind in ("SEMI", "ANTI"))
    batches = [
        ({"v": v((1, 10, 0), (2, 20, 0)), "w": w((8, 7, None, 0))}, [], []),
        ({"w": w((1, 7, None, 1), (1, 8, None, 1))}, [(10,)], []),
        ({"w": w((1, 9, None, 2))}, [], []),
        ({"v": v((9, 90, 8)), "w": w((8, 7, None, 8))}, [], []),
        ({}, [], [(20,)]),
        ({}, [], []),
    ]
    for data, found, missing in batches:
        assert sorted_rows(semi.process(data)) == found
        assert sorted_rows(anti.process(data)) == missing


def test_a_full_row_does_not_wait() -> None:
    """What misses nothing is found by probes, in the batch of its last tuple; and it is not closed again."""
    runner = LocalRunner(graph(FULL))
    runner.process({"v": v((1, 10, 0))})
    assert left(runner.process({"w": w((1, 7, None, 1))})) == [(10, 7)]
    assert left(runner.end()["query_1"]) == []
    assert runner.metrics[-1].closed == {}


def test_a_pair_that_comes_when_its_key_is_closed_is_given_once() -> None:
    """Closing looks at all tuples of a key: what probes find among them in the same batch would leave twice."""
    runner = LocalRunner(graph(FULL))
    runner.process({"v": v((1, 10, 0), (1, 11, 9)), "w": w((2, 7, None, 9))})
    assert left(runner.process({"w": w((1, 8, None, 10))})) == [(10, None), (11, 8)]


def test_a_row_that_where_rejects_does_not_leave() -> None:
    """Conditions on padded rows are evaluated on them: those with a partner that fails are dropped, not padded."""
    runner = LocalRunner(
        graph("SELECT v.x FROM v LEFT JOIN w ON v.vid = w.vid WHERE w.uid IS NULL AND v.x > 5")
    )
    runner.process({"v": v((1, 10, 0), (2, 20, 0), (3, 1, 0)), "w": w((1, 7, None, 0))})
    runner.end()
    assert left(runner.results()) == [(20,)]


def test_a_condition_of_on_and_where_drops_rows() -> None:
    """The same term in ON and in WHERE: rows that fail it would be padded instead of dropped."""
    both = "COALESCE(v.x, w.uid) = 1"
    sql = f"""SELECT v.x, w.uid, c.t FROM (v FULL JOIN w ON v.vid = w.vid)
              LEFT JOIN c ON v.vid = c.uid AND {both} WHERE {both}"""
    runner = LocalRunner(graph(sql))
    runner.process(
        {
            "v": v((1, 1, 0), (2, 2, 0), (3, 1, 0)),
            "w": w((4, 1, None, 0), (5, 2, None, 0)),
            "c": c((1, "a", 0)),
        }
    )
    runner.end()
    assert left(runner.results()) == [(1, None, "a"), (1, None, None), (None, 1, None)]


def test_closing_looks_only_at_what_the_batch_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch in which nothing's wait ends must not evaluate the join of all that is stored."""
    looked: list[int] = []
    runner = LocalRunner(graph(LEFT))

    def counted(*args: Any) -> Any:
        looked.append(sum(relation.times.size for relation in args[1].values()))
        return rows_of(*args)

    monkeypatch.setattr(closing, "rows_of", counted)
    for second in range(8):
        runner.process({"v": v(*((100 * second + i, i, second) for i in range(50)))})
    assert looked == []  # w has not shown its time
    runner.process({"w": w((0, 7, None, 6.5))})
    runner.process({})
    assert sum(looked) == 101  # the tuples of v of seconds 0 and 1, and a w that has the key of one of them
    assert runner.results().num_rows == 100


def test_the_first_batch_of_a_query_that_waits_for_a_stream() -> None:
    """A stream that has brought nothing may bring anything: no row may leave before it shows its time."""
    runner = LocalRunner(graph(LEFT))
    for second in (0, 10, 20, 30):
        assert left(runner.process({"v": v((1, second, second))}, now=second * SECOND)) == []
    runner.process({"w": w((2, 7, None, 31))})
    assert left(runner.process({})) == [(0, None), (10, None), (20, None)]
