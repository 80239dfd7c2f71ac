"""Where the time and the memory of queries go: every step of their graph with what it did, and a bill for each query.

Guarantees: it only looks. What is measured is the time of every batch, of the slowest task of each hop in it, the
tuples of every step, and the bytes of every store. Nothing is added and nothing is lost: the seconds of all steps, and
so those of all bills, sum up to the seconds of the batches, and the bytes of all bills to those of the stores.

Three rules divide what is measured only as a whole. The seconds of a hop are divided among its steps by the tuples that
each handled: those that arrived and the matches they had. What a batch took besides its hops (planning, waiting,
committing) is divided among the queries by the results they gave. A step that serves several queries is divided evenly
among them, and so is what its store holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from weft.errors import StateError
from weft.logical.expr.expression import aliases, to_sql
from weft.logical.html_table import html_table
from weft.logical.query.query import Query
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.rules import ProbeRule, StoreRule, Users
from weft.plan.show.figures import number, table
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.observe.metrics import BatchMetrics
from weft.storage.storage import storage_at

__all__ = ["Analysis", "QueryBill", "StepAnalysis", "analyse", "analyse_checkpoint"]

_STEP_HEADS = (
    "step",
    "hop",
    "rows in",
    "rows out",
    "seconds",
    "of all",
    "state, bytes",
    "busiest task",
    "for",
    "SQL",
)
_BILL_HEADS = ("query", "seconds", "of all", "state, bytes", "results")
_RULES = (
    "the seconds of a hop are divided among its steps by tuples, those of a step evenly among the queries it is for, "
    "and what batches took besides their hops by results"
)


@dataclass(frozen=True, slots=True)
class StepAnalysis:
    """What one step of a graph did: reading an input, storing, probing, or giving the results of a query.

    ``text`` is what it does in SQL. ``bytes`` is what its store holds, for the step that stores. ``busiest`` is the
    part of its hop's work that the busiest task did, on average; None if it was not measured. ``users`` are the
    queries that it is for.
    """

    step: str
    text: str
    hop: int
    rows_in: int
    rows_out: int
    seconds: float
    bytes: int
    busiest: float | None
    users: Users


@dataclass(frozen=True, slots=True)
class QueryBill:
    """A query's part of the seconds and bytes of all steps, and how many results it gave for it."""

    query: str
    seconds: float
    bytes: float
    results: int


@dataclass(frozen=True, slots=True)
class Analysis:
    """The steps of some batches, the costliest first, and the bill of every query; ``seconds`` are those of all."""

    batches: int
    seconds: float
    steps: tuple[StepAnalysis, ...]
    bills: tuple[QueryBill, ...]

    def of(self, query: str) -> Analysis:
        """The steps that are for a query, and its bill."""
        steps = tuple(step for step in self.steps if query in step.users)
        return replace(self, steps=steps, bills=tuple(bill for bill in self.bills if bill.query == query))

    def to_dict(self) -> dict[str, Any]:
        """As plain data, for JSON."""
        return asdict(self)

    def __repr__(self) -> str:
        counts = f"{len(self.steps)} steps, {len(self.bills)} queries"
        return f"<Analysis of {self.batches} batches: {counts}; print shows it>"

    def __str__(self) -> str:
        title = f"Analysis of {self.batches} batches, which took {number(self.seconds)} s"
        bills = ["Bill", *table(_BILL_HEADS, [self._bill_cells(bill) for bill in self.bills])]
        steps = [
            "Steps, the costliest first",
            *table(_STEP_HEADS, [self._cells(step) for step in self.steps]),
        ]
        return "\n".join([title, "", *bills, "", *steps, "", f"note: {_RULES}"]) + "\n"

    def _repr_html_(self) -> str:
        bills = html_table(_BILL_HEADS, [self._bill_cells(bill) for bill in self.bills], "Bill")
        return bills + html_table(_STEP_HEADS, [self._cells(step) for step in self.steps], "Steps")

    def _part(self, seconds: float) -> str:
        return f"{seconds / self.seconds:.0%}" if self.seconds else "?"

    def _cells(self, step: StepAnalysis) -> tuple[str, ...]:
        rows = (str(step.hop), number(step.rows_in), number(step.rows_out))
        spent = (number(step.seconds), self._part(step.seconds), number(step.bytes) if step.bytes else "-")
        busiest = "?" if step.busiest is None else f"{step.busiest:.0%}"
        return (step.step, *rows, *spent, busiest, ", ".join(step.users), step.text)

    def _bill_cells(self, bill: QueryBill) -> tuple[str, ...]:
        spent = (number(bill.seconds), self._part(bill.seconds), number(bill.bytes))
        return (bill.query, *spent, number(bill.results))


