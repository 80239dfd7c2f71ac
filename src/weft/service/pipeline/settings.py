"""How a pipeline file wants to be run: where its state is kept, on which Spark, in which order, how forgiving.

Guarantees: a setting is as the session takes it, or an error names its place. What was given on the command line
wins.
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
from weft.runtime.loop.config import DURABILITIES
from weft.runtime.loop.driver import POLICIES
from weft.service.pipeline.document import Node, resolve_path
from weft.session.settings import ADAPT, EXECUTIONS
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


def _driver(node: Node, root: Path) -> str:  # noqa: ARG001
    return node.choice("driver policy", POLICIES)


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


def _key_limit(node: Node, root: Path) -> int:  # noqa: ARG001
    count = node.integer()
    if count < 1:
        raise node.error(f"with a limit of {count} results, no key has any", "use a number above 0")
    return count


def _execution(node: Node, root: Path) -> str:  # noqa: ARG001
    return node.choice("execution", EXECUTIONS)


def _memory(node: Node, root: Path) -> str | int:  # noqa: ARG001
    given = node.value if isinstance(node.value, int) else node.text('as in "2 GB"')
    with node.at():
        task_memory(given, 1)
    return given


def _result_limit(node: Node, root: Path) -> int:  # noqa: ARG001
    count = node.integer()
    if count < 1:
        raise node.error(f"with a limit of {count} results, no query has any", "use a number above 0")
    return count


def _query_limit(node: Node, root: Path) -> int:  # noqa: ARG001
    count = node.integer()
    if count < 1:
        raise node.error(f"with a limit of {count} queries, none runs", "use a number above 0")
    return count


def _limits(node: Node, root: Path) -> Limits:  # noqa: ARG001
    found = node.section([field.name for field in fields(Limits)])
    given = {name: one.integer() for name, one in found.items()}
    with node.at():
        return Limits(**given)


def _adapt(node: Node, root: Path) -> str:  # noqa: ARG001
    if node.value is False:  # what YAML makes of off, if it is not in quotes
        return "off"
    return node.choice("way to adapt", ADAPT)


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


def _ship(node: Node, root: Path) -> bool:  # noqa: ARG001
    return node.flag()


def _durability(node: Node, root: Path) -> str:  # noqa: ARG001
    return node.choice("durability", DURABILITIES)


SETTINGS: dict[str, Callable[[Node, Path], Any]] = {
    "checkpoint": _checkpoint,
    "master": _master,
    "driver": _driver,
    "dead_letter_limit": _limit,
    "key_limit": _key_limit,
    "execution": _execution,
    "ship": _ship,
    "memory": _memory,
    "result_limit": _result_limit,
    "query_limit": _query_limit,
    "limits": _limits,
    "adapt": _adapt,
    "adaptation": _adaptation,
    "durability": _durability,
}


def read_settings(top: Node, root: Path, given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a file, by the names of the session's arguments."""
    entries = {name: top.entry(name) for name in SETTINGS}
    found = {name: SETTINGS[name](node, root) for name, node in entries.items() if node.value is not None}
    return {**found, **{name: value for name, value in given.items() if value is not None}}
