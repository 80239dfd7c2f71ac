"""The process of one contender over flights.

Guarantees: all contenders answer the query of SOPJ's section IV-C, from the same CSV files with their schema given, and
write Parquet. None is warmed up: compiling is part of a contender's time; the time to start Spark is given separately.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks._arrivals import Arrivals, at_end, moments, of_spark_stream, of_weft
from benchmarks._data import BEGIN
from benchmarks._flights import SOURCES
from benchmarks._harness import say
from benchmarks._memory import PeakMemory
from benchmarks._progress import wait_for

Columns = dict[str, dict[str, str]]  # the types, by source and by column

_FAR = "TIMESTAMP '9000-01-01'"


@dataclass(frozen=True, slots=True)
class SopjTask:
    """The task of one contender."""

    contender: str
    data: str  # the directory with a directory of files for each source
    work: str  # the directory for results, in `out`, and checkpoints
    columns: Columns
    rows: int  # of the whole data set
    files_per_batch: int
    cores: int
    memory: str
    shuffle_partitions: int
    launched: float = 0.0  # when the process was started, in seconds since 1970

    @property
    def out(self) -> Path:
        """Where the results go."""
        return Path(self.work, "out")

    @property
    def checkpoint(self) -> str:
        """Where the checkpoint goes."""
        return str(Path(self.work, "checkpoint"))

    def schema(self, source: str) -> str:
        """A source's columns as Weft and Spark take them."""
        return ", ".join(f"{name} {type_}" for name, type_ in self.columns[source].items())


@dataclass(frozen=True, slots=True)
class Ran:
    """When a contender began to process, and when its results could be read."""

    began: float
    arrivals: Arrivals


def output_columns(columns: Columns) -> dict[str, str]:
    """The columns of the results, with their types."""
    ids = {"newid": "long", **{f"id{place}": "long" for place, _ in enumerate(columns, 1)}}
    return ids | {name: type_ for some in columns.values() for name, type_ in some.items() if name != "id"}


def outer_join(columns: Columns) -> str:
    """The query of section IV-C; its `*` is written out, since a file cannot have three columns `id`."""
    shown = [f"f{place}.id AS id{place}" for place, _ in enumerate(columns, 1)]
    for place, some in enumerate(columns.values(), 1):
        shown.extend(f"f{place}.{name} AS {name}" for name in some if name != "id")
    return (
        f"SELECT COALESCE(f1.id, f2.id, f3.id) AS newid, {', '.join(shown)} FROM flight1 f1 "
        "FULL OUTER JOIN flight2 f2 ON f1.id = f2.id "
        "FULL OUTER JOIN flight3 f3 ON COALESCE(f1.id, f2.id) = f3.id"
    )


def run_weft(task: SopjTask) -> Ran:
    """Run Weft over the files as streams that end."""
    import weft
    from weft.runtime.spark.session import create_spark

    spark = create_spark(f"local[{task.cores}]")
    began = _ready(task)
    known = weft.StreamStatistics(rate=task.rows, distinct={"id": task.rows})
    session = weft.Session(
        checkpoint=task.checkpoint,
        spark=spark,
        statistics=weft.Statistics(dict.fromkeys(SOURCES, known)),
        options=weft.Options(partitions=task.cores),
    )
    for name in SOURCES:
        limit = task.files_per_batch
        source = weft.files("csv", f"{task.data}/{name}", schema=task.schema(name), max_files_per_batch=limit)
        session.stream(name, source)
    session.query(outer_join(task.columns), name="sopj", sink=weft.to_parquet(task.out))
    session.run_available()
    session.stop()
    return Ran(began, of_weft(task.out))


def run_batch(task: SopjTask) -> Ran:
    """Run Spark SQL as a batch job, which the paper compares with."""
    spark = _spark(task, {"spark.sql.shuffle.partitions": str(task.shuffle_partitions)})
    began = _ready(task)
    for name in SOURCES:
        reader = spark.read.schema(task.schema(name)).option("header", True)
        reader.csv(f"{task.data}/{name}").createOrReplaceTempView(name)
    spark.sql(outer_join(task.columns)).write.parquet(str(task.out))
    return Ran(began, at_end(task.out, time.time()))


def run_stream(task: SopjTask) -> Ran:
    """Run the same query as a streaming join of Spark's; Spark refuses it, and the refusal is the answer."""
    spark = _spark(task, _streaming(task))
    began = _ready(task)
    for name in SOURCES:
        _stream(spark, task, name, task.data).createOrReplaceTempView(name)
    return _run_stream(task, spark.sql(outer_join(task.columns)), began)


