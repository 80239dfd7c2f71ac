"""Topics in pipeline files: every option arrives, and what is wrong is said at its place, without secrets."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

import weft
from weft.errors import PipelineError
from weft.service.pipeline import read_pipeline

FILE = """
streams: {a: {schema: "k long, ts timestamp", event_time: ts, source: SOURCE}}
queries: {q: {sql: "SELECT a.k FROM a", sink: SINK}}
"""
SCHEMA = "k long, ts timestamp"
AVRO = '{"type":"record","name":"r","fields":[{"name":"k","type":"long"},{"name":"ts","type":"null"}]}'


def read(
    root: Path, source: str = "{rate: 1, columns: {k: sequence, ts: timestamps}}", sink: str = "memory"
) -> Any:
    text = FILE.replace("SOURCE", source).replace("SINK", sink)
    return read_pipeline(text, "p.yaml", root=root)


def test_every_option_of_a_source_arrives(tmp_path: Path) -> None:
    (tmp_path / "a.avsc").write_text(AVRO)
    where = 'kafka: t, servers: "h:1"'
    for text, source in {
        f"{{{where}}}": weft.kafka("h:1", "t", schema=SCHEMA),
        f"{{{where}, starting: {{0: 5}}, group: g}}": weft.kafka(
            "h:1", "t", schema=SCHEMA, starting={0: 5}, group="g"
        ),
        f"{{{where}, starting: 2024-01-01, format: json, timeout: 5 seconds}}": weft.kafka(
            "h:1", "t", schema=SCHEMA, starting=datetime(2024, 1, 1), timeout="5 seconds"
        ),
        f"{{{where}, expired: skip, max_records_per_batch: 7, options: {{check.crcs: true, fetch.min.bytes: 2}}}}": (
            weft.kafka(
                "h:1",
                "t",
                schema=SCHEMA,
                expired="skip",
                max_records_per_batch=7,
                check_crcs=True,
                fetch_min_bytes=2,
            )
        ),
        f'{{{where}, format: avro, avro_schema: a.avsc, options: {{sasl.password: "file:s"}}}}': weft.kafka(
            "h:1", "t", schema=SCHEMA, format="avro", avro_schema=AVRO, sasl_password=f"file:{tmp_path}/s"
        ),
        f'{{{where}, format: avro, registry: "http://r", subject: s, registry_token: "env:T"}}': weft.kafka(
            "h:1", "t", schema=SCHEMA, format="avro", registry="http://r", subject="s", registry_token="env:T"
        ),
    }.items():
        assert read(tmp_path, source=text).sources["a"] == source, text


def test_every_option_of_a_sink_arrives(tmp_path: Path) -> None:
    where = 'kafka: t, servers: "h:1"'
    for text, sink in {
        f"{{{where}, key: k, name: n}}": weft.to_kafka("h:1", "t", key="k", name="n"),
        f'{{{where}, format: avro, registry: "http://r", register: false, subject: s}}': weft.to_kafka(
            "h:1", "t", format="avro", registry="http://r", register=False, subject="s"
        ),
        f"{{{where}, options: {{compression.type: zstd}}}}": weft.to_kafka(
            "h:1", "t", compression_type="zstd"
        ),
    }.items():
        assert read(tmp_path, sink=text).sinks["q"] == sink, text


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("{kafka: t}", "p.yaml, streams.a.source: kafka needs servers"),
        ('{kafka: 7, servers: "h:1"}', "p.yaml, streams.a.source.kafka: 7 is not a text"),
        ('{kafka: t, servers: "h:1", grup: x}', "unknown entry 'grup'"),
        ('{kafka: t, servers: "h:1", rate: 5}', "a source is one of"),
        ('{kafka: t, servers: "h:1", format: avrro}', "p.yaml, streams.a.source: kafka: unknown format"),
        ('{kafka: t, servers: "h:1", options: {no.such: x}}', "there is no option 'no.such'"),
        ('{kafka: t, servers: "h:1", options: {group: x}}', "source.options.group: group is no option"),
        ('{kafka: t, servers: "h:1", options: {sasl.password: hush-hush}}', "is a secret"),
        ('{kafka: t, servers: "h:1", options: {sasl.password: 7654321}}', "is a secret"),
        ('{kafka: t, servers: "h:1", options: {sasl.password: [7654321]}}', "an option is a text"),
        ('{kafka: t, servers: "h:1", registry: "http://r", registry_password: hush-hush}', "is a secret"),
        ('{kafka: t, servers: "h:1", starting: [1]}', "p.yaml, streams.a.source.starting"),
    ],
)
def test_what_is_wrong_is_said_at_its_place(source: str, told: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineError) as error:
        read(tmp_path, source=source)
    assert told in str(error.value)
    assert "hush-hush" not in str(error.value)
    assert "7654321" not in str(error.value)


def test_a_topic_without_columns_is_refused(tmp_path: Path) -> None:
    text = FILE.replace('schema: "k long, ts timestamp", ', "").replace("SINK", "memory")
    with pytest.raises(PipelineError, match="give the stream a schema"):
        read_pipeline(text.replace("SOURCE", '{kafka: t, servers: "h:1"}'), "p.yaml", root=tmp_path)


def test_a_sink_needs_its_servers(tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="kafka needs servers"):
        read(tmp_path, sink="{kafka: t}")
    with pytest.raises(PipelineError, match="kafka has no dsn"):
        read(tmp_path, sink='{kafka: t, servers: "h:1", dsn: x}')
