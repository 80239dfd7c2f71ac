"""`weft demo --kafka`: the demo through topics.

Guarantees: the pipeline is that of `weft demo` but for where rows come from and results go to: a feeder writes the
generated rows to a topic per stream as fast as their rates say, and each query writes to a topic of its own. Without
`--servers` a broker runs on loopback for as long as the demo; where none was fetched, an error says how to get one.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import yaml

from weft.connectors.generate.rate import RateSource
from weft.connectors.kafka.options import load_client
from weft.connectors.kafka.sink_values import json_values
from weft.errors import ConfigError
from weft.service.kafka_broker import Broker, why_missing
from weft.service.pipeline.document import read_document
from weft.service.pipeline.sources import read_source

__all__ = ["brokers", "fed", "through_topics"]

_EVERY = 0.05  # seconds between two pieces that are written
_PARTITIONS = 2
_ANSWER = 30.0  # seconds that brokers may take for an answer
_HEAD = (
    "# The demo through topics: `weft demo --kafka` wrote this file, and feeds the topics that it reads.\n"
)


@contextmanager
def brokers(given: str | None, folder: Path) -> Iterator[str]:
    """The address of brokers: the given one, or that of one that runs meanwhile, with its data in a folder."""
    load_client("weft demo --kafka", ConfigError)
    if given is not None:
        yield given
        return
    missing = why_missing()
    if missing is not None:
        raise ConfigError(f"weft demo --kafka: {missing}", hint="or name a broker: --servers HOST:PORT")
    broker = Broker(folder)
    broker.start()
    try:
        yield broker.address
    finally:
        broker.stop()


def through_topics(text: str, servers: str, root: Path) -> tuple[str, dict[str, RateSource]]:
    """A pipeline file whose generated streams come from topics, and what is to be written to each topic."""
    document: dict[str, Any] = yaml.safe_load(text)
    marked, feeds = uuid.uuid4().hex[:6], dict[str, RateSource]()
    nodes = read_document(text, "demo.yaml").entry("streams")
    for name, stream in document["streams"].items():
        source, topic = (
            read_source(nodes.entry(name).entry("source"), None, root),
            f"weft-demo-{marked}-{name}",
        )
        if not isinstance(source, RateSource):
            raise ConfigError(f"the demo's stream {name} is not generated", hint="take the demo's own file")
        feeds[topic] = source
        stream["schema"] = ", ".join(map(str, source.schema))
        stream["source"] = {"kafka": topic, "servers": servers}
    for name, query in document["queries"].items():
        query["sink"] = {"kafka": f"weft-demo-{marked}-{name}-results", "servers": servers}
    return _HEAD + yaml.safe_dump(document, sort_keys=False, allow_unicode=True), feeds


def _make_topics(servers: str, topics: Iterator[str]) -> None:
    kafka, admin = load_client("weft demo --kafka", ConfigError), import_module("confluent_kafka.admin")
    client = admin.AdminClient({"bootstrap.servers": servers, "log_level": 2})
    try:
        client.list_topics(timeout=_ANSWER)
        made = client.create_topics([admin.NewTopic(topic, _PARTITIONS) for topic in topics])
        for future in made.values():
            future.result(_ANSWER)
    except kafka.KafkaException as error:
        raise ConfigError(
            f"weft demo --kafka: the brokers at {servers}: {error.args[0].str()}",
            hint="are they running, and may topics be made there?",
        ) from None


@contextmanager
def fed(servers: str, text: str, feeds: Mapping[str, RateSource]) -> Iterator[None]:
    """Make the topics of a pipeline, and write to those of its streams until the end."""
    sinks = (query["sink"]["kafka"] for query in yaml.safe_load(text)["queries"].values())
    _make_topics(servers, iter((*feeds, *sinks)))
    over = threading.Event()
    feeder = threading.Thread(target=_feed, args=(servers, feeds, over), name="weft-demo-feeder", daemon=True)
    feeder.start()
    try:
        yield
    finally:
        over.set()
        feeder.join()


def _feed(servers: str, feeds: Mapping[str, RateSource], over: threading.Event) -> None:
    """Write rows as they become due. What brokers do not take in time is left out: it is a demo's data."""
    kafka = load_client("weft demo --kafka", ConfigError)
    producer = kafka.Producer({"bootstrap.servers": servers, "log_level": 2, "linger.ms": 5})
    written, began = dict.fromkeys(feeds, 0), time.monotonic()
    while not over.wait(_EVERY):
        for topic, source in feeds.items():
            due = int((time.monotonic() - began) * source.rows_per_second)
            rows = source.generate(written[topic], due - written[topic])
            producer.produce_batch(topic, [{"value": value} for value in json_values(rows).to_pylist()])
            written[topic] = due
        producer.poll(0)
    producer.flush(1)
