"""Files appended while a session runs, on a machine that is busy: every result once, and no tuple stored twice."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.shares import seeds
from tests.spark.appending import differences, executed, load
from tests.spark.appending_trials import Trial

TRIALS = 1  # of each kind


@pytest.mark.ci  # it keeps all cores busy
@pytest.mark.parametrize("execution", ["jobs", "resident", "local"])
def test_files_appended_under_load_give_the_definition(spark: Any, tmp_path: Path, execution: str) -> None:
    """Under load batches get larger, overlap with commits and follow each other in other orders than on a quiet day."""
    wrong = {}
    with load(os.cpu_count() or 1), executed(execution):
        for seed in seeds(TRIALS):
            (root := tmp_path / str(seed)).mkdir()
            trial = Trial.drawn(seed, execution)
            if found := differences(trial, spark, root):
                wrong[trial] = found
    assert wrong == {}
