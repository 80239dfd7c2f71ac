"""The parent of Spark's Python workers: what it loads, and that it may fork."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyspark

from weft.runtime.spark import daemon

HOME = Path(pyspark.__file__).parent
ARCHIVE = f"{HOME}/python/lib/pyspark.zip"


def test_loading_starts_no_thread() -> None:
    """A process with threads must not fork: workers would hang in locks that nobody gives back."""
    code = "from weft.runtime.spark import daemon; daemon._load(); print(daemon._threads())"
    code += "; import sys; print('weft.runtime.spark.resident_task' in sys.modules, 'pyspark.worker' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1", "True", "True"]


def test_with_threads_it_is_sparks_own_daemon() -> None:
    code = """
import os, sys, threading
from weft.runtime.spark import daemon
threading.Thread(target=threading.Event().wait, daemon=True).start()
os.execv = lambda program, arguments: (print(*arguments[1:], flush=True), os._exit(0))
sys.argv = ["daemon", "pyspark.worker"]
daemon.main()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["-m", "pyspark.daemon", "pyspark.worker"]


def test_the_same_pyspark_is_not_loaded_from_its_archive() -> None:
    installed = str(HOME.parent)
    assert daemon._without_archives([ARCHIVE, installed]) == [installed]
    other = "/opt/spark/python/lib/pyspark.zip"
    assert daemon._without_archives([other, installed]) == [other, installed]
    assert daemon._without_archives([ARCHIVE]) == [ARCHIVE]