def run_timed(task: SopjTask) -> Ran:
    """Run Spark's streaming join, with what it needs added to query and data.

    Ids become event times, so that a watermark can say that an id will not come any more. The watermark stays behind
    all ids until the last row of each source, which is from the far future, moves it past them.
    """
    from pyspark.sql import functions as F  # noqa: N812

    data = Path(task.work, "in")
    _add_ends(task, data)
    spark = _spark(task, _streaming(task))
    began = _ready(task)
    f1, f2, f3 = (
        _stream(spark, task, source, str(data), place).withWatermark(f"ts{place}", f"{task.rows} seconds")
        for place, source in enumerate(SOURCES, 1)
    )
    both = f1.join(f2, F.expr("id1 = id2 AND ts1 = ts2"), "full_outer")
    # A stream may have only one event time: Spark refuses two, and it refuses a second watermark. So only the metadata
    # of the column say that it has a watermark; Spark then passes the watermark on by itself.
    time_ = F.coalesce("ts1", "ts2").alias("ts12", metadata=f1.schema["ts1"].metadata)
    both = both.select(*(name for name in both.columns if name not in ("ts1", "ts2")), time_)
    joined = both.join(f3, F.expr("COALESCE(id1, id2) = id3 AND ts12 = ts3"), "full_outer")
    joined = joined.withColumn("newid", F.expr("COALESCE(id1, id2, id3)")).where("newid >= 0")
    return _run_stream(task, joined.select(*output_columns(task.columns)), began)


def run_duckdb(task: SopjTask) -> Ran:
    """Run DuckDB on as many cores."""
    import duckdb

    connection = duckdb.connect(config={"threads": task.cores, "preserve_insertion_order": False})
    connection.execute(f"SET temp_directory = '{task.work}/spill'")
    began = _ready(task)
    types = {"long": "BIGINT", "int": "INTEGER", "string": "VARCHAR"}
    for name in SOURCES:
        columns = {column: types[type_] for column, type_ in task.columns[name].items()}
        read = (
            f"read_csv('{task.data}/{name}/*.csv', header = true, auto_detect = false, columns = {columns})"
        )
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM {read}")
    task.out.mkdir()
    connection.execute(f"COPY ({outer_join(task.columns)}) TO '{task.out}/all.parquet' (FORMAT parquet)")
    return Ran(began, at_end(task.out, time.time()))


def _ready(task: SopjTask) -> float:
    say(f"{task.contender}: ready")
    return time.time()


def _spark(task: SopjTask, settings: dict[str, str]) -> Any:
    from benchmarks._spark_peers import plain_spark

    return plain_spark(task.contender, task.cores, task.memory, settings)


def _streaming(task: SopjTask) -> dict[str, str]:
    """Settings for streams: a partition per core, as each has a state store; the end needs a batch without data."""
    return {"spark.sql.shuffle.partitions": str(task.cores), "spark.sql.session.timeZone": "UTC"}


def _stream(spark: Any, task: SopjTask, source: str, data: str, place: int | None = None) -> Any:
    """A source as a stream; if its place is given, with its id and event time named after that."""
    reader = spark.readStream.schema(task.schema(source)).option("header", True)
    frame = reader.option("maxFilesPerTrigger", task.files_per_batch).csv(f"{data}/{source}")
    if place is None:
        return frame
    # Event times do not begin at 1970, which is Spark's first watermark, since rows that are not after it are late.
    near = f"timestamp_seconds({BEGIN} + id{place})"
    moment = f"CASE WHEN id{place} < 0 THEN {_FAR} ELSE {near} END AS ts{place}"
    return frame.withColumnRenamed("id", f"id{place}").selectExpr("*", moment)


def _run_stream(task: SopjTask, frame: Any, began: float) -> Ran:
    writer = frame.writeStream.format("parquet").option("path", str(task.out))
    writer = writer.option("checkpointLocation", task.checkpoint).outputMode("append")
    query = writer.trigger(availableNow=True).start()
    wait_for(query, task.contender)
    return Ran(began, of_spark_stream(task.out))


def _add_ends(task: SopjTask, data: Path) -> None:
    """Link the same files, and add one with the row that ends its source; the ids of these rows are negative."""
    for place, source in enumerate(SOURCES, 1):
        folder = data / source
        folder.mkdir(parents=True)
        files = sorted(Path(task.data, source).iterdir())
        for file in files:
            os.symlink(file.absolute(), folder / file.name)
        names = list(task.columns[source])
        last = folder / "end.csv"
        last.write_text(f"{','.join(names)}\n{-place}{',' * (len(names) - 1)}\n", encoding="utf-8")
        after = files[-1].stat().st_mtime + 1
        os.utime(last, (after, after))


CONTENDERS: dict[str, Callable[[SopjTask], Ran]] = {
    "weft": run_weft,
    "batch": run_batch,
    "duckdb": run_duckdb,
    "stream": run_stream,
    "timed": run_timed,
}


def run_contender(task: SopjTask) -> dict[str, Any]:
    """Run the contender that the task names."""
    found: dict[str, Any] = {}
    with PeakMemory() as memory:
        try:
            ran = CONTENDERS[task.contender](task)
        except Exception as error:
            if type(error).__name__ != "AnalysisException":
                raise
            found["refusal"] = str(error).split(";")[0].splitlines()[0]
        else:
            found |= {"start_up": ran.began - task.launched, "moments": moments(ran.arrivals, ran.began)}
            found["batches"] = sum(rows > 0 for _, rows in ran.arrivals)
    found["memory"] = memory.bytes
    return found