def analyse(graph: PhysicalGraph, batches: Sequence[BatchMetrics]) -> Analysis:
    """What the batches that ran by a graph cost, step by step and query by query."""
    queries = [member.name for member in graph.members]
    results = {name: sum(batch.answers.get(name, 0) for batch in batches) for name in queries}
    hops = [_hop_seconds(batches, hop) for hop in range(graph.hops + 1)]
    seconds = max(sum(batch.elapsed for batch in batches), sum(hops))
    steps = [*_reads(graph, batches), *_stores(graph, batches), *_probes(graph, batches)]
    timed = [step for hop, spent in enumerate(hops) for step in _divided(steps, hop, spent)]
    rest = seconds - sum(step.seconds for step in timed)
    timed += _deliveries(graph, results, rest)
    ordered = tuple(sorted(timed, key=lambda step: (-step.seconds, step.step)))
    bills = [_bill(name, ordered, results[name]) for name in queries]
    return Analysis(len(batches), seconds, ordered, tuple(sorted(bills, key=lambda bill: -bill.seconds)))


def analyse_checkpoint(place: Path | str) -> Analysis:
    """What the last batches cost that a checkpoint remembers, whether or not a session runs on it; it is only read."""
    log = Checkpoint(storage_at(str(place)))
    last = log.manifest(log.last())
    if last is None or not last.blueprint or not last.metrics:
        raise StateError(f"no query has run yet in {place}", hint="run the pipeline first")
    before = log.manifest(last.number - 1) if last.number > 0 else None
    kept = [
        one for one in (before, last) if one is not None and one.blueprint == last.blueprint and one.metrics
    ]
    graph = PhysicalGraph.from_json(log.blueprint(last.blueprint).graph)
    return analyse(graph, [BatchMetrics.from_dict(one.metrics) for one in kept])


def _hop_seconds(batches: Iterable[BatchMetrics], hop: int) -> float:
    return sum(batch.seconds[hop] for batch in batches if hop < len(batch.seconds))


def _busiest(batches: Iterable[BatchMetrics], hop: int) -> float | None:
    parts = [batch.busiest[hop] for batch in batches if hop < len(batch.busiest)]
    return sum(parts) / len(parts) if parts else None


def _reads(graph: PhysicalGraph, batches: Sequence[BatchMetrics]) -> Iterator[StepAnalysis]:
    for alias in graph.aliases:
        users = tuple(member.name for member in graph.members if alias in member.query.aliases)
        rows, filters = _rows_of(alias, batches), []
        for member in graph.members:
            own = [str(to_sql(one)) for one in member.query.filters if alias in aliases(one)]
            filters += [f"{' AND '.join(own)} ({member.name})"] if own else []
        text = " · ".join([f"FROM {graph.input(alias)}", *(f"WHERE {one}" for one in filters)])
        yield StepAnalysis(f"read {alias}", text, 0, rows, rows, 0.0, 0, _busiest(batches, 0), users)


