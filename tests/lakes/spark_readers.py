"""Spark's own readers of Delta and Iceberg tables, for the tests that read what Weft has written.

`python -m tests.lakes.spark_readers fetch delta` lets Maven put Delta's reader into `.venv/cache/lakes` (13 MB). Of
Delta 4.4 only the newer reader (`v2.enableMode=STRICT`) works with Spark 4.3; it is made for Spark 4.2.

`… fetch iceberg` does so for Iceberg's, which works with Spark 4.1 at most, and installs that Spark beside it (500 MB).

`read_by_spark` reads a table in a process of its own, since readers are settings of a Spark that has not begun.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path
from typing import Any

__all__ = ["fetch", "read_by_spark", "why_missing"]

_CACHE = Path(__file__).parents[2] / ".venv" / "cache" / "lakes"
_JARS = {
    "delta": (
        "io.delta:delta-spark_4.2_2.13:4.4.0",
        "io.delta:delta-storage:4.4.0",
        "io.delta:delta-kernel-api:4.4.0",
        "io.delta:delta-kernel-defaults:4.4.0",
    ),
    "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",),
}
_SPARK = {
    "iceberg": "pyspark==4.1.4"
}  # where the reader does not work with the Spark that Weft is tested with
_SETTINGS = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.v2.enableMode": "STRICT",
    },
    "iceberg": {},
}
_DEPENDENCY = """<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>
    <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions></dependency>"""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>weft</groupId><artifactId>readers</artifactId><version>1</version>
  <dependencies>{}</dependencies>
</project>
"""
# The program that reads: it is also run by a Python that has that other Spark and nothing else.
_READ = """
import json, sys
from pyspark.sql import SparkSession
kind, place, settings = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
builder = SparkSession.builder.master("local[1]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
table = spark.sql(f"SELECT * FROM delta.`{place}`") if kind == "delta" else spark.read.format("iceberg").load(place)
for row in table.collect():
    print("row", json.dumps(row.asDict(), default=str))
"""


def _folder(kind: str) -> Path:
    return _CACHE / "-".join([kind, *(jar.rpartition(":")[2] for jar in _JARS[kind][:1])])


def why_missing(kind: str) -> str | None:
    """Why Spark cannot read tables of a kind here; None if it can."""
    if not (_folder(kind) / "complete").exists():
        return f"Spark's reader of {kind} tables is not here: `make {kind}` fetches it"
    return None if os.environ.get("JAVA_HOME") or shutil.which("java") else "Spark needs Java: `make java`"


def fetch(kind: str) -> None:
    """Put the reader into the cache, unless it is there."""
    folder = _folder(kind)
    if (folder / "complete").exists():
        return
    maven = shutil.which("mvn")
    if maven is None:
        raise SystemExit(f"make {kind}: it needs Maven (Debian, Ubuntu: apt-get install maven)")
    with tempfile.TemporaryDirectory() as work:
        jars = "\n".join(_DEPENDENCY.format(*jar.split(":")) for jar in _JARS[kind])
        Path(work, "pom.xml").write_text(_POM.format(jars), encoding="utf-8")
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
        subprocess.run([maven, "-q", "-B", "-f", f"{work}/pom.xml", *copy], check=True)
    if kind in _SPARK:
        venv.create(folder / "venv", with_pip=True)
        install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", _SPARK[kind]]
        subprocess.run([folder / "venv" / "bin" / "python", *install], check=True)
    (folder / "complete").touch()


def read_by_spark(kind: str, place: str) -> list[dict[str, Any]]:
    """The rows of a table, in any order: a Delta table's directory, or the metadata file of an Iceberg table.

    Values are as JSON has them: times and decimals are texts.
    """
    folder = _folder(kind)
    settings = {
        "spark.jars": ",".join(str(jar) for jar in sorted(folder.glob("*.jar"))),
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": tempfile.gettempdir(),
        **_SETTINGS[kind],
    }
    python = str(folder / "venv" / "bin" / "python") if kind in _SPARK else sys.executable
    environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"}
    command = [python, "-c", _READ, kind, place, json.dumps(settings)]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=180, check=False)
    assert run.returncode == 0, run.stderr[-4000:]
    lines = [line.removeprefix("row ") for line in run.stdout.splitlines() if line.startswith("row ")]
    return [json.loads(line) for line in lines]


if __name__ == "__main__":
    fetch(sys.argv[2])
