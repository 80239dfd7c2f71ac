"""The sizes at which `weft bench all` runs each benchmark: arguments by name; what is not listed has none.

"small" is for a look within the hour on a machine of two cores: enough batches that ratios mean something, not more.
"""

from __future__ import annotations

NOT_MEASURED = ("all", "paper")  # it runs the others; the papers' figures keep results of their own

_JOIN = "--rows 800000 --spark-rows 400000"

_SMALL = {
    "adaptive": "--batches 80",
    "adhoc": "--scenarios sc1 --parallel 8",
    "chain3": _JOIN,
    "closing": "--batches 10 --end-rows 300000",
    "cluster": "--batches 100000 --joins pair",
    "groups": "--queries 20 --files 30",
    "hotkey": "--rows 5000",
    "ilp": "--most 20",
    "kafka": "--rows 300000 --spark-rows 100000 --joins pair",
    "kernels": "--repetitions 5 --windows 200000 1000000",
    "latency": "--batches 80 --rounds 1",
    "many": "--queries 1 10 50 --rows 40000",
    "measuring": "--rows 1200000 --joins pair",
    "mjoin": "--scale 0.3 --rounds 1",
    "nexmark": "--events 3000000",
    "pair": _JOIN,
    "partitions": "--partitions 2 32",
    "reading": "--repeat 7",
    "serve": "--idle 50 --busy 10 --seconds 5 --rounds 2",
    "skew": "--batches 14 --drop 8",
    "sopj": "--data synthetic --rows 400000 --only weft,batch,duckdb",
    "star3": _JOIN,
    "start": "--rounds 1",
    "statistics": "--trials 10 --batches 10",
    "strategies": "--queries 100 --timed 20",
    "sustainable": "--joins pair --contenders weft,rocksdb --steps 1 --seconds 8",
    "tables": "--rows 300000 --no-levels",
    "warm": "--rows 4000000 --rounds 1 --joins pair",
    "window": "--rows 400000",
}

SIZES: dict[str, dict[str, list[str]]] = {
    "small": {name: text.split() for name, text in _SMALL.items()},
    "full": {},
}
