"""A program on Spark that ends in one way or another: `ending_program.py CHECKPOINT EXECUTION WAY`."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import weft
from weft.runtime.spark.session import create_spark


def main(checkpoint: str, execution: str, way: str) -> None:
    """Run a query for a while and end; what is said on stderr until then ends with a line of its own."""
    spark = create_spark("local[2]")
    session = weft.Session(checkpoint=checkpoint, spark=spark, execution=execution)
    for name in ("a", "b"):
        source = weft.rate(200, k=weft.uniform(10), ts=weft.timestamps())
        session.stream(name, source, event_time="ts")
    text = "SELECT a.k FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE a.k = b.k"
    query = session.query(text, name="q", sink=weft.to_count())
    session.start()
    while not session.progress.get("q"):
        time.sleep(0.05)
    print("it runs", file=sys.stderr, flush=True)
    if way == "stop":
        session.stop()
    elif way == "java dies":
        kill_java()
        try:
            session.await_termination(60)
        except weft.WeftError as error:
            print(f"{query.name}: {error}", flush=True)
            os._exit(3)
    elif way == "interrupt":
        os.kill(os.getpid(), signal.SIGINT)
        session.await_termination()


def kill_java() -> None:
    """End the Java that this process has started."""
    for place in Path("/proc").glob("[0-9]*"):
        fields = (place / "stat").read_text().rpartition(")")[2].split() if (place / "stat").exists() else []
        if fields and int(fields[1]) == os.getpid() and "java" in (place / "comm").read_text():
            os.kill(int(place.name), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
