"""A checkpoint of two queries, as a session leaves it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.unit.runtime.joins import session
from weft.bucket.bounds import Bounds
from weft.logical.codec import encode
from weft.logical.query.canonical import canonical
from weft.optimizer.single.strategies import optimise
from weft.optimizer.space import Options
from weft.plan.physical.graph import CODEC
from weft.plan.physical.lower import lower_workload
from weft.plan.workload import share
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.log.values import BatchPlan, Blueprint, Manifest
from weft.runtime.queries.request import QueryRequest
from weft.runtime.state.partition_manifest import PartitionManifest, StoredRun, StoreTotals
from weft.runtime.state.segment_file import BUCKETS, write_segment

COUNTED = "SELECT a.x AS x, b.uid AS uid FROM v [RANGE 5 SECONDS] AS a, w [ROWS 10] AS b WHERE a.vid = b.vid"
PAIR = "SELECT v.x AS x, w.uid AS uid FROM v [RANGE 5 SECONDS], w [RANGE 3 SECONDS] WHERE v.vid = w.vid"
QUERIES = {"counted": COUNTED, "pair": PAIR}
STOPPED = {"old": "stopped", "wrong": "failed: SinkError: no room"}
V = "v partitioned by v.vid"
W = "w partitioned by w.vid"
ROWS = "w$rows partitioned by `w$rows`.vid"

IDENTITY: dict[str, Any] = {
    "streams": {"v": ["vid long, x long, ts timestamp", "ts"], "u": ["vid long", None]},
    "partitions": 2,
}


def blueprint() -> Blueprint:
    """Two queries that share the store of v, and two that have stopped."""
    made = {name: canonical(session().parse(text)) for name, text in QUERIES.items()}
    options = Options(partitions=2, strategy="flat")
    plan = share({name: optimise(one.query, session().statistics, options) for name, one in made.items()})
    requests = {name: encode(QueryRequest(one.query, one.names)) for name, one in made.items()}
    return Blueprint(lower_workload(plan).to_json(), CODEC.dumps(plan), requests, STOPPED)


def checkpoint(root: Path) -> Checkpoint:
    """A checkpoint that a session holds, with three batches, of which the last two are kept."""
    made = Checkpoint.at(root)
    made.open(**IDENTITY)
    made.claim()
    for number in range(3):
        _write_plan(made, number)
        made.commit(left := _manifest(made, number))
        made.list_files(number)
        made.tidy(left)
    return made


def _write_plan(made: Checkpoint, number: int) -> None:
    name = made.write_blueprint(blueprint())
    made.write_plan(BatchPlan(number, 0, name))


def _manifest(made: Checkpoint, number: int) -> Manifest:
    def run(name: str, rows: int, first: int, last: int) -> StoredRun:
        made.storage.put(f"{BUCKETS}/{name}", b"x" * rows)
        return StoredRun(name, 0, rows, number, Bounds(rows, 10 * rows, first, last))

    runs: list[dict[str, tuple[StoredRun, ...]]] = [
        {
            "v⋈w": (run(f"{number}-c", 1, 5, 5),),
            V: (run(f"{number}-a", 3, 1, 5), run(f"{number}-b", 2, 0, 9)),
        },
        {V: (run("1", 4, 3, 4),), ROWS: (run(f"{number}-d", 6, 90, 95),)},
    ]
    files, totals = {}, dict[str, StoreTotals]()
    for place, mine in enumerate(runs):
        name = f"{number}-{place}-m"
        sizes = {one.segment: one.length for some in mine.values() for one in some}
        retired = ((number, f"{number - 1}-{place}-m"),) if number else ()
        manifest = PartitionManifest(number, mine, {**sizes, name: 0}, retired)
        (Path(made.storage.locate(BUCKETS)) / name).unlink(missing_ok=True)
        files[place] = write_segment(made.storage, name, [], manifest)
        for store, some in mine.items():
            found = StoreTotals.of_bounds(one.bounds for one in some)
            totals[store] = totals.get(store, StoreTotals()).plus(found)
    known = {"arrived": {"v": 9, "w": 6}, "results": {"pair": 12}}
    begun = dict.fromkeys(totals, 0)
    return Manifest(number, files, totals, begun, {"v": 7}, blueprint=blueprint().name, **known)  # type: ignore[arg-type]
