"""One run of Weft on some master: `python -m benchmarks._cluster_run TASK ANSWER`, for `weft bench cluster`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from benchmarks._data import SCHEMA
from benchmarks._joins import JOINS, KEYS, RATE
from benchmarks._progress import wait_for_weft, weft_batches

import weft

__all__ = ["main"]


def run(task: dict[str, Any]) -> dict[str, Any]:
    """Join all input that there is, and return how many rows every batch had and how many seconds it took."""
    join = JOINS[task["join"]]
    known = weft.StreamStatistics(rate=RATE, distinct={"vid": KEYS, "uid": KEYS})
    session = weft.Session(
        checkpoint=f"{task['work']}/checkpoint",
        master=task["master"],
        execution=task["execution"],
        statistics=weft.Statistics(dict.fromkeys(join.streams, known)),
        options=weft.Options(partitions=task["cores"]),
        adapt="off",
    )
    for name in join.streams:
        source = weft.files("parquet", f"{task['data']}/{name}", schema=SCHEMA, max_files_per_batch=1)
        session.stream(name, source, event_time="ts")
    session.query(join.weft_sql(), name=join.name, sink=weft.to_parquet(f"{task['work']}/out"))
    session.start(available_now=True)
    wait_for_weft(session, f"{task['master']}, {task['execution']}")
    by_number = {batch.number: batch for batch in session.progress[join.name]}
    timed = [(by_number[number], alone, whole) for number, alone, whole in weft_batches(session)]
    session.stop()
    return {
        "rows": [sum(one.rows for one in batch.inputs.values()) for batch, _, _ in timed],
        "seconds": [alone for _, alone, _ in timed],
        "latencies": [whole for _, _, whole in timed],
        "tasks": [list(batch.seconds) for batch, _, _ in timed],
    }


def main(question: str, answer: str) -> None:
    """Answer a question that is a file of JSON."""
    task = json.loads(Path(question).read_text(encoding="utf-8"))
    Path(answer).write_text(json.dumps(run(task)), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
