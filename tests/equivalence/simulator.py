"""A physical graph executed tuple by tuple, in plain Python, over real partitions.

It follows the graph to the letter: a probe sees the partition the edge took it to and nothing else, in the order of the
rules, and only what came before it in the total order (design, D5). So a graph that sends a tuple to the wrong
partition, or checks too much or too little, gives wrong results here.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import product

from weft.logical.expr.expression import Call, Column, Expr, Literal
from weft.logical.query.query import Query
from weft.logical.query.window import Range, Rows
from weft.plan.physical.derive import filters_of
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.rules import Edge, ProbeRule, Rule, StoreRule
from weft.plan.schedule import ALL, GROUP_BY, LOCAL

Value = int | timedelta | bool | None
Position = tuple[int, int, int]


@dataclass(frozen=True)
class Row:
    """A tuple: its values, and its place in the total order (batch, rank of its relation, number)."""

    values: Mapping[str, Value]
    position: Position


Match = Mapping[str, Row]
Batch = Mapping[str, Sequence[Row]]


def evaluate(expr: Expr, match: Match) -> Value:
    """An expression's value, NULL being None."""
    if isinstance(expr, Column):
        return match[expr.alias].values[expr.name]
    if isinstance(expr, Literal):
        return expr.value  # type: ignore[return-value]
    left, right = (evaluate(arg, match) for arg in expr.args)
    if left is None or right is None:
        return None
    return _apply(expr, left, right)


def _apply(expr: Call, left: int | timedelta, right: int | timedelta) -> Value:
    match expr.function:
        case "=":
            return left == right
        case "<":
            return left < right  # type: ignore[operator]
        case "<=":
            return left <= right  # type: ignore[operator]
        case "+":
            return left + right  # type: ignore[operator]
        case "-":
            return left - right  # type: ignore[operator]
    raise NotImplementedError(expr.function)


def predicates(query: Query) -> Iterator[Expr]:
    """All that a result must satisfy."""
    for key in query.keys:
        yield from key.equalities()
    yield from query.conditions


def in_windows(query: Query, match: Match, history: Mapping[str, Sequence[Row]]) -> bool:
    """The windows' definition: ages against the newest tuple, counts when the last tuple arrives."""
    newest = max(row.values["ts"] for row in match.values())  # type: ignore[type-var]
    last = max(row.position for row in match.values())
    for input_ in query.inputs:
        row = match[input_.alias]
        if isinstance(input_.window, Range) and newest - row.values["ts"] > input_.window.duration:  # type: ignore
            return False
        if isinstance(input_.window, Rows):
            seen = [other for other in history[input_.alias] if other.position <= last]
            if row not in seen[-input_.window.count :]:
                return False
    return True


def reference(query: Query, batches: Sequence[Batch]) -> Counter[tuple[Position, ...]]:
    """Every combination, checked by the definition."""
    history = {alias: [row for batch in batches for row in batch[alias]] for alias in query.aliases}
    found: Counter[tuple[Position, ...]] = Counter()
    wanted = list(predicates(query))
    for rows in product(*(history[alias] for alias in query.aliases)):
        match = dict(zip(query.aliases, rows, strict=True))
        if all(evaluate(p, match) is True for p in wanted) and in_windows(query, match, history):
            found[tuple(row.position for row in rows)] += 1
    return found


