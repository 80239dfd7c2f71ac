"""How Weft's clients of Kafka are configured: which options users may give, and where secrets come from.

Guarantees: an option that is not known is refused when a source or sink is described, before anything starts, and so is
a secret that stands there itself. A description holds only references to secrets (`env:NAME`, `file:PATH`), which are
followed when a client is made, wherever that is: so no secret gets into a checkpoint, a pickled source, a log, a plan
or an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

from weft.errors import WeftError, nearest

__all__ = [
    "KafkaOptions",
    "is_reference",
    "kafka_options",
    "load_client",
    "resolve_secret",
]

_SECRET = re.compile(r"password|passphrase|secret|(^|\.)key(\.|$)|oauthbearer\.config|token$")
_REFERENCE = re.compile(r"(env|file):(.+)", re.DOTALL)
_COMMON = """
    client.id client.rack client.dns.lookup broker.address.family metadata.max.age.ms topic.metadata.refresh.interval.ms
    connections.max.idle.ms reconnect.backoff.ms reconnect.backoff.max.ms retry.backoff.ms retry.backoff.max.ms
    message.max.bytes receive.message.max.bytes socket.timeout.ms socket.keepalive.enable socket.nagle.disable
    socket.send.buffer.bytes socket.receive.buffer.bytes socket.connection.setup.timeout.ms
    security.protocol sasl.mechanism sasl.mechanisms sasl.username sasl.password
    sasl.kerberos.service.name sasl.kerberos.principal sasl.kerberos.kinit.cmd sasl.kerberos.keytab
    sasl.kerberos.min.time.before.relogin sasl.oauthbearer.method sasl.oauthbearer.config sasl.oauthbearer.client.id
    sasl.oauthbearer.client.secret sasl.oauthbearer.scope sasl.oauthbearer.extensions
    sasl.oauthbearer.token.endpoint.url enable.sasl.oauthbearer.unsecure.jwt
    ssl.cipher.suites ssl.curves.list ssl.sigalgs.list ssl.key.location ssl.key.password ssl.key.pem
    ssl.certificate.location ssl.certificate.pem ssl.ca.location ssl.ca.pem ssl.crl.location ssl.keystore.location
    ssl.keystore.password ssl.providers ssl.endpoint.identification.algorithm enable.ssl.certificate.verification
"""
_READING = """
    isolation.level fetch.wait.max.ms fetch.queue.backoff.ms fetch.message.max.bytes max.partition.fetch.bytes
    fetch.max.bytes fetch.min.bytes fetch.error.backoff.ms queued.min.messages queued.max.messages.kbytes check.crcs
"""
_WRITING = """
    transaction.timeout.ms queue.buffering.max.messages queue.buffering.max.kbytes linger.ms queue.buffering.max.ms
    message.timeout.ms delivery.timeout.ms request.timeout.ms batch.size batch.num.messages partitioner
    compression.codec compression.type compression.level max.in.flight sticky.partitioning.linger.ms
"""
_KNOWN = {
    "kafka": frozenset(f"{_COMMON} {_READING}".split()),
    "to_kafka": frozenset(f"{_COMMON} {_WRITING}".split()),
}


@dataclass(frozen=True, slots=True)
class KafkaOptions:
    """The brokers to begin with, and options as Kafka names them; secrets are references."""

    servers: str
    given: tuple[tuple[str, str], ...] = ()

    def config(self, error: type[WeftError], **fixed: Any) -> dict[str, Any]:
        """What a client is made with, secrets in place: to be handed to a client at once and kept by nobody else.

        ``fixed`` are further options, with underscores for the dots of their names. Where an option was also given by
        the user, the user's counts. No client begins anew with the given servers when it has lost all brokers: a
        transactional producer of librdkafka 2.16 would wait for its coordinator forever after that. Brokers that are
        back are found within a second.
        """
        own = {name.replace("_", "."): value for name, value in fixed.items()}
        options = {name: _value(name, value, error) for name, value in self.given}
        basis = {"bootstrap.servers": self.servers, "log_level": 2, "metadata.recovery.strategy": "none"}
        return {**basis, "reconnect.backoff.max.ms": 1000, **own, **options}

    def without_secrets(self, text: object, error: type[WeftError]) -> str:
        """A text, for example of an error of the client's, in which no secret of these options stands."""
        shown = str(text)
        for name, value in self.given:
            if _is_secret(name):
                shown = shown.replace(resolve_secret(name, value, error), "…")
        return shown


def kafka_options(
    function: str, servers: str, options: Mapping[str, Any], own: Collection[str], error: type[WeftError]
) -> KafkaOptions:
    """Check options that a user gave to a function (`kafka` or `to_kafka`), and make them Kafka's own.

    Names may have underscores in place of dots, so that they can be given by keyword. ``own`` are the options that are
    the function's and not Kafka's, to be offered where a name is wrong.
    """
    if not isinstance(servers, str) or not servers.strip():
        raise error(f"{function}: no servers are named", hint='as in weft.kafka("localhost:9092", …)')
    permitted, checked_options = _KNOWN[function], dict[str, str]()
    for option, value in options.items():
        name = option.replace("_", ".")
        if name not in permitted:
            offered = nearest(option, (*own, *sorted(permitted)))
            raise error(f"{function}: there is no option {option!r}, or Weft sets it itself", hint=offered)
        if _is_secret(name) and not is_reference(value):
            hint = f'give "env:NAME" or "file:PATH": where {name} is found when it is needed'
            raise error(f"{function}: {name} is a secret and must not stand in a program", hint=hint)
        checked_options[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return KafkaOptions(servers.strip(), tuple(sorted(checked_options.items())))


def load_client(function: str, error: type[WeftError]) -> Any:
    """The module of Kafka's client, which only users of Kafka need to have installed."""
    try:
        return import_module("confluent_kafka")
    except ImportError:
        raise error(
            f"{function}: the package confluent-kafka is not installed", hint='pip install "weft[kafka]"'
        ) from None


def _is_secret(name: str) -> bool:
    """Whether the value of an option must not be seen.

    >>> [_is_secret(name) for name in ("sasl.password", "ssl.key.pem", "ssl.key.location", "client.id")]
    [True, True, False, False]
    """
    return bool(_SECRET.search(name)) and not name.endswith(".location")


def is_reference(value: object) -> bool:
    """Whether a value says where a secret is found, as `env:NAME` or `file:PATH`."""
    return isinstance(value, str) and bool(_REFERENCE.fullmatch(value))


def _value(name: str, value: str, error: type[WeftError]) -> str:
    """The value of an option: what its reference leads to if it is a secret."""
    return resolve_secret(name, value, error) if _is_secret(name) and is_reference(value) else value


def resolve_secret(name: str, reference: str, error: type[WeftError]) -> str:
    """What a reference leads to, for the option of that name."""
    kind, _, place = reference.partition(":")
    if kind == "env":
        if place not in os.environ:
            raise error(
                f"{name}: the environment has no variable {place}",
                hint="set it where the session runs, and for Spark's tasks too",
            )
        return os.environ[place]
    try:
        return Path(place).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as failure:
        raise error(f"{name}: {place} cannot be read: {failure.strerror}") from None
