"""The base class of reports, which encodes a report as a message: its fields as JSON, unless a kind overrides that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeVar

import pyarrow as pa

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
        return Message(at, REPORT + self.kind, pa.py_buffer(json.dumps(self.to_dict()).encode()))

    @classmethod
    def from_message(cls: type[Own], message: Message) -> Own:
        """What `to_message` made."""
        return cls.from_dict(json.loads(message.data.to_pybytes()))

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_dict(cls: type[Own], data: Mapping[str, Any]) -> Own:
        """What `to_dict` made, also after a way through JSON."""
        return cls(**data)

    @classmethod
    def is_in(cls, message: Message) -> bool:
        """Whether a message is a report of this kind."""
        return message.target.removeprefix(REPORT).partition("\t")[0] == cls.kind and message.is_report
