"""The process of one contender: `python -m benchmarks._contender TASK ANSWER`, both JSON files."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from benchmarks._joins import JOINS, Task
from benchmarks._spark_peers import run_batch, run_streaming
from benchmarks._weft_run import run_weft

RUNS = {"weft": run_weft, "hdfs": run_streaming, "rocksdb": run_streaming, "batch": run_batch}


def main(question: str, answer: str) -> None:
    """Run the contender that the task names."""
    task = Task(**json.loads(Path(question).read_text(encoding="utf-8")))
    found = RUNS[task.contender](JOINS[task.join], task)
    Path(answer).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
