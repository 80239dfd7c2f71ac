"""The video platform of AJoin's introduction on local Spark: four streams of files, three joins, one job per batch.

Run it with `make demo`, or `python examples/video.py` where Weft is installed. It needs Java 17 or newer.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

import weft
from weft.service.pipeline import load_pipeline

HERE = Path(__file__).parent
FILES, ROWS = 6, 20_000  # per stream; each file is a second of events


def write_streams(root: Path) -> None:
    """Files of generated events: what people watch, comment on and react to."""
    rng = np.random.default_rng(7)
    for number in range(FILES):
        moments = number * 1_000_000 + np.sort(rng.integers(0, 1_000_000, ROWS))
        times = pa.array(moments).cast(pa.timestamp("us", "UTC"))
        users, videos = rng.integers(0, 20_000, ROWS), rng.integers(0, 5_000, ROWS)
        tables = {
            "videos": {
                "vid": videos,
                "length": rng.integers(5, 600, ROWS),
                "geo": _one_of(rng, "US", "GER", "EU"),
                "lang": _one_of(rng, "ENG", "GER"),
            },
            "views": {
                "usr": users,
                "vid": rng.permutation(videos),
                "duration": rng.integers(1, 120, ROWS),
                "geo": _one_of(rng, "US", "GER", "EU"),
            },
            "comments": {
                "usr": rng.permutation(users),
                "comment": _one_of(rng, "nice", "boo", "first!"),
                "length": rng.integers(1, 12, ROWS),
                "photo": rng.random(ROWS) < 0.1,
                "emojis": rng.integers(0, 3, ROWS),
            },
            "reactions": {"usr": rng.permutation(users), "reaction": _one_of(rng, "like", "love", "angry")},
        }
        for name, columns in tables.items():
            folder = root / name
            folder.mkdir(parents=True, exist_ok=True)
            pq.write_table(pa.table({**columns, "ts": times}), folder / f"{number}.parquet")


def _one_of(rng: np.random.Generator, *texts: str) -> list[str]:
    return [str(text) for text in rng.choice(texts, ROWS)]


def main() -> None:
    """Write the files, join them, show what happened."""
    console = Console()
    pipeline = load_pipeline(HERE / "video.yaml")
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        write_streams(root / "in")
        session = weft.Session(
            checkpoint=root / "checkpoint", master="local[2]", options=weft.Options(partitions=2)
        )
        for stream in pipeline.session.catalog.streams:
            schema = str(stream.schema).replace(" int", " long")
            source = weft.files(
                "parquet", str(root / "in" / stream.name), schema=schema, max_files_per_batch=1
            )
            session.stream(stream.name, source, event_time="ts", lateness="1 second")
        sinks = {name: weft.to_memory() for name in pipeline.queries}
        for name, sql in pipeline.queries.items():
            console.print(
                session.query(sql, name=name, sink=sinks[name]).explain(), highlight=False, soft_wrap=True
            )
        console.print("Starting Spark; the first batch also compiles the kernels …")
        began = time.perf_counter()
        session.start(available_now=True)
        session.await_termination()
        table = Table(title=f"{FILES} batches of {4 * ROWS:,} events in {time.perf_counter() - began:.1f} s")
        for head in ("query", "results", "first row"):
            table.add_column(head)
        for name, sink in sinks.items():
            found = sink.results()
            table.add_row(
                name, f"{found.num_rows:,}", str(found.slice(0, 1).to_pylist()[0]) if found else "-"
            )
        console.print(table)
        last = session.progress["trolls"][-1]
        console.print(f"last batch of trolls: {last.results:,} results, seconds per hop {last.seconds}")
        session.stop()


if __name__ == "__main__":
    main()
