"""How a pipeline file wants to be run: where its state is kept, on which Spark, in which order, how forgiving.

Guarantees: a file has the settings that a session has (`Settings`), under the same names; each is as the session takes
it, or an error names its place. What was given on the command line wins.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from weft.bucket.memory_limits import task_memory
from weft.connectors.formats.dead_letters import DeadLetterLimit
from weft.logical.query.limits import Limits
from weft.optimizer.adaptation import Adaptation
from weft.service.pipeline.document import Node, resolve_path
from weft.session.settings import ADAPT, RULE, SCALE, AtLeastOne, OneOf, Settings, TimeSpan
from weft.session.validation import checkpoint_path

__all__ = ["SETTINGS", "read_settings"]


def _checkpoint(node: Node, root: Path) -> Path | str:
    path = resolve_path(node, root)
    with node.at():
        return checkpoint_path(path)


def _master(node: Node, root: Path) -> str:  # noqa: ARG001
    text = node.text("as in local[*] or spark://host:7077")
    if not text.strip():
        raise node.error("the master is empty", "as in local[*] or spark://host:7077")
    return text


def _limit(node: Node, root: Path) -> DeadLetterLimit:  # noqa: ARG001
    """A number of records, or that and a fraction of all."""
    if not isinstance(node.value, dict):
        count = node.integer()
        with node.at():
            return DeadLetterLimit(records=count)
    found = node.section(("records", "fraction"))
    if not found:
        raise node.error("the limit is empty", "as in {records: 1000, fraction: 0.01}")
    given: dict[str, Any] = {}
    if "records" in found:
        given["records"] = found["records"].integer()
    if "fraction" in found:
        given["fraction"] = found["fraction"].figure()
    with node.at():
        return DeadLetterLimit(**given)


def _memory(node: Node, root: Path) -> str | int:  # noqa: ARG001
    given = node.value if isinstance(node.value, int) else node.text('as in "2 GB"')
    with node.at():
        task_memory(given, 1)
    return given


def _limits(node: Node, root: Path) -> Limits:  # noqa: ARG001
    found = node.section([field.name for field in fields(Limits)])
    given = {name: one.integer() for name, one in found.items()}
    with node.at():
        return Limits(**given)


def _adapt(node: Node, root: Path) -> str:  # noqa: ARG001
    if node.value is False:  # what YAML makes of off, if it is not in quotes
        return "off"
    return node.choice("way to adapt", ADAPT)


def _scale(node: Node, root: Path) -> str:  # noqa: ARG001
    return "off" if node.value is False else node.choice("way to scale", SCALE)


_ADAPTATION: dict[str, Callable[[Node], object]] = {
    "epoch_batches": Node.integer,
    "horizon": Node.duration,
    "migrate": lambda node: node.choice("way to migrate", Adaptation.WAYS),
}


def _adaptation(node: Node, root: Path) -> Adaptation:  # noqa: ARG001
    found = node.section([field.name for field in fields(Adaptation)])
    given: dict[str, Any] = {name: _ADAPTATION.get(name, Node.figure)(one) for name, one in found.items()}
    with node.at():
        return Adaptation(**given)


# Settings that files write in a way of their own; the others are read by the rule of their field.
_WRITTEN: dict[str, Callable[[Node, Path], Any]] = {
    "checkpoint": _checkpoint,
    "master": _master,
    "dead_letter_limit": _limit,
    "memory": _memory,
    "limits": _limits,
    "adapt": _adapt,
    "scale": _scale,
    "adaptation": _adaptation,
}
# Of these, one is an object of a running program; the others have sections with entries of their own.
_NOT_IN_FILES = ("spark", "statistics", "options")
_FIELDS = {one.name: one for one in fields(Settings) if one.name not in _NOT_IN_FILES}
SETTINGS = tuple(_FIELDS)


def _read(name: str, node: Node, root: Path) -> Any:
    """A setting, as its field says what it has to be."""
    if name in _WRITTEN:
        return _WRITTEN[name](node, root)
    rule = _FIELDS[name].metadata.get(RULE)
    if isinstance(rule, OneOf):
        return node.choice(rule.what, rule.names)
    if isinstance(rule, TimeSpan):
        with node.at():
            return rule.span(node.text('as in "500 ms"'))
    if _FIELDS[name].default is False:
        return node.flag()
    count = node.integer()
    if isinstance(rule, AtLeastOne):
        with node.at():
            rule.check(count)
    return count


def read_settings(top: Node, root: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a file, by the names of the session's arguments."""
    entries = {name: top.entry(name) for name in SETTINGS}
    found = {name: _read(name, node, root) for name, node in entries.items() if node.value is not None}
    return {**found, **{name: value for name, value in given.items() if value is not None}}
