"""Partitions that become others every few batches, 1 → 7 → 3 …: no row is lost, and none is found twice."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from tests.equivalence.grouped import random_session, random_tables, random_text, rounded
from tests.equivalence.heavy import scatter
from tests.equivalence.options import random_options
from tests.equivalence.oracle import Oracle, differs, run
from tests.equivalence.streams import Join, random_join
from tests.equivalence.test_derived import split
from tests.equivalence.test_grouped import last_per_key
from tests.equivalence.test_many_partitions import HopsApart
from tests.equivalence.theta import random_theta
from tests.shares import quick, rare, seeds
from weft.optimizer.single.strategies import STRATEGIES, optimise
from weft.plan.physical.lower import lower
from weft.runtime.loop.scaling import Scaling, TaskLoad
from weft.stats.statistics import Statistics, StreamStatistics
from weft.testing import LocalRun, reference_join

NAMES = [name for name in STRATEGIES if name != "exhaustive"]
COUNTS = (1, 2, 3, 4, 7)
MET = {
    "a partitioned store": 0.5,
    "a scattered store": 0.1,
    "a replicated store": 0.1,
    "heavy values": 0.1,
    "several changes": 0.5,
}


class RestlessPartitions:
    """Has another number of partitions with every batch or two."""

    may_grow = False

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(f"partitions {seed}")

    def next_scaling(self, seen: TaskLoad) -> Scaling | None:
        """Another number of partitions, and the same tasks."""
        partitions = self.rng.choice(COUNTS)
        return Scaling("scaled", seen.wanted, "a test", "a draw", partitions=partitions)


def check(seed: int, join: Join, met: Counter[str], *, heavy: bool) -> None:
    rng = random.Random(seed)
    rates = {s.name: StreamStatistics(rate=10 ** rng.uniform(0, 4)) for s in join.catalog.streams}
    options = random_options(seed, NAMES[seed % len(NAMES)])
    plan = optimise(join.query, Statistics(rates), options)
    graph = lower(scatter(plan, seed) if heavy else plan)
    runner = run(join, graph, partitions=options.partitions, scaler=RestlessPartitions(seed))
    wrong = differs(Oracle.of(join), runner.results(), runner.metrics)
    assert not wrong, f"seed {seed}: {wrong}: {join.query}"
    changes = [change for change in runner.loop.scaling.changes if change.way == "repartitioned"]
    met.update({f"a {store.layout.kind} store" for store in graph.stores if changes})
    met.update({"heavy values" for store in graph.stores if changes and store.layout.heavy})
    met.update(["several changes"] * (len(changes) > 1))


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("block", quick(range(3)))
def test_partitions_that_change_answer_like_the_definition(
    block: int, apart: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A row in two partitions is found twice, and one in none is lost."""
    if apart:
        monkeypatch.setattr("tests.local_runner.LocalExecutor", HopsApart)
    met: Counter[str] = Counter()
    for seed in seeds(10, block):
        join = random_theta(seed) if seed % 4 == 3 else random_join(seed)
        check(seed, join, met, heavy=seed % 2 == 0 and seed % 4 != 3)
    assert not rare(met, MET, len(seeds(10))), met


@pytest.mark.parametrize("seed", quick(seeds(100), 8))
def test_groups_while_partitions_change(seed: int) -> None:
    """A group would be in two partitions, or in one that its rows no longer go to."""
    rng = random.Random(seed)
    text = random_text(rng)
    updates = "SELECT DISTINCT" not in text and "session_window" not in text
    session = random_session(rng, q=(text, "append"), **({"u": (text, "update")} if updates else {}))
    tables, run = random_tables(rng, 25), LocalRun(session)
    for batch in split(rng, tables, rng.randint(3, 7)):
        run.batch(batch)
        run._loop.scaling.ask_partitions(rng.choice(COUNTS))
    run.end()
    expected = rounded(reference_join(session.parse(text), tables))
    assert rounded(run.results("q")) == expected, text
    if updates and "HAVING" not in text and run.results("u").num_rows:
        assert rounded(last_per_key(run.results("u"))) == expected, text


def write(folder: Path, number: int) -> None:
    for name in ("a", "b", "c"):
        keys = [(7 * n + len(name)) % 40 if n % 9 else None for n in range(100)]
        numbers = range(1000 * number, 1000 * number + 100)
        table = pa.table({"k": pa.array(keys, pa.int64()), "x": numbers})
        (folder / name).mkdir(exist_ok=True)
        pq.write_table(table, folder / name / f"{number}.parquet")


@pytest.mark.parametrize("counts", [(2, 5, 1), (4, 4, 3)])
def test_a_session_goes_on_with_another_number_of_partitions(tmp_path: Path, counts: tuple[int, ...]) -> None:
    """Started again with other partitions, or scaled while it runs, it knows what it knew, and copies none of it."""
    texts = {
        "inner": "SELECT a.x AS a, b.x AS b FROM a, b WHERE a.k = b.k",
        "order": "SELECT a.x AS a, c.x AS c FROM a, c WHERE a.x BETWEEN c.x - 3 AND c.x + 3",
    }
    for number, count in enumerate(counts):
        options = weft.Options(partitions=count)
        session = weft.Session(checkpoint=tmp_path / "ck", execution="local", options=options)
        for name in ("a", "b", "c"):
            session.stream(name, weft.files("parquet", tmp_path / name, schema="k long, x long"))
        for name, text in texts.items():
            session.query(text, name=name, sink=weft.to_parquet(tmp_path / "out" / name))
        write(tmp_path, 2 * number)
        session.start()
        try:
            session.process_all_available()
            session.scale(partitions=count + 2)
            write(tmp_path, 2 * number + 1)
            session.process_all_available()
            changes = [change for change in session.plan_history if change.way == "repartitioned"]
            assert changes
            assert "partitions were asked for" in changes[-1].reason
        finally:
            session.stop()
    tables = {name: pq.read_table(tmp_path / name) for name in ("a", "b", "c")}
    for name in ("inner", "order"):
        query = weft.Session()
        for stream in tables:
            query.stream(stream, "k long, x long")
        expected = reference_join(query.query(texts[name]).query, tables)
        found = pq.read_table(tmp_path / "out" / name).drop_columns(["batch"])
        assert Counter(map(str, found.to_pylist())) == Counter(map(str, expected.to_pylist())), name