def _stores(graph: PhysicalGraph, batches: Sequence[BatchMetrics]) -> Iterator[StepAnalysis]:
    held = batches[-1].stores if batches else {}
    counted = set[str]()
    for rule in (rule for rule in graph.rules if isinstance(rule, StoreRule)):
        hop, store = graph.edge(rule.edge).hop, graph.store(rule.store)
        rows = _arriving(graph, rule.edge, batches)
        here = (
            rule.store in held and rule.store not in counted
        )  # several inputs may bring tuples to one store
        size = held[rule.store].bytes if here else 0
        counted.add(rule.store)
        text = f"keep {', '.join(str(graph.input(alias)) for alias in store.aliases)}"
        users = rule.users or store.users or tuple(member.name for member in graph.members)
        yield StepAnalysis(
            f"store {rule.store}", text, hop, rows, rows, 0.0, size, _busiest(batches, hop), users
        )


def _probes(graph: PhysicalGraph, batches: Sequence[BatchMetrics]) -> Iterator[StepAnalysis]:
    for rule in (rule for rule in graph.rules if isinstance(rule, ProbeRule)):
        hop = graph.edge(rule.edge).hop
        figures = [batch.steps[rule.edge] for batch in batches if rule.edge in batch.steps]
        probes, matches = sum(one.probes for one in figures), sum(one.matches for one in figures)
        checks = [f"{one.probe} = {one.stored}" for one in rule.equalities]
        text = " AND ".join([*checks, *(str(to_sql(one)) for one in rule.predicates)]) or "every pair"
        users = rule.users or tuple(member.name for member in graph.members)
        joined = (rule.start, *(alias for alias in rule.known if alias != rule.start))
        name = f"{', '.join(joined)} → {rule.store}"
        yield StepAnalysis(name, text, hop, probes, matches, 0.0, 0, _busiest(batches, hop), users)


def _arriving(graph: PhysicalGraph, edge: str, batches: Sequence[BatchMetrics]) -> int:
    """How many tuples came over an edge: all of an input, or the matches of the probe that sends them."""
    for rule in graph.rules:
        if isinstance(rule, ProbeRule) and edge in rule.outputs:
            return sum(batch.steps[rule.edge].matches for batch in batches if rule.edge in batch.steps)
    source = graph.edge(edge).source
    return sum(_rows_of(node.alias, batches) for node in graph.sources if node.name == source)


def _rows_of(alias: str, batches: Iterable[BatchMetrics]) -> int:
    return sum(batch.inputs[alias].rows for batch in batches if alias in batch.inputs)


def _divided(steps: Iterable[StepAnalysis], hop: int, seconds: float) -> list[StepAnalysis]:
    """The steps of a hop, each with its part of the hop's seconds: by the tuples that it handled."""
    here = [step for step in steps if step.hop == hop]
    handled = [step.rows_in + (step.rows_out if "→" in step.step else 0) for step in here]
    whole = sum(handled)
    parts = [count / whole if whole else 1 / len(here) for count in handled]
    return [replace(step, seconds=seconds * part) for step, part in zip(here, parts, strict=True)]


def _selected(query: Query) -> str:
    """What a query gives, as SQL says it."""
    return str(query).partition(" FROM ")[0]


def _deliveries(graph: PhysicalGraph, results: Mapping[str, int], seconds: float) -> list[StepAnalysis]:
    """What batches took besides their hops, divided by the results that queries gave; evenly if there were none."""
    whole, count = sum(results.values()), len(results)
    return [
        StepAnalysis(
            f"plan, commit {name}",
            _selected(graph.member(name).query),
            graph.hops,
            given,
            given,
            seconds * (given / whole if whole else 1 / count),
            0,
            None,
            (name,),
        )
        for name, given in results.items()
    ]


def _bill(query: str, steps: Iterable[StepAnalysis], results: int) -> QueryBill:
    own = [step for step in steps if query in step.users]
    seconds = sum(step.seconds / len(step.users) for step in own)
    return QueryBill(query, seconds, sum(step.bytes / len(step.users) for step in own), results)
