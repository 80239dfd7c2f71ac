"""The program that is killed: `python -m tests.lakes.program ROOT KIND PLACE`.

It joins the files of two folders in this process and writes the results to a table, from where its checkpoint stands,
until the file `ROOT/last` is there and all input is processed. KIND is the sink's: delta, postgres or iceberg.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import weft
from weft.ports.sink import Sink

FILES = 12
ROWS = 20
QUERY = "SELECT a.k, a.c, b.ts FROM a, b WHERE a.k = b.k"


def sink_for(kind: str, place: str) -> Sink:
    """The sink of a kind: a path, a connection with the table `results`, or a catalog's directory."""
    if kind == "delta":
        return weft.to_delta(place)
    if kind == "postgres":
        return weft.to_postgres(place, "results")
    if kind == "iceberg":
        return weft.to_iceberg(
            {"type": "sql", "uri": f"sqlite:///{place}/catalog.db", "warehouse": place}, "lake.t"
        )
    raise ValueError(kind)


def batch(number: int) -> pa.Table:
    """The rows of both streams in one file; each has one partner in the other stream."""
    keys = range(number * ROWS, (number + 1) * ROWS)
    times = pa.array([key * 1000 for key in keys], pa.int64()).cast(pa.timestamp("us", "UTC"))
    texts = pa.array([(None, "é,\n\"'", "US")[key % 3] for key in keys], pa.string())
    return pa.table({"k": pa.array(keys, pa.int64()), "c": texts, "ts": times})


def write_input(root: Path, number: int) -> None:
    """Bring the files of a number, so that they are seen as a whole."""
    for stream in "ab":
        hidden, path = root / stream / f".{number}.tmp", root / stream / f"{number}.parquet"
        hidden.parent.mkdir(exist_ok=True)
        pq.write_table(batch(number), hidden)
        hidden.rename(path)


def make_session(root: Path, **settings: Any) -> weft.Session:
    """A session that goes on where the last one stood; unless the settings say otherwise, it runs in this process."""
    session = weft.Session(checkpoint=root / "checkpoint", **{"execution": "local", **settings})
    for stream in "ab":
        source = weft.files("parquet", str(root / stream), schema="k long, c string, ts timestamp")
        session.stream(stream, source, event_time="ts")
    return session


def main(root: Path, kind: str, place: str) -> None:
    """Run until there is nothing more to do."""
    session = make_session(root)
    session.query(QUERY, name="results", sink=sink_for(kind, place))
    session.start()
    while not (root / "last").exists():
        time.sleep(0.01)
        session.process_all_available()
    session.process_all_available()
    session.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
