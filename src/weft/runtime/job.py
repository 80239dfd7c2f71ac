"""What every task of a batch's job is given.

Guarantees: small, since it is sent with every task; what it names is read from the checkpoint, once in each process.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from weft.logical.schema import Stream
from weft.runtime.checkpoint import Checkpoint, Manifest, Plan
from weft.runtime.interpret import LIMIT
from weft.runtime.messages import Exchange
from weft.runtime.program import Program, program_of
from weft.runtime.step import PORTION_BYTES

__all__ = ["Job"]


@dataclass(frozen=True, slots=True)
class Job:
    """A batch, as its tasks are told of it: where the checkpoint is, and what reads and writes.

    ``sinks`` write on their own; of the queries in ``counting``, results are only counted. A job at a ``boundary``
    runs what is stored through the graphs that the batch will have.
    """

    root: str
    identity: str  # of the checkpoint: the directory may have been another's before
    number: int
    sources: Mapping[str, Any]
    streams: Mapping[str, Stream]
    sinks: Mapping[str, Any]
    exchange: Exchange = field(default_factory=Exchange)
    counting: frozenset[str] = frozenset()
    boundary: bool = False
    attempt: str = ""  # when a batch is tried again, what it begins with may be in other files
    limit: int = LIMIT  # results of one key
    functions: Mapping[str, bytes] = field(default_factory=dict)  # of users
    portion_bytes: int = PORTION_BYTES  # about so much is looked at, and given away, together
    result_limit: int | None = None  # of one query in one batch

    def load(self) -> tuple[Plan, Manifest]:
        """The batch's plan and the state it starts from."""
        return _load(self.root, self.identity, self.number, self.boundary, self.attempt)

    def program(self, blueprint: str) -> Program:
        """What a blueprint is executed as."""
        return _program(self.root, self.identity, blueprint)

    @property
    def folder(self) -> Path:
        """Where bucket files are."""
        return Checkpoint(Path(self.root)).buckets


@lru_cache(maxsize=2)
def _load(
    root: str,
    identity: str,  # noqa: ARG001
    number: int,
    boundary: bool,
    attempt: str,  # noqa: ARG001
) -> tuple[Plan, Manifest]:
    checkpoint = Checkpoint(Path(root))
    plan = checkpoint.plan(number)
    relaid = plan is not None and plan.changed and not boundary
    manifest = checkpoint.relaid(number) if relaid else checkpoint.manifest(number - 1)
    if plan is None or manifest is None:
        raise FileNotFoundError(f"the checkpoint {root} has no plan for batch {number}")
    return plan, manifest


@lru_cache(maxsize=8)
def _program(root: str, identity: str, blueprint: str) -> Program:  # noqa: ARG001
    return program_of(Checkpoint(Path(root)).blueprint(blueprint).graph)
