"""A session from two topics to a third, to be killed: `… tests.kafka.program ADDRESS LEFT RIGHT OUT FOLDER REGISTRY`.

Values are Avro by the schemas of the registry, or JSON if it is `-`. It runs until it is killed, or with a further
argument `end` until all input that is there has been processed.
"""

from __future__ import annotations

import sys
from typing import Any

import weft


def main() -> None:
    address, left, right, out, checkpoint, registry, *end = sys.argv[1:]
    values: dict[str, Any] = {} if registry == "-" else {"format": "avro", "registry": registry}
    session = weft.Session(checkpoint=checkpoint, execution="local")
    for name, topic in (("l", left), ("r", right)):
        columns = "id long, ts timestamp"
        source = weft.kafka(address, topic, schema=columns, max_records_per_batch=40, **values)
        session.stream(name, source, event_time="ts", lateness="1 hour")
    session.query(
        "SELECT l.id FROM l [RANGE 1 HOUR], r [RANGE 1 HOUR] WHERE l.id = r.id",
        name="q",
        sink=weft.to_kafka(address, out, key="id", **values),
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
