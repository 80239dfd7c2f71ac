"""How Spark is started: slots, Java's options, workers that have everything, and workers that lack Weft."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from weft.errors import ConfigError
from weft.runtime.spark import workers
from weft.runtime.spark.class_archive import ArchivePlace
from weft.runtime.spark.class_archive_maker import make_archive
from weft.runtime.spark.session import describe_job, slots_of
from weft.runtime.spark.workers import check_workers
from weft.version import __version__

SLOTS = """
import sys, threading
from pathlib import Path
from weft.runtime.spark.session import create_spark, slots_of
spark = create_spark("local[2]", 3)
spark.sparkContext.setLogLevel("OFF")
folder = Path(sys.argv[1])
def stay(batches):
    import time
    from pyspark import TaskContext
    (folder / f"here-{TaskContext.get().partitionId()}").touch()
    while not (folder / "end").exists():
        time.sleep(0.05)
    yield from batches
resident = spark.range(0, 3, 1, 3).mapInArrow(stay, "id long", barrier=True)
thread = threading.Thread(target=resident.collect)
thread.start()
while len(list(folder.glob("here-*"))) < 3:
    thread.join(0.05)
    if not thread.is_alive():
        sys.exit("the tasks that should stay have ended")
print(spark.range(10).repartition(2).count(), spark.range(4).rdd.getNumPartitions())
(folder / "end").touch()
thread.join()
print(slots_of(spark), spark.sparkContext.defaultParallelism)
"""

MAPPED = """
from pathlib import Path
from weft.runtime.spark.session import create_spark
spark = create_spark("local[1]")
print("mapped" if "classes-" in Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/maps").read_text() else "plain")
"""

CHECKED = """
from pyspark.sql import SparkSession
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
spark.sparkContext.setLogLevel("OFF")
import weft
session = weft.Session(spark=spark, checkpoint="ck")
session.stream("a", weft.files("parquet", "in", schema="k long"))
session.query("SELECT a.k FROM a", sink=weft.to_parquet("out"))
try:
    session.start()
except weft.WeftError as error:
    print(error)
"""


def run(code: str, folder: Path, *arguments: str, **environment: str) -> list[str]:
    """The lines that a program of its own prints."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.ci
def test_tasks_that_stay_leave_users_their_slots(tmp_path: Path) -> None:
    """Without slots of their own, resident tasks would keep users' jobs waiting for ever."""
    assert run(SLOTS, tmp_path, str(tmp_path)) == ["10 2", "5 2"]


def test_slots_are_those_of_the_master(spark: Any) -> None:
    assert (slots_of(spark), spark.sparkContext.defaultParallelism) == (4, 2)


def test_java_has_room_for_compiled_code(spark: Any) -> None:
    """400 statements of a user's fill 48 MB, and then Java says that it compiles no more."""
    beans = spark._jvm.java.lang.management.ManagementFactory.getMemoryPoolMXBeans()
    code = sum(bean.getUsage().getMax() for bean in beans if "Code" in bean.getName())
    assert code >= 240 << 20


def test_java_options_reach_java(spark: Any) -> None:
    found = spark._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    assert {"-XX:TieredStopAtLevel=1", "-XX:ReservedCodeCacheSize=240m"} <= set(found)


def test_workers_have_everything_loaded_before_they_are_forked(spark: Any) -> None:
    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        from pathlib import Path

        parent = Path(f"/proc/{os.getppid()}")
        for _ in batches:
            threads = len(list((parent / "task").iterdir()))
            maps = (parent / "maps").read_text()
            loaded = all(name in maps for name in ("libarrow", "llvmlite", "_multiarray_umath"))
            yield pa.record_batch({"threads": [threads], "loaded": [loaded]})

    found = spark.range(0, 1, 1, 1).mapInArrow(look, "threads long, loaded boolean").collect()
    assert [tuple(row) for row in found] == [(1, True)]


def test_jobs_are_described(spark: Any) -> None:
    def work() -> None:
        with describe_job(spark, "Weft: batch 7 of orders"):
            spark.range(3).collect()
        spark.range(5).collect()

    store = spark.sparkContext._jsc.sc().statusStore()
    before = store.jobsList(None).size()
    thread = threading.Thread(target=work)  # a property of the thread: others keep theirs
    with describe_job(spark, "other"):
        thread.start()
        thread.join()
        spark.range(7).collect()
    spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
    jobs = store.jobsList(None)
    newest = [jobs.apply(at).description() for at in range(jobs.size() - before)]
    told = [one.get() if one.isDefined() else None for one in newest][::-1]
    assert told == ["Weft: batch 7 of orders", None, "other"]


@pytest.mark.slow
def test_workers_without_weft_are_refused_at_the_start(tmp_path: Path) -> None:
    hidden = tmp_path / "hidden"
    hidden.mkdir()
    (hidden / "weft.py").write_text("raise ModuleNotFoundError(\"No module named 'weft'\")\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="{hidden}:$PYTHONPATH" exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    said = run(CHECKED, tmp_path, PYSPARK_PYTHON=str(python))
    assert said[0].startswith("option: Spark's Python workers cannot load Weft: ModuleNotFoundError")
    assert "PYSPARK_PYTHON" in said[1]
    assert not (tmp_path / "ck").exists()


@pytest.mark.parametrize(
    ("report", "said"),
    [
        ({"version": "0.0.1"}, r"have Weft 0.0.1, and this is .* \(/p on h\)"),
        ({"error": "ImportError: x"}, r"cannot load Weft: ImportError: x \(/p on h\)"),
        ({"error": "ImportError: x", "missing": "numba"}, r"There is no numba\."),
        ({"version": __version__, "shipped": "weft-1"}, "had loaded another Weft before"),
    ],
)
def test_workers_with_another_weft_are_refused(report: dict[str, str], said: str) -> None:
    host = {"python": "/p", "host": "h"}
    with pytest.raises(ConfigError, match=said):
        workers._check({**host, **report}, "weft-2" if "shipped" in report else "")
    workers._check({**host, "version": __version__})
    workers._check({**host, "version": __version__, "shipped": "weft-2"}, "weft-2")


def test_the_host_of_a_task_that_failed_is_named() -> None:
    """Of a hundred machines, the one that lacks something would have to be found by looking at each."""
    told = (
        "Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.5 executor 1): ModuleNotFoundError: No module named 'x'"
    )
    assert workers._place(Exception(told)) == " on 10.0.0.5"
    assert workers._place(Exception("no")) == ""


def test_the_workers_of_this_python_need_no_check(spark: Any) -> None:
    check_workers(spark)


@pytest.mark.slow
def test_an_archive_of_classes_is_made_and_used(tmp_path: Path) -> None:
    environment = {"XDG_CACHE_HOME": str(tmp_path), "WEFT_CLASS_ARCHIVE": "1"}
    where = "from weft.runtime.spark.class_archive import archive_place as place; print(place().key)"
    place = ArchivePlace(tmp_path / "weft", run(where, tmp_path, **environment)[0])
    made = make_archive(place)
    assert made is not None
    assert run(MAPPED, tmp_path, **environment) == ["mapped"]
    made.chmod(0o600)
    os.truncate(made, 5_000_000)
    place.tried.touch()  # nobody makes another while this test runs
    assert run(MAPPED, tmp_path, **environment) == ["plain"]
