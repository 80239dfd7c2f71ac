"""Tables as sinks in pipeline files: every option arrives, and what is wrong is said at its place."""

from __future__ import annotations

from pathlib import Path

import pytest

import weft
from weft.errors import PipelineError
from weft.ports.sink import Sink
from weft.service.pipeline import read_pipeline

FILE = """
streams: {a: {schema: "k long, ts timestamp", event_time: ts}}
queries: {q: {sql: "SELECT a.k FROM a", sink: SINK}}
"""


def read(sink: str, root: Path) -> Sink:
    """The sink of the file's query."""
    return read_pipeline(FILE.replace("SINK", sink), "p.yaml", root=root).sinks["q"]


def test_every_option_arrives(tmp_path: Path) -> None:
    """As with the functions of Python; paths begin where the file is."""
    for text, sink in {
        "{parquet: out, batch_column: b}": weft.to_parquet(tmp_path / "out", batch_column="b"),
        "{delta: lake/t}": weft.to_delta(tmp_path / "lake/t"),
        "{delta: /lake/t, partition_by: k, compact: true}": weft.to_delta(
            "/lake/t", partition_by="k", compact=True
        ),
        "{delta: t, partition_by: [k, c], compact: false}": weft.to_delta(
            tmp_path / "t", partition_by=["k", "c"]
        ),
        "{iceberg: sales.t, catalog: lake}": weft.to_iceberg("lake", "sales.t"),
        '{iceberg: s.t, catalog: {uri: "http://h", token: "env:T", warehouse: w, s3.anonymous: true}}': (
            weft.to_iceberg(
                {
                    "uri": "http://h",
                    "token": "env:T",
                    "warehouse": str(tmp_path / "w"),
                    "s3.anonymous": "true",
                },
                "s.t",
            )
        ),
        '{iceberg: s.t, catalog: {type: sql, uri: "sqlite:///c.db", warehouse: "env:W", token: "file:t"}}': (
            weft.to_iceberg(
                {
                    "type": "sql",
                    "uri": f"sqlite:///{tmp_path}/c.db",
                    "warehouse": "env:W",
                    "token": f"file:{tmp_path}/t",
                },
                "s.t",
            )
        ),
        '{postgres: t, dsn: "env:DSN"}': weft.to_postgres("env:DSN", "t"),
        '{postgres: s.t, dsn: "file:secret/dsn", key: k}': weft.to_postgres(
            f"file:{tmp_path}/secret/dsn", "s.t", key="k"
        ),
        '{postgres: s.t, dsn: "file:/secret/dsn", key: [k, l]}': weft.to_postgres(
            "file:/secret/dsn", "s.t", key=["k", "l"]
        ),
        "{postgres: t, dsn: host=/run dbname=x}": weft.to_postgres("host=/run dbname=x", "t"),
    }.items():
        assert read(text, tmp_path) == sink, text


@pytest.mark.parametrize(
    ("sink", "expected"),
    [
        ("delta", "queries.q.sink: delta needs more than its name\nhint: as in sink: {delta: lake/trolls}"),
        ("iceberg", "as in sink: {iceberg: sales.trolls, catalog: lake}"),
        ("{iceburg: a.t}", "queries.q.sink: results go to one sink\nhint: did you mean iceberg?"),
        ("{delta: t, parquet: t}", "queries.q.sink: results go to one sink"),
        ("{delta: t, key: k}", "queries.q.sink.key: delta has no key"),
        ("{delta: t, compct: true}", "unknown entry 'compct'\nhint: did you mean compact?"),
        ("{delta: t, compact: 5}", "queries.q.sink.compact: 5 is neither true nor false"),
        ("{delta: t, partition_by: 5}", "queries.q.sink.partition_by: 5 is not a text\nhint: as in vid"),
        ("{delta: t, partition_by: [5]}", "queries.q.sink.partition_by[0]: 5 is not a text"),
        ('{delta: "hdfs://b/t"}', "queries.q.sink: to_delta: hdfs://b/t is neither a path of this machine"),
        ('{delta: "s3://b/../t"}', "queries.q.sink: s3://b/../t has . or .. in its path"),
        ('{delta: ""}', "queries.q.sink.delta: '' is not a path"),
        ("{iceberg: a.t}", "queries.q.sink: iceberg needs catalog\nhint: as in sink: {iceberg: "),
        ("{iceberg: t, catalog: c}", "queries.q.sink: to_iceberg: 't' is no name of a table"),
        ("{iceberg: 5, catalog: c}", "queries.q.sink.iceberg: 5 is not a text\nhint: name a table"),
        ("{iceberg: a.t, catalog: 5}", "queries.q.sink.catalog: 5 is not a text"),
        ("{iceberg: a.t, catalog: {uri: 5}}", "queries.q.sink.catalog.uri: 5 is not a text"),
        ("{iceberg: a.t, catalog: {token: s3cret}}", "queries.q.sink: to_iceberg: the catalog's token is"),
        ("{postgres: t}", "queries.q.sink: postgres needs dsn\nhint: as in sink: {postgres: "),
        ("{postgres: a.b.c, dsn: 'env:D'}", "queries.q.sink: to_postgres: 'a.b.c' is no name of a table"),
        ("{postgres: t, dsn: password=s3cret}", "queries.q.sink: to_postgres: a password is written"),
        ("{postgres: t, dsn: 'env:D', key: {a: b}}", "queries.q.sink.key: {'a': 'b'} is not a text"),
    ],
)
def test_a_mistake_is_refused_with_its_place(sink: str, expected: str, tmp_path: Path) -> None:
    """Before anything starts; what is secret is not repeated."""
    with pytest.raises(PipelineError) as caught:
        read(sink, tmp_path)
    assert expected in str(caught.value)
    assert "p.yaml, queries.q.sink" in str(caught.value)
    assert "s3cret" not in str(caught.value)
