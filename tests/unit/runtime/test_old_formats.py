"""Values of the log in the form in which an earlier version wrote them (design, D16).

`old_formats.json` was written by the version before the common codec. The whole of a checkpoint of that version is in
`tests/recovery/test_old_checkpoint.py`; here are the fields that its story does not fill.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from weft.logical.codec import decode, encode
from weft.logical.expr.user_functions import ConditionFigures, FunctionFigures
from weft.ports.source import Part
from weft.runtime.log.totals import QueryTotals, Totals
from weft.runtime.log.values import BatchPlan, HeldRun, KeptBatch, Manifest, Suspension
from weft.runtime.model.batch_order import BatchOrder, Clock, Count
from weft.runtime.observe.metrics import (
    Backlog,
    BatchMetrics,
    KeyMetrics,
    StoreMetrics,
)
from weft.runtime.queries.migration import StateMigration, StoreScan
from weft.runtime.state.partition_manifest import PartitionFile, StoreTotals
from weft.stats.histogram import Histogram, Latency
from weft.stats.input_figures import InputFigures, StepFigures, TupleCounts
from weft.stats.known import CallSums, Checked, JointSums, Known, StreamSums
from weft.storage.cache import CacheCounts

OLD: dict[str, Any] = json.loads((Path(__file__).parent / "old_formats.json").read_text())

METRICS = BatchMetrics(
    7,
    ("a", "b"),
    {"a": InputFigures(5, 1, 2, 3, oldest=-7, newest=9), "b": InputFigures(0)},
    {"a: 1": StepFigures(5, 4, 1)},
    {"a": StoreMetrics(3, 90, 2, 4)},
    6,
    {"q": 6},
    {"s": 11},
    (0.25, 0.5),
    1.5,
    0.75,
    {"s": Backlog(1, 2, 3, 4.5), "t": Backlog(3)},
    {"q": 2},
    3,
    {"q": KeyMetrics(9, 4, 1, 2, ({"key": "7", "a": 4},))},
    {"near": FunctionFigures(3, 0.5)},
    {"near(a.x)": ConditionFigures(9, 4)},
    (0.5, 1.0),
    {"s": {"k": ((7, 0.25), ("x", 0.125))}},
    {"q": {"rows": 4, "mark": 5, "timed": True}},
    {"q": 8},
    {"s": 0.5},
    {"q": Latency(Histogram(2, (1, 4)), Histogram(3, (5,)), 2)},
    {"t": "v3"},
    CacheCounts(3, 1, 4096, 4000),
)
MANIFEST = Manifest(
    7,
    {1: PartitionFile("0-1-f", 90, 1 << 31), 12: PartitionFile("0-12-g", 1 << 40, 7)},
    {"a by k": StoreTotals(3, 90, 2, 1, ((-5, 7), (9, 9))), "b": StoreTotals()},
    {"a by k": 3},
    held={"q": (HeldRun("0-held-u", 0, 3, -5, 90, (-5, 4), 0),)},
    proven={"d": [(1, 2)]},
    suspended={
        "q": Suspension(3, "no room", "make some", (KeptBatch(3, 5, 90, ("f", "g"), "m"), KeptBatch(4)))
    },
    given={"q": ["parquet /out", 3]},
    moved={"s": [5, 1, "f.json"]},
    totals=Totals(8, 2.5, 9, {"q": QueryTotals(0, 8, 9, 2)}, {"s": TupleCounts(5, 1, 2, 3)}),
)
PLAN = BatchPlan(
    7,
    12,
    "blue",
    inputs={
        "s": (
            Part({"file": "f"}, 9),
            Part({"partition": 0, "first": 3, "end": 9}, 9, 6, -4, (1, 2), stamped=True),
        )
    },
    begun=("q",),
    ages={"s": None, "t": 4},
    tables=("t",),
    blocked=("u",),
    resets={"s": {"marks": {"s": 4}, "asked": 2}},
)
ORDER = BatchOrder(7, ("a", "b"), 2, {"a": Count(3, 4)}, {"q": Clock(-1, 5)})
MIGRATION = StateMigration((StoreScan("a", "a by k", ("q", "r"), copies=True),), ("b",), ("q",))
KNOWN = Known(
    3,
    1.5,
    {"s": StreamSums(5.0, 2.0, 1.0, 3.0, 9, ("s", "t"), 90.0, 3.0, 3, 1.5)},
    {"p": Checked(3.0, 2.0, 1.0, 3, 1.5)},
    {("p", "q"): Checked(3.0, 2.0, 1.0, 3, 1.5)},
    {("p",): Checked(1.0, 1.0, 0.5, 3, 1.5)},
    {(("p", "q"), ("p",)): JointSums(Checked(4.0, 2.0, 1.0, 3, 1.5), 0.5, 0.25)},
    {"near": CallSums(3.0, 0.5, 3, 1.5)},
    {"p": 0.25},
)

VALUES: dict[str, Any] = {
    "metrics": METRICS,
    "manifest": MANIFEST,
    "plan": PLAN,
    "order": ORDER,
    "migration": MIGRATION,
}


@pytest.mark.parametrize("name", VALUES)
def test_an_old_value_is_read_as_what_it_was(name: str) -> None:
    """And what is written now is read as well."""
    value = VALUES[name]
    assert _read(type(value), OLD[name]) == value
    assert _read(type(value), json.loads(json.dumps(encode(value)))) == value


def _read(kind: Any, data: Any) -> Any:
    """A value as who reads the log gets it; some know of forms that are older still."""
    return kind.from_dict(data) if hasattr(kind, "from_dict") else decode(kind, data)


def test_so_are_statistics() -> None:
    """They are a text of their own."""
    assert Known.from_json(json.dumps(OLD["known"])) == Known.from_json(KNOWN.to_json()) == KNOWN


def test_fields_that_did_not_exist_yet_have_their_defaults() -> None:
    """A manifest of the first versions had neither totals nor suspensions, and counted only the parts that wait."""
    lacking = {
        name: one for name, one in OLD["manifest"].items() if name not in ("suspended", "totals", "moved")
    }
    left = Manifest.from_dict({**lacking, "results": {"q": 3}, "arrived": {"s": 5}})
    assert (left.suspended, left.moved, left.totals.results) == ({}, {}, 3)
    assert (left.totals.batches, left.totals.streams["s"].rows) == (8, 5)
    metrics = {
        name: OLD["metrics"][name] for name in ("number", "order", "inputs", "steps", "stores", "results")
    }
    assert BatchMetrics.from_dict({**metrics, "backlog": {"s": 4}}).backlog == {"s": Backlog(4)}
