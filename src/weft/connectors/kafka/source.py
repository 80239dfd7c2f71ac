"""Topics of Kafka as streams.

Guarantees: a description that exists is valid: format, schema and options were checked when it was made, and nothing
was read or started. How far a topic has been read is in Weft's own log, so every record is read exactly once; a
consumer group only mirrors it. Decision 32 says why.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from weft.connectors.formats.records import Decoded, Target
from weft.connectors.kafka.cursor import MADE_AGAIN, KafkaCursor, ReadRules, Starting
from weft.connectors.kafka.fetch import collector_at_rest, is_topic, read_range
from weft.connectors.kafka.options import KafkaOptions, kafka_options
from weft.connectors.kafka.records import Origin, check_schema, decode_messages, value_fields
from weft.connectors.kafka.registry import registry_options, schema_text
from weft.connectors.kafka.values import ValueFormat
from weft.errors import SourceError, nearest
from weft.logical.arguments import checked
from weft.logical.schema import Schema, SchemaLike, schema_of
from weft.logical.times import parse_duration
from weft.ports.source import CursorContext, Part

__all__ = [
    "KafkaSource",
    "kafka",
]

_EXPIRED = ("error", "skip")


@dataclass(frozen=True, slots=True)
class KafkaSource:
    """The records of a topic, as they come."""

    topic: str
    schema: Schema
    format: ValueFormat
    options: KafkaOptions
    rules: ReadRules = ReadRules()  # noqa: RUF009

    def __post_init__(self) -> None:
        if not isinstance(self.topic, str) or not self.topic.strip():
            raise SourceError("kafka: no topic is named")
        if self.rules.expired not in _EXPIRED:
            hint = nearest(self.rules.expired, _EXPIRED)
            raise SourceError(f"kafka: expired cannot be {self.rules.expired!r}", hint=hint)
        check_schema(self.schema, self.format.name)
        self.format.check_columns(value_fields(self.schema))

    def open(self, context: CursorContext) -> KafkaCursor:
        """Go on behind what was taken, or begin where the rules say.

        A `SourceError` if there is no such topic, or if the schema registry has no schema that gives the columns.
        """
        self.format.check(self.topic, value_fields(self.schema))
        return KafkaCursor(self.topic, self.options, self.rules, context)

    def read(
        self,
        stream: str,
        part: Part,
        event_time: str | None = None,
        columns: Collection[str] | None = None,  # noqa: ARG002
        latest: int | None = None,
    ) -> Decoded:
        """The rows of a range of offsets."""
        what = part.what
        origin = Origin(stream, self.topic, what["partition"], what.get("id"))
        reset = "earliest" if self.rules.expired == "skip" else "error"
        target = Target.of(self.schema, event_time, None, latest)
        if not self._is_same_topic(what.get("id")):
            return self._of_another_topic(target, origin, what)
        with collector_at_rest():
            bounds = (what["first"], what["end"])
            messages = read_range(self.options, origin, *bounds, self.rules.timeout, reset=reset)
            decoded = decode_messages(messages, self.format, target, origin)
            del messages  # before the collector would look through it
        if not self._is_same_topic(what.get("id")):
            return self._of_another_topic(target, origin, what)
        if "expired" not in what:
            return decoded
        lost = f"the records from here to before offset {what['first']} have expired"
        return replace(decoded, bad=(origin.bad(lost, what["expired"]), *decoded.bad))

    def _is_same_topic(self, before: str | None) -> bool:
        """Whether the topic that is read is the one that a part is of, as far as brokers tell."""
        return before is None or is_topic(self.options, self.topic, before)

    def _of_another_topic(self, target: Target, origin: Origin, what: Mapping[str, Any]) -> Decoded:
        """No rows of a part whose topic was deleted and made again since; a record says which are lost."""
        told = f"topic {self.topic} was deleted and made again: its id is no longer {what['id']}"
        if not self.rules.starting.given:
            raise SourceError(f"{origin.stream}: {told}", hint=MADE_AGAIN)
        lost = what["end"] - what["first"]
        bad = origin.bad(f"{told}; {lost:,} records are lost", what["first"])
        empty = decode_messages([], self.format, target, origin)
        return replace(empty, bad=(replace(bad, more=lost - 1),))


@checked(SourceError)
def kafka(
    servers: str,
    topic: str,
    *,
    schema: SchemaLike,
    format: str = "json",  # noqa: A002
    avro_schema: str | Path | None = None,
    registry: str | None = None,
    subject: str | None = None,
    starting: str | Mapping[int, int] | datetime | None = None,
    group: str | None = None,
    expired: str = "error",
    max_records_per_batch: int | None = None,
    timeout: str = "60 seconds",
    **options: Any,
) -> KafkaSource:
    """The records of a ``topic`` of the brokers that ``servers`` names, as in "host1:9092,host2:9092".

    ``schema`` has the columns of the values, whose ``format`` is "json", "avro", "csv" (a line without a header) or
    "raw". A batch takes ``max_records_per_batch`` at most; a broker that does not answer within ``timeout`` is an
    error.

    Columns named `_key`, `_topic`, `_partition`, `_offset`, `_timestamp` and `_headers` tell of the record itself if
    the schema declares them. A stream begins with the earliest records, with the latest, at an offset of each
    partition, or at a time; where it has been read before, it goes on. A topic that was deleted and made again since is
    an error, unless `starting` is given: then the new one is read from there. `group` is a consumer group to which
    offsets are committed after their batch, for tools that show lags. Records that have expired before they were read
    are an error, or are passed over and counted as bad (`expired="skip"`).

    Avro values name their schema in a schema registry (`registry="http://…"`, with `registry_user` and
    `registry_password`, or `registry_token`, if it wants them), or were all written by `avro_schema`, a text or a file.
    With a registry, `avro_schema` is the reader's: it has defaults and aliases of columns. ``subject`` is the one of
    the registry whose versions are looked at before the stream is read, by default `TOPIC-value`. JSON values that
    begin with the number of a schema need the registry, too. Other options are Kafka's own, with underscores for dots;
    secrets are references: `sasl_password="env:KAFKA_PASSWORD"`.

    >>> kafka("localhost:9092", "views", schema="vid long, _offset long", security_protocol="SSL").options.given
    (('security.protocol', 'SSL'),)
    """
    own = (
        "group",
        "expired",
        "starting",
        "timeout",
        "schema",
        "max_records_per_batch",
        "avro_schema",
        "registry",
    )
    asked = registry_options("kafka", registry, options, SourceError)
    checked = kafka_options("kafka", servers, options, (*own, "subject"), SourceError)
    if max_records_per_batch is not None and max_records_per_batch < 1:
        raise SourceError(f"kafka: max_records_per_batch is {max_records_per_batch}", hint="use 1 or more")
    seconds = parse_duration(timeout).total_seconds()
    rules = ReadRules(_starting(starting), group, expired, max_records_per_batch, seconds)
    columns = schema_of(schema)
    text = schema_text("kafka", avro_schema, SourceError)
    return KafkaSource(topic, columns, ValueFormat(format, asked, text, subject, seconds), checked, rules)


def _starting(said: object) -> Starting:
    """Where a stream begins: with the earliest records, if the user has not said it."""
    return Starting() if said is None else replace(_as_said(said), given=True)


def _as_said(said: object) -> Starting:
    if said in ("earliest", "latest"):
        return Starting(str(said))
    if isinstance(said, Mapping):
        pairs = sorted(said.items())
        if all(isinstance(number, int) and number >= 0 for pair in pairs for number in pair):
            return Starting("offsets", tuple(pairs))
    if isinstance(said, str):
        try:
            said = datetime.fromisoformat(said)
        except ValueError:
            said = None
    if isinstance(said, datetime):
        aware = said if said.tzinfo else said.replace(tzinfo=timezone.utc)
        return Starting("time", time=int(aware.timestamp() * 1000))
    raise SourceError(
        "kafka: starting is not understood",
        hint='use "earliest", "latest", {partition: offset}, or a time such as "2024-01-01T00:00:00"',
    )
