"""What a batch did, kept and logged."""

from __future__ import annotations

import json
import logging

import pytest

from weft.logical.codec import encode
from weft.runtime.observe.log_lines import batch_fields, log_batch
from weft.runtime.observe.metrics import Backlog, BatchMetrics, StoreMetrics
from weft.stats.input_figures import InputFigures, StepFigures

BATCH = BatchMetrics(
    number=3,
    order=("w", "v"),
    inputs={"v": InputFigures(10, 1, 2, 3, oldest=5, newest=9), "w": InputFigures(20, late=4)},
    steps={"v: 1": StepFigures(10, 30)},
    stores={"v": StoreMetrics(10, 100, 1), "v⋈w": StoreMetrics(5, 50, 2)},
    results=30,
    watermarks={"videos": 4},
    seconds=(0.1, 0.25),
    started=1700000000.5,
    elapsed=0.5,
    backlog={"videos": Backlog(2, 200, 4096, 1.5)},
)


def test_metrics_survive_json() -> None:
    """They are kept in manifests, and a restarted session goes on with them."""
    assert BatchMetrics.from_dict(json.loads(json.dumps(encode(BATCH)))) == BATCH


def test_metrics_of_an_earlier_version_are_read() -> None:
    """What it did not measure is as by default."""
    data = json.loads(json.dumps(encode(BATCH)))
    for name in ("started", "elapsed", "backlog", "seconds"):
        del data[name]
    for one in data["inputs"].values():
        for name in ("malformed", "oldest", "newest"):
            one.pop(name, None)
    found = BatchMetrics.from_dict(data)
    assert (found.elapsed, found.backlog, found.seconds) == (0.0, {}, ())
    assert found.inputs["v"] == InputFigures(10, 1, 2)


def test_a_batch_is_one_line_of_flat_json(caplog: pytest.LogCaptureFixture) -> None:
    """So that any collector can read it."""
    with caplog.at_level(logging.INFO, logger="weft"):
        log_batch("trolls", BATCH)
    (record,) = caplog.records
    assert (record.name, record.levelname) == ("weft", "INFO")
    message = record.getMessage()
    assert "\n" not in message
    found = json.loads(message)
    assert found == batch_fields("trolls", BATCH)
    assert all(isinstance(value, str | int | float) for value in found.values())
    expected = {
        "event": "batch", "query": "trolls", "batch": 3, "results": 30, "rows": 30, "rows.w": 20, "late": 5,
        "malformed.v": 3, "state_rows": 15, "state_bytes.v⋈w": 50, "probes.v: 1": 10, "matches.v: 1": 30,
        "hop_seconds.1": 0.25, "watermark.videos": 4, "backlog.videos": 2, "driver_order": "w v", "elapsed": 0.5,
    }  # fmt: skip
    assert {name: found[name] for name in expected} == expected


def test_a_silent_logger_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """Most users never turn it on."""
    with caplog.at_level(logging.WARNING, logger="weft"):
        log_batch("trolls", BATCH)
    assert not caplog.records
