"""Topics of Kafka in pipeline files, as sources and as sinks.

Guarantees: a description in the file becomes a source or a sink that is valid, or an error at its place; nobody is
connected to. Secrets are not in the file: `env:NAME` and `file:PATH` say where they are found when the run needs them.

    source: {kafka: views, servers: "host:9092", format: avro, registry: "http://host:8081", starting: latest}
    source:
      kafka: views                                       # the topic
      servers: host1:9092,host2:9092
      starting: {0: 17, 1: 4}                            # or earliest, latest, a time
      group: weft-views                                  # and expired, timeout, max_records_per_batch, subject,
      avro_schema: view.avsc                             # registry_user, registry_password, registry_token, registry_ca
      options: {security.protocol: SASL_SSL, sasl.mechanism: PLAIN, sasl.username: me, sasl.password: "env:KAFKA"}
    sink: {kafka: matches, servers: "host:9092", key: vid, format: avro, registry: "http://host:8081"}
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from pathlib import Path
from typing import Any, TypeAlias

from weft.connectors.kafka.sink import KafkaSink, to_kafka
from weft.connectors.kafka.source import KafkaSource, kafka
from weft.logical.schema import Schema
from weft.service.pipeline.document import Node, resolve_path, resolve_reference

__all__ = ["SINK_OPTIONS", "kafka_sink", "kafka_source"]

Read: TypeAlias = Callable[[Node, Path], Any]
_TOPIC = "name a topic, as in kafka: views"


def _text(node: Node, root: Path) -> str:  # noqa: ARG001
    return node.text()


def _whole(node: Node, root: Path) -> int:  # noqa: ARG001
    return node.integer()


def _flag(node: Node, root: Path) -> bool:  # noqa: ARG001
    return node.flag()


def _schema(node: Node, root: Path) -> str:
    """A schema of Avro's: its text, or the file that has it."""
    text = node.text("name a file, as in view.avsc, or write the schema as a text")
    return text if text.lstrip()[:1] in ("{", "[", '"') else resolve_path(node, root)


def _starting(node: Node, root: Path) -> Any:  # noqa: ARG001
    given = node.value
    if isinstance(given, dict | datetime):
        return given
    return datetime(given.year, given.month, given.day) if isinstance(given, date) else node.text()


def _options(node: Node, root: Path) -> dict[str, Any]:
    """Options of Kafka's own, as Kafka names them; no value is shown in an error, for it could be a secret."""
    own = next((name for name in node.mapping() if name in _OWN), None)
    if own is not None:
        raise node.entry(own).error(f"{own} is no option of Kafka's", "write it beside options")
    return {name: _option(one, root) for name, one in node.mapping().items()}


def _option(node: Node, root: Path) -> Any:
    if isinstance(node.value, dict | list) or node.value is None:
        raise node.error("an option is a text, a number, or true or false")
    return resolve_reference(node, root) if isinstance(node.value, str) else node.value


_REGISTRY: dict[str, Read] = {
    "registry": _text,
    "registry_user": _text,
    "registry_password": resolve_reference,
    "registry_token": resolve_reference,
    "registry_ca": resolve_path,
    "subject": _text,
    "avro_schema": _schema,
    "format": _text,
    "servers": _text,
    "options": _options,
}
_SOURCE_OPTIONS: dict[str, Read] = {
    **_REGISTRY,
    "starting": _starting,
    "group": _text,
    "expired": _text,
    "timeout": _text,
    "max_records_per_batch": _whole,
}
SINK_OPTIONS: dict[str, Read] = {**_REGISTRY, "key": _text, "name": _text, "register": _flag}

_OWN = frozenset((*_SOURCE_OPTIONS, *SINK_OPTIONS, "topic", "schema"))


def kafka_source(node: Node, schema: Schema | None, root: Path) -> KafkaSource:
    """The source that a section describes, for a stream of these columns."""
    found = node.section(("kafka", *_SOURCE_OPTIONS))
    if schema is None:
        raise node.error("a topic does not say what its columns are", "give the stream a schema")
    if "servers" not in found:
        raise node.error("kafka needs servers", 'as in source: {kafka: views, servers: "localhost:9092"}')
    topic = node.entry("kafka").text(_TOPIC)
    given = {name: read(found[name], root) for name, read in _SOURCE_OPTIONS.items() if name in found}
    options = given.pop("options", {})
    with node.at():
        return kafka(given.pop("servers"), topic, schema=schema, **given, **options)


def kafka_sink(topic: Node, given: dict[str, Any]) -> KafkaSink:
    """The sink of a topic, with options that were read by `SINK_OPTIONS`."""
    options = given.pop("options", {})
    return to_kafka(given.pop("servers"), topic.text(_TOPIC), **given, **options)
