"""The base class of reports, which encodes a report as a message: its fields as JSON, unless a kind overrides that."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import pyarrow as pa

from weft.logical.codec import decode, encode
from weft.runtime.wire.messages import REPORT, Message

__all__ = ["EncodedReport", "ProtocolError"]

Own = TypeVar("Own", bound="EncodedReport")


class ProtocolError(RuntimeError):
    """A message that is no report of this version of Weft."""


@dataclass(frozen=True, slots=True)
class EncodedReport:
    """A report whose message is its fields as JSON."""

    kind: ClassVar[str]

    def to_message(self, at: int = 0) -> Message:
        """As a message to the task ``at``, whose later hops use it or pass it on to the driver."""
        return Message(at, REPORT + self.kind, pa.py_buffer(json.dumps(encode(self)).encode()))

    @classmethod
    def from_message(cls: type[Own], message: Message) -> Own:
        """What `to_message` made."""
        return decode(cls, json.loads(message.data.to_pybytes()))

    @classmethod
    def is_in(cls, message: Message) -> bool:
        """Whether a message is a report of this kind."""
        return message.target.removeprefix(REPORT).partition("\t")[0] == cls.kind and message.is_report
