"""Where bad records go.

Guarantees: the records of batch N are one file of JSON lines, which is there completely or not at all; writing
batch N again replaces it, so a replay leaves no record twice, and a batch without bad records leaves no file. A
limit stops the run with an error that says how much was bad and quotes the first cases.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.connectors.formats.records import BadRecord, decode_records, encode_records
from weft.errors import SourceError
from weft.logical.arguments import check_fields
from weft.storage.storage import Storage, storage_at

__all__ = [
    "DeadLetterBox",
    "DeadLetterLimit",
    "DeadLetters",
]


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """A folder of bad records, one entry for each batch that had some; on a disk or in an object store."""

    directory: Path | str

    @property
    def _storage(self) -> Storage:
        return storage_at(str(self.directory))

    def content(self, batch_id: int) -> bytes | None:
        """The bad records of a batch as lines of JSON; None if it had none."""
        return self._storage.get(_name(batch_id))

    def sizes(self) -> dict[int, int]:
        """The batches that had bad records, in order, and the bytes of each."""
        return {_batch(name): size for name, size in self._storage.sizes("").items() if _is_letter(name)}

    def locate(self, batch_id: int) -> str:
        """Where people find the records of a batch."""
        return self._storage.locate(_name(batch_id))

    def write(self, batch_id: int, records: Sequence[BadRecord]) -> None:
        """Keep the bad records of a batch instead of what an earlier attempt kept."""
        if records:
            self._storage.put(_name(batch_id), encode_records(records))
        else:
            self._storage.delete(_name(batch_id))

    def read(self, batch_id: int) -> tuple[BadRecord, ...]:
        """The bad records of a batch."""
        return decode_records(self._storage.get(_name(batch_id)) or b"")

    def batches(self) -> Iterator[int]:
        """The batches that had bad records, in order."""
        yield from sorted(_batch(name) for name in self._storage.list("") if _is_letter(name))


def _is_letter(name: str) -> bool:
    return name.startswith("batch-") and name.endswith(".jsonl")


def _batch(name: str) -> int:
    return int(name.removeprefix("batch-").removesuffix(".jsonl"))


def _name(batch_id: int) -> str:
    return f"batch-{batch_id:012d}.jsonl"


@dataclass(frozen=True, slots=True)
class DeadLetterLimit:
    """How many records, or which fraction of all (once `least` were seen), may be bad before the run stops."""

    records: int | None = None
    fraction: float | None = None
    least: int = 1000

    def __post_init__(self) -> None:
        check_fields(self, SourceError)
        if self.records is not None and self.records < 0:
            raise SourceError(f"a limit of {self.records} bad records makes no sense", hint="use 0 or more")
        if self.fraction is not None and not 0 <= self.fraction <= 1:
            raise SourceError(
                f"a limit of {self.fraction} bad records makes no sense", hint="a fraction is 0 to 1"
            )

    def check(
        self, bad: int, seen: int, examples: Sequence[BadRecord] = (), where: Path | str | None = None
    ) -> None:
        """Stop the run if `bad` of `seen` records, over the whole run, are too many."""
        too_many = self.records is not None and bad > self.records
        too_often = self.fraction is not None and seen >= self.least and bad > self.fraction * seen
        if not (too_many or too_often):
            return
        allowed = f"{self.records} records" if too_many else f"{self.fraction:.2%} of them"
        quoted = "".join(f"\n  {record}" for record in examples[:3])
        raise SourceError(
            f"{bad} of {seen} records were bad, more than the limit of {allowed}{quoted}",
            hint=f"see {where}, then correct the input or raise the limit" if where else None,
        )


@dataclass(frozen=True, slots=True)
class DeadLetterBox:
    """Where a running session puts its bad records."""

    directory: Path | str
    limit: DeadLetterLimit

    def take(self, batch_id: int, lines: bytes, bad: int, seen: int) -> None:
        """Keep a batch's records, given as JSON lines; stop the run if, with them, too many of all are bad."""
        records, letters = decode_records(lines), DeadLetters(self.directory)
        letters.write(batch_id, records)
        self.limit.check(bad, seen, records, letters.locate(batch_id))
