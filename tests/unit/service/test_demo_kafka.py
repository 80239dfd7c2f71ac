"""The demo through topics is the demo."""

from __future__ import annotations

from pathlib import Path

import pytest

from weft.connectors.kafka.sink import KafkaSink
from weft.connectors.kafka.source import KafkaSource
from weft.errors import ConfigError
from weft.service import demo_kafka
from weft.service.demo import PIPELINE
from weft.service.demo_kafka import brokers, through_topics
from weft.service.pipeline import read_pipeline


def test_streams_and_queries_are_those_of_the_demo(tmp_path: Path) -> None:
    """Only where rows come from and where results go is another; every topic has its feed."""
    given = PIPELINE.read_text(encoding="utf-8")
    text, feeds = through_topics(given, "h:1", tmp_path)
    plain = read_pipeline(given, "demo.yaml", root=tmp_path)
    found = read_pipeline(text, "demo.yaml", root=tmp_path)
    assert found.queries == plain.queries
    assert found.sources.keys() == plain.sources.keys()
    for name, source in found.sources.items():
        assert isinstance(source, KafkaSource)
        assert source.schema == plain.sources[name].schema
        assert feeds[source.topic] == plain.sources[name]
    sinks = list(found.sinks.values())
    assert all(isinstance(sink, KafkaSink) for sink in sinks)
    assert len({sink.topic for sink in sinks if isinstance(sink, KafkaSink)}) == len(plain.queries)


def test_without_a_broker_the_demo_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(demo_kafka, "why_missing", lambda: "there is no Kafka broker here")
    with pytest.raises(ConfigError, match="there is no Kafka broker here") as error, brokers(None, tmp_path):
        pass
    assert "--servers" in str(error.value)
    with brokers("h:1", tmp_path) as address:
        assert address == "h:1"
