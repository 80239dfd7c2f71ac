"""The keys of a join on one key, counted: what progress tells of them, and what a key with too many results costs."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa

from tests.local_runner import LocalRunner
from weft.logical.codec import encode
from weft.logical.query.canonical import canonical
from weft.optimizer.single.strategies import optimise
from weft.optimizer.space import Options
from weft.plan.physical.lower import lower_workload
from weft.plan.workload import share
from weft.runtime.observe.metrics import BatchMetrics, KeyMetrics, next_keys
from weft.session.session import Session

FULL = "SELECT k, a.n AS an, b.n AS bn FROM a FULL JOIN b USING (k)"
INNER = "SELECT a.k, a.n AS an, b.n AS bn FROM a, b WHERE a.k = b.k"


def session() -> Session:
    """Two streams of keys and numbers."""
    made = Session(options=Options(partitions=2))
    for name in "ab":
        made.stream(name, "k long, n long")
    return made


def runner_of(sql: str = FULL, limit: int = 1000) -> LocalRunner:
    """A query alone."""
    return LocalRunner(session().query(sql, name="q").graph, limit=limit)


def keyed(*keys: int | None, first: int = 0) -> pa.Table:
    """Tuples of these keys, numbered."""
    numbers = range(first, first + len(keys))
    return pa.table({"k": pa.array(keys, pa.int64()), "n": pa.array(numbers, pa.int64())})


def keys_of(runner: LocalRunner, name: str = "q") -> tuple[int, int, int, int, int]:
    """Seen, complete, dangling, open and set aside."""
    keys = runner.metrics[-1].keys[name]
    return keys.seen, keys.complete, keys.dangling, keys.open, keys.aside


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Sorted, NULL last."""
    return sorted((tuple(row.values()) for row in table.to_pylist()), key=str)


def test_keys_are_counted_once() -> None:
    """Progress would tell more keys than there are, or that keys are open that have long been complete."""
    runner = runner_of()
    runner.process({"a": keyed(1, 1, 2, None)})
    assert keys_of(runner) == (2, 0, 0, 2, 0)
    runner.process({"a": keyed(1, 3), "b": keyed(1, None)})
    assert keys_of(runner) == (3, 1, 0, 2, 0)
    runner.process({"b": keyed(1, 2, 4, 4)})
    assert keys_of(runner) == (4, 2, 0, 2, 0)
    runner.process({})
    assert keys_of(runner) == (4, 2, 0, 2, 0)
    runner.end()
    assert keys_of(runner) == (4, 2, 2, 0, 0)


def test_keys_of_windowed_and_of_theta_joins_are_not_counted() -> None:
    """Their keys come and go, or are none: figures of them would mean nothing."""
    for sql in (
        "SELECT a.n FROM a [RANGE 5 SECONDS] LEFT JOIN b ON a.k = b.k",
        "SELECT a.n FROM a LEFT JOIN b ON a.k < b.k",
        "SELECT a.n FROM a ANTI JOIN b ON a.k = b.k",
    ):
        runner = runner_of(sql)
        runner.process({"a": keyed(1), "b": keyed(1)})
        assert runner.metrics[-1].keys == {}


def test_a_key_with_too_many_results_is_told_and_its_new_tuples_set_aside() -> None:
    """One default value in two sources, as "unknown", would fill the disk with its product, or stop everything."""
    runner = runner_of(limit=6)
    runner.process({"a": keyed(7, 7, 7, 1), "b": keyed(7, 7)})
    assert keys_of(runner) == (2, 1, 0, 1, 0)
    assert runner.results().num_rows == 6
    # 4 × 2 would be 8: the tuple stays out, other keys of the batch do not.
    assert rows(runner.process({"a": keyed(7, first=90), "b": keyed(1, first=90)})) == [(1, 3, 90)]
    assert keys_of(runner) == (2, 2, 0, 0, 1)
    assert runner.metrics[-1].keys["q"].too_many == ({"key": "7", "a": 4, "b": 2},)
    # What was set aside is not there later, either, and is told once.
    runner.process({"a": keyed(5)})
    assert not runner.metrics[-1].keys["q"].too_many
    assert keys_of(runner) == (3, 2, 0, 1, 1)
    assert rows(runner.end()["q"]) == [(5, 0, None)]
    assert runner.results().num_rows == 8


def test_the_limit_is_of_results_not_of_tuples() -> None:
    """Many tuples of one source alone have few results: each one, padded."""
    runner = runner_of(limit=4)
    runner.process({"a": keyed(1, 1, 1, 1)})
    assert keys_of(runner)[-1] == 0
    runner.process({"a": keyed(1)})
    assert keys_of(runner)[-1] == 1
    assert runner.end()["q"].num_rows == 4


def test_others_keep_what_is_set_aside_for_one() -> None:
    """A query's limit must not change the answer of those that share its stores."""
    made = session()
    plans = {
        name: optimise(canonical(made.parse(sql)).query, made.statistics, made.options)
        for name, sql in {"full": FULL, "inner": INNER}.items()
    }
    runner = LocalRunner(lower_workload(share(plans)), limit=3)
    assert [store.users for store in runner.graph.stores] == [("full", "inner")] * 2
    runner.process_all({"a": keyed(7, 7), "b": keyed(7, 7)})
    assert (runner.results("full").num_rows, runner.results("inner").num_rows) == (0, 4)
    assert keys_of(runner, "full") == (0, 0, 0, 0, 4)
    assert list(runner.metrics[-1].keys) == ["full"]
    found = runner.process_all({"a": keyed(7, first=9)})
    assert (found["full"].num_rows, found["inner"].num_rows) == (0, 2)
    # For the query that set them aside they have never come: its next tuple of the key is the only one.
    assert keys_of(runner, "full") == (1, 0, 0, 1, 4)
    assert rows(runner.end()["full"]) == [(7, 9, None)]


def test_alone_what_is_set_aside_is_not_stored() -> None:
    """It would take up state that nobody reads."""
    runner = runner_of(limit=3)
    runner.process({"a": keyed(7, 7), "b": keyed(7, 7)})
    assert sum(store.rows for store in runner.metrics[-1].stores.values()) == 0


def test_figures_of_keys_survive_a_restart() -> None:
    """They go on from the manifest of the last batch, which is JSON."""
    keys = KeyMetrics(9, 4, 1, 2, ({"key": "7", "a": 4, "b": 2},))
    metrics = BatchMetrics(0, (), {}, {}, {}, 0, keys={"q": keys})
    again = BatchMetrics.from_dict(json.loads(json.dumps(encode(metrics))))
    assert again.keys == {"q": keys}
    assert next_keys(again.keys, [], []) == {"q": KeyMetrics(9, 4, 1, 2)}
    assert keys.open == 4
