"""A random join's streams as files: Parquet, Arrow, JSON lines or CSV, so many of them in each batch.

Spark takes the oldest files first, so their times of change say in which batch they come. A batch without tuples of a
stream has empty files of it.
"""

from __future__ import annotations

import json
import os
import random
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pacsv
import pyarrow.parquet as pq

from tests.equivalence.streams import Join
from weft.connectors.files.source import FilesSource, files
from weft.logical.query.window import Rows

FORMATS = ("parquet", "arrow", "json", "csv")
_FIRST = 1_700_000_000  # when the first file was last changed


@dataclass(frozen=True)
class Layout:
    """How a stream is written: in which format, and in how many files of each batch."""

    format: str
    files: int


def random_layouts(join: Join, seed: int) -> tuple[Join, dict[str, Layout]]:
    """How the streams are written, and the join over what can be written so: JSON has no NaN.

    Where tuples are counted, their order matters, which is that of a file; so there is one in each batch.
    """
    rng = random.Random(seed)
    counted = {i.stream.name for i in join.query.inputs if isinstance(i.window, Rows)}
    layouts = {
        name: Layout(rng.choice(FORMATS), 1 if name in counted else rng.choice((1, 1, 2, 3)))
        for name in join.tables
    }
    tables = {
        name: _without_nan(table) if layouts[name].format == "json" else table
        for name, table in join.tables.items()
    }
    return replace(join, tables=tables), layouts


def _without_nan(table: pa.Table) -> pa.Table:
    for name in ("d", "f"):
        values = table[name]
        plain = pc.if_else(pc.is_nan(values), pa.scalar(None, values.type), values)
        table = table.set_column(table.schema.get_field_index(name), name, plain)
    return table


def write(join: Join, layouts: dict[str, Layout], root: Path, seed: int) -> dict[str, FilesSource]:
    """The files of all streams, and the sources that read them."""
    rng = random.Random(seed)
    for name, layout in layouts.items():
        folder = root / name
        folder.mkdir(parents=True)
        number = 0
        for batch in join.batches:
            for first, last in _pieces(rng, *batch[name], layout.files):
                file = folder / f"{number:03}.{layout.format}"
                file.write_bytes(_content(join.tables[name].slice(first, last - first), layout.format))
                os.utime(file, (_FIRST + number, _FIRST + number))
                number += 1
    schemas = {stream.name: stream.schema for stream in join.catalog.streams}
    return {
        name: files(
            layout.format,
            str(root / name),
            schema=schemas[name],
            max_files_per_batch=layout.files,
            unfinished_after="0 seconds",
        )
        for name, layout in layouts.items()
    }


def _pieces(rng: random.Random, first: int, last: int, count: int) -> list[tuple[int, int]]:
    cuts = [first, *sorted(rng.randint(first, last) for _ in range(count - 1)), last]
    return list(pairwise(cuts))


def _content(table: pa.Table, format_: str) -> bytes:
    sink = pa.BufferOutputStream()
    if format_ == "parquet":
        pq.write_table(table, sink)
    elif format_ == "arrow":
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
    elif format_ == "csv":
        # Texts are quoted and NULL is nothing, so that the empty text is not NULL.
        pacsv.write_csv(_zoneless(table), sink)
    else:
        return b"".join(json.dumps(row, default=str).encode() + b"\n" for row in _records(table))
    return bytes(sink.getvalue())


def _records(table: pa.Table) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


def _zoneless(table: pa.Table) -> pa.Table:
    plain = table["ts"].cast(pa.timestamp("us"))
    return table.set_column(table.schema.get_field_index("ts"), "ts", plain)