@dataclass
class Simulator:
    """Runs batches through a graph."""

    graph: PhysicalGraph
    partitions: int
    seed: int = 0
    stores: dict[tuple[str, int], list[tuple[Position, Match]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    results: list[Match] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)

    def run(self, batches: Sequence[Batch]) -> Counter[tuple[Position, ...]]:
        """The results of all batches, by the positions of their tuples; between them all that may be is forgotten."""
        for number, batch in enumerate(batches):
            self._batch(batch)
            self._forget(batches[number + 1 :])
        query = self.graph.query
        history = {alias: [row for batch in batches for row in batch[alias]] for alias in query.aliases}
        inside = (match for match in self.results if in_windows(query, match, history))
        return Counter(tuple(match[alias].position for alias in query.aliases) for match in inside)

    def _batch(self, batch: Batch) -> None:
        arrived: dict[str, list[tuple[int, Match]]] = defaultdict(list)
        for source in self.graph.sources:
            for row in batch[source.alias]:
                match: Match = {source.alias: row}
                if all(evaluate(f, match) is True for f in filters_of(self.graph.query, source.alias)):
                    self._leave_source(source.name, match, arrived)
        for hop in range(self.graph.hops + 1):
            for rule in self.graph.rules:
                if self.graph.edge(rule.edge).hop == hop:
                    self._apply(rule, arrived)

    def _apply(self, rule: Rule, arrived: dict[str, list[tuple[int, Match]]]) -> None:
        for partition, partial in arrived.pop(rule.edge, []):
            if isinstance(rule, StoreRule):
                position = max(row.position for row in partial.values())
                self.stores[rule.store, partition].append((position, partial))
            elif isinstance(rule, ProbeRule):
                self._probe(rule, partition, partial, arrived)
            else:
                self.results.append(partial)

    def _forget(self, future: Sequence[Batch]) -> None:
        """Drop what, by the stores' retention, no tuple still to come can reach: the most that is allowed."""
        for (name, partition), rows in self.stores.items():
            store = self.graph.store(name)
            others = [a for a in self.graph.query.aliases if a not in store.aliases]
            coming = [row.values["ts"] for batch in future for alias in others for row in batch[alias]]
            spans = list(zip(store.aliases, store.retention, strict=True))
            self.stores[name, partition] = [
                (position, match) for position, match in rows if self._alive(match, spans, coming)
            ]

    def _alive(
        self, match: Match, spans: list[tuple[str, timedelta | None]], coming: Sequence[Value]
    ) -> bool:
        return bool(coming) and all(
            span is None or match[alias].values["ts"] + span >= min(coming)  # type: ignore[operator, type-var]
            for alias, span in spans
        )

    def _leave_source(self, name: str, match: Match, arrived: dict[str, list[tuple[int, Match]]]) -> None:
        """A local edge out of a source goes along with an edge that stores the tuple."""
        homes: dict[str, list[int]] = {}
        for edge in (edge for edge in self.graph.edges if edge.source == name):
            home = homes.get(edge.rides or "")
            if home == [] and edge.kind == LOCAL:
                continue  # its key is NULL: it was stored nowhere and joins nothing
            targets = self._targets(edge, match, home[0] if home and len(home) == 1 else None)
            if edge.kind == LOCAL and edge.by is not None and self._is_apart(edge, match):
                targets = self._grouped(edge, match)
            homes[edge.name] = targets
            arrived[edge.name] += [(partition, match) for partition in targets]

    def _targets(self, edge: Edge, match: Match, here: int | None) -> list[int]:
        if edge.kind == LOCAL:
            assert here is not None, f"{edge.name} is local, but the tuple is in no one task"
            return [here]
        if edge.kind == ALL:
            return list(range(self.partitions))
        if edge.kind == GROUP_BY and edge.by is not None:
            return self._grouped(edge, match)
        return [self.rng.randrange(self.partitions)]

    def _grouped(self, edge: Edge, match: Match) -> list[int]:
        """Where a value leads; a heavy one to any partition if it is stored there, else to all."""
        assert edge.by is not None
        value = evaluate(edge.by, match)
        if value in [literal.value for literal in edge.heavy]:
            stored = any(isinstance(rule, StoreRule) and rule.edge == edge.name for rule in self.graph.rules)
            return [self.rng.randrange(self.partitions)] if stored else list(range(self.partitions))
        return [] if value is None else [hash(("salt", value)) % self.partitions]

    def _is_apart(self, edge: Edge, match: Match) -> bool:
        """Whether a tuple's value is heavy where it is stored, or where it probes."""
        assert edge.by is not None
        assert edge.rides is not None
        every = (*edge.heavy, *self.graph.edge(edge.rides).heavy)
        return evaluate(edge.by, match) in [literal.value for literal in every]

    def _probe(
        self, rule: ProbeRule, partition: int, match: Match, arrived: dict[str, list[tuple[int, Match]]]
    ) -> None:
        mine = max(row.position for row in match.values())
        for position, stored in self.stores[rule.store, partition]:
            both = {**match, **stored}
            lookups = ((evaluate(e.probe, match), evaluate(e.stored, stored)) for e in rule.equalities)
            found = position < mine and all(a is not None and a == b for a, b in lookups)
            if found and all(evaluate(p, both) is True for p in rule.predicates):
                for output in rule.outputs:
                    edge = self.graph.edge(output)
                    arrived[output] += [(p, both) for p in self._targets(edge, both, partition)]


def random_batches(query: Query, seed: int, *, rows: int = 6, batches: int = 3) -> list[Batch]:
    """Small batches of small values, NULL among them, in a random driver order per batch."""
    rng = random.Random(seed)
    made: list[Batch] = []
    for number in range(batches):
        ranks = {alias: rank for rank, alias in enumerate(rng.sample(query.aliases, len(query.aliases)))}
        made.append(
            {
                input_.alias: [
                    Row(_values(rng, input_.stream.schema.names), (number, ranks[input_.alias], position))
                    for position in range(rng.randint(0, rows // batches * 2))
                ]
                for input_ in query.inputs
            }
        )
    return made


def _values(rng: random.Random, names: Sequence[str]) -> dict[str, Value]:
    values: dict[str, Value] = {name: rng.choice((0, 0, 1, 1, 2, None)) for name in names if name != "ts"}
    return values | {"ts": timedelta(seconds=rng.randint(0, 60))}
