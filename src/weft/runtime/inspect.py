"""What is in a checkpoint directory, without touching it.

Guarantees: only reads, and takes no lock, so it can be asked while a session runs; what it shows is the state after the
last committed batch. Files of a batch under way are in no manifest yet and count as *unnamed*, as do those that a crash
left; the next commit deletes what is still unnamed then.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weft.errors import StateError, WeftError
from weft.plan.graph import PhysicalGraph
from weft.runtime.batch import longest
from weft.runtime.checkpoint import FORMAT, Checkpoint, Manifest, RunFile

__all__ = ["CheckpointState", "Files", "QueryState", "StoreState", "inspect"]

_TRIES = 5  # a running session may delete what is about to be read


@dataclass(frozen=True, slots=True)
class Files:
    """So many files, of so many bytes."""

    count: int
    bytes: int


@dataclass(frozen=True, slots=True)
class StoreState:
    """A store: its tuples and bytes, copies included; the runs and partitions they are in; their times.

    ``oldest`` and ``newest`` are microseconds, or, if it is ``counted`` (a `ROWS` window), numbers of tuples.
    """

    name: str
    rows: int
    bytes: int
    runs: int
    partitions: int
    oldest: int | None
    newest: int | None
    counted: bool = False


@dataclass(frozen=True, slots=True)
class QueryState:
    """A query: its text, its watermarks by stream in microseconds, the tuples that came by input, its stores."""

    name: str
    text: str
    watermarks: Mapping[str, int]
    arrived: Mapping[str, int]
    stores: tuple[StoreState, ...]


@dataclass(frozen=True, slots=True)
class CheckpointState:
    """A checkpoint: whose it is, how far it got (``last_batch`` -1: nowhere yet), and what lies in it."""

    directory: str
    format: int
    partitions: int | None
    streams: Mapping[str, str]
    last_batch: int
    queries: tuple[QueryState, ...]
    live: Files
    unnamed: Files
    dead_letters: int

    def to_dict(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def inspect(root: Path) -> CheckpointState:
    """What is in a checkpoint directory."""
    identity = _identity(root)
    files, last, manifests = _consistent(root)
    now = manifests[-1] if manifests else Manifest()
    named = set().union(*(manifest.files() for manifest in manifests))
    texts: Mapping[str, Any] = identity.get("queries", {})
    counted = _counted(root, last)
    return CheckpointState(
        directory=str(root),
        format=identity["format"],
        partitions=identity.get("partitions"),
        streams={name: _stream(found) for name, found in identity.get("streams", {}).items()},
        last_batch=last,
        queries=tuple(
            _query(name, str(texts.get(name, "")), now, counted)
            for name in sorted({*texts, *now.runs, *now.arrived})
        ),
        live=_sum(size for name, size in files.items() if name in named),
        unnamed=_sum(size for name, size in files.items() if name not in named),
        dead_letters=_dead_letters(root / "dead_letters"),
    )


def _identity(root: Path) -> dict[str, Any]:
    file = root / "weft.json"
    try:
        found = json.loads(file.read_text(encoding="utf-8"))
    except OSError:
        raise StateError(
            f"{root} is no checkpoint directory", hint="name the directory given as Session(checkpoint=…)"
        ) from None
    except ValueError:
        found = None
    if not isinstance(found, dict) or "format" not in found:
        raise StateError(f"{file} is damaged", hint="restore it, or use a new checkpoint directory")
    if found["format"] != FORMAT:
        raise StateError(
            f"{root} has format {found['format']}, this version of Weft reads {FORMAT}",
            hint="look at it with the version of Weft that wrote it",
        )
    return found


def _stream(found: Any) -> str:
    """A stream's columns and its event time, as the checkpoint has them."""
    if not isinstance(found, list) or not found:
        return str(found)
    return f"{found[0]}, event time {found[1]}" if len(found) > 1 and found[1] else str(found[0])


def _consistent(root: Path) -> tuple[dict[str, int], int, list[Manifest]]:
    """The bucket files and the kept manifests, oldest first, of one moment as far as a running session allows."""
    checkpoint = Checkpoint(root)
    for _ in range(_TRIES):
        files, numbers = _sizes(checkpoint.buckets), _numbers(root)
        try:
            found = [manifest for number in numbers if (manifest := checkpoint.manifest(number))]
        except FileNotFoundError:
            continue
        except (ValueError, KeyError, TypeError):
            raise StateError(
                f"a manifest in {root / 'state'} is damaged", hint="restore it from a copy of the checkpoint"
            ) from None
        if len(found) == len(numbers) == len(_numbers(root)) and checkpoint.last() == max(
            numbers, default=-1
        ):
            return files, max(numbers, default=-1), found
    raise StateError(f"{root} changes faster than it can be read", hint="try again")


def _numbers(root: Path) -> list[int]:
    return sorted(int(file.stem) for file in (root / "state").glob("*.json") if file.stem.isdigit())


def _sizes(folder: Path) -> dict[str, int]:
    sizes = {}
    for file in sorted(folder.iterdir()) if folder.is_dir() else []:
        try:
            sizes[file.name] = file.stat().st_size
        except FileNotFoundError:  # a running session has deleted it
            continue
    return sizes


def _counted(root: Path, last: int) -> set[tuple[str, str]]:
    """The stores, by query, whose clock counts tuples, as the plan of the last batch says."""
    try:
        plan = Checkpoint(root).plan(last)
        graphs = {name: PhysicalGraph.from_json(text) for name, text in plan.graphs.items()} if plan else {}
    except (OSError, ValueError, KeyError, TypeError, WeftError):
        return set()  # no plan, no answer; times are then shown as they are
    return {
        (name, store.name)
        for name, graph in graphs.items()
        for store in graph.stores
        if len(store.aliases) == 1 and longest(graph.query, store.aliases[0]) is not None
    }


def _query(name: str, text: str, manifest: Manifest, counted: set[tuple[str, str]]) -> QueryState:
    stores = manifest.runs.get(name, {})
    return QueryState(
        name,
        text,
        dict(manifest.marks.get(name, {})),
        dict(manifest.arrived.get(name, {})),
        tuple(_store(store, stores[store], (name, store) in counted) for store in sorted(stores, key=_rank)),
    )


def _rank(store: str) -> tuple[int, str]:
    """Inputs first, then intermediate results."""
    return store.count("⋈"), store


def _store(name: str, partitions: Mapping[int, tuple[RunFile, ...]], counted: bool) -> StoreState:
    bounds = [run.bounds for runs in partitions.values() for run in runs]
    return StoreState(
        name,
        sum(one.rows for one in bounds),
        sum(one.bytes for one in bounds),
        len(bounds),
        sum(1 for runs in partitions.values() if runs),
        min((one.min_time for one in bounds if one.min_time is not None), default=None),
        max((one.max_time for one in bounds if one.max_time is not None), default=None),
        counted,
    )


def _sum(sizes: Iterable[int]) -> Files:
    every = list(sizes)
    return Files(len(every), sum(every))


def _dead_letters(folder: Path) -> int:
    return sum(
        1 for file in sorted(folder.glob("batch-*.jsonl")) for line in file.read_bytes().splitlines() if line
    )
