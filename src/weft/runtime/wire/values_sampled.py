"""The report of a sample of an attribute: its numbers as bytes, all else as JSON, a few KB in all."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from weft.runtime.wire.encoded_report import EncodedReport
from weft.runtime.wire.messages import REPORT, Message
from weft.stats.sampling.attributes import Attribute
from weft.stats.sampling.samples import AttributeSample, Common

__all__ = ["ValuesSampled"]

# The fields that are sequences of numbers, in the order of their bytes.
NUMBERS: dict[str, np.dtype[Any]] = {
    "hashes": np.dtype("<u8"),
    "ordered": np.dtype("<f8"),
    "counts": np.dtype("<u4"),
}


@dataclass(frozen=True, slots=True)
class ValuesSampled(EncodedReport):
    """A read task sampled an attribute of a stream that queries join on."""

    kind = "values"
    sample: AttributeSample

    def to_message(self, at: int = 0) -> Message:
        """As a message, whose data are the numbers."""
        sample = self.sample
        numbers = [np.array(getattr(sample, name), kind) for name, kind in NUMBERS.items()]
        plain = {name: getattr(sample, name) for name in ("rows", "looked", "nulls", "threshold")}
        plain["attribute"] = sample.attribute.stream, sample.attribute.name
        plain["common"] = [(one.value, one.hash, one.count) for one in sample.common]
        head = json.dumps({**plain, "sizes": [some.size for some in numbers]})
        data = b"".join(some.tobytes() for some in numbers)
        return Message(at, f"{REPORT}{self.kind}\t{head}", pa.py_buffer(data))

    @classmethod
    def from_message(cls, message: Message) -> ValuesSampled:
        """What `to_message` made."""
        head: dict[str, Any] = json.loads(message.target.partition("\t")[2])
        data, begin = message.data.to_pybytes(), 0
        for (name, kind), size in zip(NUMBERS.items(), head.pop("sizes"), strict=True):
            head[name] = tuple(np.frombuffer(data, kind, size, begin).tolist())
            begin += size * kind.itemsize
        head["attribute"] = Attribute(*head["attribute"])
        head["common"] = tuple(Common(*one) for one in head["common"])
        return cls(AttributeSample(**head))
