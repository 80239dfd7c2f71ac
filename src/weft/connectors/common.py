"""What several sinks have in common: rows as one table, libraries that are optional, attempts, replays, and secrets.

Guarantees: a library that only some sinks need is imported when such a sink is used, never when Weft is imported; if it
is not installed, the error says what to install. How long a sink tries again is said by `Patience`; which batches a
table may have already when they are to be added, by `Replays`; and a `SecretText` is never shown, described in the log
or named in an error, but by the reference under which it is found.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pyarrow as pa

from weft.errors import SinkError
from weft.ports.sink import ResultRows, is_hurried

__all__ = [
    "Patience",
    "Replays",
    "SecretText",
    "as_table",
    "check_columns",
    "check_flat",
    "load_extra",
    "waiting_time",
]


def as_table(rows: ResultRows, schema: pa.Schema | None = None) -> pa.Table:
    """Rows as one table; a list of no batches needs the schema."""
    return rows if isinstance(rows, pa.Table) else pa.Table.from_batches(list(rows), schema)


def load_extra(module: str, function: str, extra: str) -> Any:
    """The module of a library that belongs to an extra of Weft's; ``function`` is what the user called."""
    try:
        library: ModuleType = import_module(module)
    except ImportError as error:
        raise SinkError(
            f"{function}: {module} cannot be imported: {error}", hint=f'pip install "weft[{extra}]"'
        ) from error
    return library


def check_flat(function: str, schema: pa.Schema) -> None:
    """Refuse results with lists, maps or structs, where nothing can hold them."""
    for field in schema:
        if pa.types.is_nested(field.type):
            raise SinkError(
                f"{function}: column {field.name} is a {field.type}, which cannot be written there",
                hint=f"give what is inside, as in {field.name}.field or {field.name}[0]",
            )


def check_columns(function: str, schema: pa.Schema, named: Collection[str] = ()) -> None:
    """Refuse results with types that tables lack, or two columns of one name; ``named`` must be among the columns."""
    for field in schema:
        if pa.types.is_duration(field.type) or pa.types.is_null(field.type):
            word = "interval" if pa.types.is_duration(field.type) else "null"
            raise SinkError(
                f"{function}: column {field.name} has the type {word}, which the table cannot hold",
                hint="leave it out, or CAST it in the query",
            )
    lower = [name.lower() for name in schema.names]
    twice = sorted({name for name in lower if lower.count(name) > 1})
    if twice:
        raise SinkError(
            f"{function}: the results have more than one column {twice[0]}",
            hint="give them different names with AS",
        )
    missing = [name for name in named if name not in schema.names]
    if missing:
        raise SinkError(
            f"{function}: the results have no column {missing[0]}",
            hint=f"the columns are {', '.join(schema.names)}",
        )


_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0  # seconds
_HURRIED_WAIT = 5.0  # seconds that a server may take for an answer where the caller is in a hurry


def waiting_time(seconds: float) -> float:
    """How long to wait for something that may take so many seconds: less within `weft.ports.sink.hurried`."""
    return min(seconds, _HURRIED_WAIT) if is_hurried() else seconds


@dataclass(frozen=True, slots=True)
class Patience:
    """Turns of a loop for some seconds, with pauses that grow; each says whether it is the last one.

    Whoever is done leaves the loop. At least two turns are given, so that something that takes long is tried again; but
    one alone within `weft.ports.sink.hurried`.

    >>> [last for last in Patience(0.0)]
    [False, True]
    """

    seconds: float

    def __iter__(self) -> Iterator[bool]:
        """Begin now."""
        end, pause = time.monotonic() + self.seconds, _FIRST_PAUSE
        yield is_hurried()
        if is_hurried():
            return
        while True:
            time.sleep(
                pause * random.uniform(0.5, 1.0)
            )  # two who are in each other's way should not keep step
            is_last = time.monotonic() >= end
            yield is_last
            if is_last:
                return
            pause = min(2 * pause, _LONGEST_PAUSE)


@dataclass(slots=True)
class Replays:
    """What a sink knows of the batches in its table; ``function`` is what the user called, for errors.

    A batch is skipped only if the table had it when the session went on, or if this sink has tried to add it. A batch
    that appears in between was added by somebody else under the same checkpoint: a second session, or another query
    whose sink names the same table differently. Its rows are not these rows, so that is an error.
    """

    function: str
    table: str
    _known: int = -1  # the last batch that was there at the start, or that was tried since

    def recover(self, last_committed: int, last_there: int) -> None:
        """Learn which batch the table has; one that the checkpoint cannot have made is an error."""
        if last_there > last_committed + 1:
            raise SinkError(
                f"{self.function}: {self.table} has batch {last_there}, but the checkpoint ends with {last_committed}",
                hint="write to another table, or continue with the checkpoint that this one was written by",
            )
        self._known = last_there

    def is_there(self, batch_id: int, last_there: int) -> bool:
        """Whether a batch need not be added, given the last one that the table has; if not, it is being tried now."""
        if last_there < batch_id:
            self._known = max(self._known, batch_id)
            return False
        if batch_id <= self._known:
            return True
        raise SinkError(
            f"{self.function}: {self.table} has got batch {batch_id} from another query or session of this checkpoint",
            hint="let one query write to the table, and one session use the checkpoint",
        )


_PASSWORD = re.compile(r"(?:^|[\s?&;])\s*(?:ssl)?password\s*=|://[^/@]*:[^@]*@", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class SecretText:
    """A text, or where it is found (`env:NAME`, `file:PATH`); ``function`` is what the user called, for errors.

    The reference is read when a connection is made, and not before. A text that is written out must have no password.
    """

    reference: str
    function: str

    def __post_init__(self) -> None:
        if not self.reference.strip():
            raise SinkError(f"{self.function}: the connection is empty")
        if not self._is_elsewhere and _PASSWORD.search(self.reference):
            raise SinkError(
                f"{self.function}: a password is written in the connection, and would be in the checkpoint",
                hint='put the connection into the environment or a file, and give "env:NAME" or "file:PATH"',
            )

    @property
    def _is_elsewhere(self) -> bool:
        return self.reference.startswith(("env:", "file:"))

    def read(self) -> str:
        """The text itself; it must not reach a log, an error or a file."""
        kind, _, place = self.reference.partition(":")
        if not self._is_elsewhere:
            return self.reference
        if kind == "env":
            text = os.environ.get(place)
        else:
            try:
                text = Path(place).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise SinkError(
                    f"{self.function}: {self.reference} cannot be read: {error.strerror}",
                    hint="the file is to hold the connection, readable by the driver",
                ) from None
        if not text:
            raise SinkError(
                f"{self.function}: {self.reference} has no text", hint="set it before the session starts"
            )
        return text

    def hidden_in(self, text: str) -> str:
        """A text, such as an error of a server's, without what must not be seen."""
        secrets = {self.read(), *_values(self.read())} if self._is_elsewhere else set()
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, "…")
        return text


def _values(connection: str) -> list[str]:
    """The passwords in a connection's text, as `password=…` or in a URI."""
    keyed = re.findall(r"password\s*=\s*('(?:\\.|[^'])*'|[^\s&;]+)", connection, re.IGNORECASE)
    in_uri = re.findall(r"://[^/@:]*:([^@]+)@", connection)
    return [value for quoted in (*keyed, *in_uri) if (value := quoted.strip("'"))]
