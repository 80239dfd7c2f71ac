"""When results were there to be read, and what they are.

Guarantees: times are those at which a sink made results visible, from what it left on disk, and so the same for all who
write there. Two directories of results are alike only if, but for a chance in 2^64, they hold the same rows as often.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from urllib.parse import unquote, urlparse

import pyarrow.parquet as pq
from benchmarks._flights import SOURCES

__all__ = [
    "Arrivals",
    "Summary",
    "at_end",
    "moments",
    "of_spark_stream",
    "of_weft",
    "result_files",
    "summary",
]

Arrivals = list[tuple[float, int]]  # seconds since 1970, results that were there from then on

# Results by the sources that have their id ("101": the first and the third), and a checksum of all columns.
Summary = tuple[dict[str, int], str]


def of_weft(out: Path) -> Arrivals:
    """Weft renames a directory into place for every batch, which the kernel notes as its change."""
    return sorted((folder.stat().st_ctime, _rows(folder.glob("*.parquet"))) for folder in out.glob("batch=*"))


def of_spark_stream(out: Path) -> Arrivals:
    """Spark's file sink lists the files of a batch in its log; every tenth entry repeats those before it."""
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
    """Of a batch job, whose results are all there when it is done and not before."""
    return [(now, _rows(result_files(out)))]


def moments(arrivals: Arrivals, began: float) -> dict[str, float] | None:
    """After how many seconds the first result was there, half of them, and the last; None without any."""
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
    """What the results are: columns by name, and the types they are compared as."""
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
