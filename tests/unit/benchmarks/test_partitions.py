"""What `weft bench partitions` makes of its figures."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.partitions import MANY, main, partitions_table, per_partition, verdicts


def run(partitions: int, driver: float, size: int, seconds: float) -> dict[str, Any]:
    """The figures of a run of three batches, whose median is the second."""
    return {
        "results": 7,
        "seconds": [seconds, seconds, 99.0],
        "driver": [0.0, driver, 1.0],
        "log_bytes": [0, size, 10**9],
        "files": [partitions] * 3,
        "messages": [4] * 3,
        "message_bytes": [1000] * 3,
    }


def test_what_grows_is_divided_by_the_partitions_that_came() -> None:
    """What a batch costs on two partitions is no price of partitions."""
    runs = {2: run(2, 0.010, 4_000, 0.1), MANY: run(MANY, 0.0163, 10_300, 1.6)}
    assert per_partition(runs, "driver") == pytest.approx(0.00005)
    assert per_partition(runs, "log_bytes") == pytest.approx(50)
    assert per_partition({2: runs[2]}, "driver") is None
    assert [reached for _, reached in verdicts(runs)] == [True, True, False]
    assert verdicts({2: runs[2]}) == []
    assert partitions_table(runs, "a join").row_count == 2


@pytest.mark.parametrize("wrong", [["--drop", "12"], ["--partitions", "0"]])
def test_options_that_measure_nothing_are_refused(wrong: list[str]) -> None:
    with pytest.raises(SystemExit):
        main(wrong)
