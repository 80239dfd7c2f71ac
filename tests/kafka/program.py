"""A session from two topics to a third, to be killed: `python -m tests.kafka.program ADDRESS LEFT RIGHT OUT FOLDER`.

It runs until it is killed, or with a further argument `end` until all input that is there has been processed.
"""

from __future__ import annotations

import sys

import weft


def main() -> None:
    address, left, right, out, checkpoint, *end = sys.argv[1:]
    session = weft.Session(checkpoint=checkpoint, execution="local")
    for name, topic in (("l", left), ("r", right)):
        source = weft.kafka(address, topic, schema="id long, ts timestamp", max_records_per_batch=40)
        session.stream(name, source, event_time="ts", lateness="1 hour")
    session.query(
        "SELECT l.id FROM l [RANGE 1 HOUR], r [RANGE 1 HOUR] WHERE l.id = r.id",
        name="q",
        sink=weft.to_kafka(address, out, key="id"),
    )
    session.start()
    print("started", flush=True)
    if end:
        session.process_all_available()
        session.stop()
    else:
        session.await_termination()


if __name__ == "__main__":
    main()
