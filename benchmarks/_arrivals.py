"""When results could be read, and a summary of them.

Guarantees: times are those at which a sink made results visible, as told by the files it wrote, so all contenders are
measured alike. Two directories have equal summaries only if, up to a chance of 1 in 2^64, they hold the same rows
equally often.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq
from benchmarks._flights import SOURCES

Arrivals = list[tuple[float, int]]  # seconds since 1970, and how many results could be read from then on

# How many results have an id in which sources ("101": the first and the third), and a checksum of all columns.
Summary = tuple[dict[str, int], str]


def of_weft(out: Path) -> Arrivals:
    """The arrivals of Weft's results; it renames a directory for every batch, which sets its change time."""
    return sorted((folder.stat().st_ctime, _rows(folder.glob("*.parquet"))) for folder in out.glob("batch=*"))


def of_spark_stream(out: Path) -> Arrivals:
    """The arrivals of Spark's streaming results; its sink logs the files of a batch, every tenth entry all before."""
    logs = (out / "_spark_metadata").glob("[0-9]*")
    seen: set[Path] = set()
    found = []
    for log in sorted(logs, key=lambda path: int(path.name.partition(".")[0])):
        lines = log.read_text(encoding="utf-8").splitlines()[1:]
        files = {Path(unquote(urlparse(json.loads(line)["path"]).path)) for line in lines}
        found.append((log.stat().st_mtime, _rows(files - seen)))
        seen |= files
    return found


def at_end(out: Path, now: float) -> Arrivals:
    """The arrivals of a batch job's results, which can all be read when it is done and not before."""
    return [(now, _rows(result_files(out)))]


def moments(arrivals: Arrivals, began: float) -> dict[str, float] | None:
    """After how many seconds the first result, half of them, and the last could be read; None if there are none."""
    total, so_far = sum(rows for _, rows in arrivals), 0
    found: dict[str, float] = {}
    for moment, rows in arrivals:
        so_far += rows
        for name, enough in (("first", 1), ("half", total / 2), ("last", total)):
            if rows and so_far >= enough:
                found.setdefault(name, moment - began)
    return found or None


def result_files(out: Path) -> Iterator[Path]:
    """The files of results; names that begin with _ or . are the writers' own."""
    for file in sorted(out.rglob("*.parquet")):
        if not any(part[0] in "_." for part in file.relative_to(out).parts):
            yield file


def summary(out: Path, columns: Mapping[str, str]) -> Summary:
    """The summary of the results in a directory; ``columns`` are compared as these types."""
    import duckdb

    files = [str(file) for file in result_files(out)]
    if not files:
        return {}, "0"
    pattern = " || ".join(f"(id{place} IS NOT NULL)::INT" for place, _ in enumerate(SOURCES, 1))
    values = ", ".join(
        f'"{name}"::{"VARCHAR" if type_ == "string" else "BIGINT"}' for name, type_ in columns.items()
    )
    sql = (
        f"SELECT {pattern}, count(*), sum(hash({values})::HUGEINT) "
        "FROM read_parquet($1, hive_partitioning = false) GROUP BY 1 ORDER BY 1"
    )
    rows = duckdb.execute(sql, [files]).fetchall()
    return {shape: count for shape, count, _ in rows}, f"{sum(part for *_, part in rows) % 2**64:016x}"


def _rows(files: Iterable[Path]) -> int:
    return sum(pq.ParquetFile(file).metadata.num_rows for file in files)
