"""Where the parts of a graph go in a picture.

Guarantees: pure; the same graph gives the same layout. Every input has a lane of its own in which the tree of its
probes grows from left to right, and so no two links cross, however many queries share the graph. Every box names the
part of the graph it stands for (`part`), which is unique and stays the same while the graph does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.plan.physical.graph import PhysicalGraph, StoreNode
from weft.plan.physical.rules import ProbeRule, ResultRule, StoreRule, Users
from weft.plan.schedule import LOCAL
from weft.plan.show.figures import number
from weft.plan.show.observation import Observation

__all__ = ["Box", "Drawing", "Lane", "Link", "draw_graph", "short_name", "shortened"]

WIDTH, HEIGHT = 172.0, 50.0  # of a box
ACROSS, DOWN = 56.0, 12.0  # between two columns, and between two boxes of a lane
MARGIN, BETWEEN_LANES = 12.0, 18.0


@dataclass(frozen=True, slots=True)
class Box:
    """A part of a graph in the picture.

    ``kind`` is "input", "store", "step" or "result". ``part`` names it: the kind and the name of the input, of the
    store, or of the edge over which tuples come to a step, to a result or, "into", to a store of another lane.
    ``store`` is the store that a step probes, and that of a store. ``lines`` are short texts, ``hint`` is all that is
    to be said.
    """

    part: str
    kind: str
    x: float
    y: float
    lines: tuple[str, ...]
    hint: str
    users: Users = ()
    store: str = ""


@dataclass(frozen=True, slots=True)
class Link:
    """The way of tuples between two boxes; ``rate`` is how many a second, None if that is not known.

    ``sent`` says whether they leave their task; if not, they are handed on where they are.
    """

    source: str
    target: str
    start: tuple[float, float]
    end: tuple[float, float]
    rate: float | None
    sent: bool
    users: Users
    hint: str


@dataclass(frozen=True, slots=True)
class Lane:
    """The strip of the picture in which an input's tuples go."""

    name: str
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph in a picture; ``queries`` are its queries, in the order in which they get their colours."""

    width: float
    height: float
    lanes: tuple[Lane, ...]
    boxes: tuple[Box, ...]
    links: tuple[Link, ...]
    queries: Users


def draw_graph(graph: PhysicalGraph, seen: Observation | None = None) -> Drawing:
    """The layout of a graph of one query or of many, with the rates that were seen or, without, those expected."""
    return _Layout(graph, seen).drawing()


def shortened(text: str, most: int) -> str:
    """A text of at most so many letters.

    >>> shortened("partitioned by comments.usr", 12)
    'partitioned…'
    """
    return text if len(text) <= most else text[: most - 1] + "…"


def short_name(store: str) -> str:
    """The name of a store as it fits a box: what it holds, by which columns, and of which group of queries.

    >>> short_name("comments partitioned by comments.usr of group 2"), short_name("v⋈w partitioned by v.vid")
    ('comments by usr · 2', 'v⋈w by v.vid')
    >>> short_name("videos replicated"), short_name("views")
    ('videos replicated', 'views')
    """
    held, _, columns = store.partition(" partitioned by ")
    text = f"{held} by {columns.replace(f'{held}.', '')}" if columns else held
    return text.replace(" of group ", " · ")


class _Layout:
    """The layout as it grows, lane by lane."""

    def __init__(self, graph: PhysicalGraph, seen: Observation | None) -> None:
        self.graph, self.seen = graph, seen
        self.rules = {rule.edge: rule for rule in graph.rules}
        self.edges = {edge.name: edge for edge in graph.edges}
        self.nodes = {store.name: store for store in graph.stores}
        self.boxes: dict[str, Box] = {}
        self.links: list[tuple[str, str, float | None, str, Users]] = []  # from, to, rate, edge, users

    def drawing(self) -> Drawing:
        y, lanes = MARGIN, []
        for source in self.graph.sources:
            height = self._lane(source.name, source.alias, y)
            lanes.append(Lane(source.alias, y, height))
            y += height + BETWEEN_LANES
        boxes = tuple(self.boxes.values())
        right = max((box.x + WIDTH for box in boxes), default=0.0)
        links = tuple(self._link(*link) for link in self.links)
        queries = tuple(sorted(member.name for member in self.graph.members))
        bottom = max(y - BETWEEN_LANES, MARGIN) + MARGIN
        return Drawing(right + MARGIN, bottom, tuple(lanes), boxes, links, queries)

    def _lane(self, source: str, alias: str, top: float) -> float:
        """Lay out an input, its stores below it, and the tree of its probes to the right; the height of all."""
        inner = {name for rule in self.graph.rules if isinstance(rule, ProbeRule) for name in rule.outputs}
        roots = [e.name for e in self.graph.edges if e.source == source and e.name not in inner]
        part, users = f"input:{alias}", self._users_of(roots)
        rate = self._rate_of_input(alias)
        stream = self.graph.input(alias).stream.name
        lines = (alias, f"{_figure(rate)} rows/s" if rate is not None else f"stream {stream}")
        hint = [f"input {alias} (stream {stream})", *self._input_hint(alias), *_users_hint(users)]
        self.boxes[part] = Box(part, "input", MARGIN, top, lines, "\n".join(hint), users)
        left = top + HEIGHT + DOWN
        for name in roots:
            rule = self.rules[name]
            if isinstance(rule, StoreRule):
                self._store(rule.store, MARGIN, left)
                self.links.append((part, f"store:{rule.store}", rate, name, rule.users))
                left += HEIGHT + DOWN
        right = top
        for name in roots:
            if not isinstance(self.rules[name], StoreRule):
                right += self._branch(part, name, 1, right, rate)
        return max(left, right) - DOWN - top

    def _branch(self, before: str, name: str, column: int, top: float, rate: float | None) -> float:
        """Lay out what happens behind an edge; the height that it takes, with the room below it."""
        rule, x = self.rules[name], MARGIN + column * (WIDTH + ACROSS)
        if isinstance(rule, StoreRule):
            part = self._filled(rule, x, top)
            self.links.append((before, part, rate, name, rule.users))
            return HEIGHT + DOWN
        if isinstance(rule, ResultRule):
            part = f"result:{name}"
            hint = "\n".join(["results", *_users_hint(rule.users)])
            lines = (_named(rule.users), "results" if rate is None else f"{_figure(rate)} matches/s")
            self.boxes[part] = Box(part, "result", x, top, lines, hint, rule.users)
            self.links.append((before, part, rate, name, rule.users))
            return HEIGHT + DOWN
        part, (incoming, outgoing) = f"step:{name}", self._rates(rule)
        self.links.append((before, part, incoming, name, rule.users))
        height = 0.0
        for output in rule.outputs:
            height += self._branch(part, output, column + 1, top + height, outgoing)
        edge = self.edges[name]
        rates = () if outgoing is None else (f"{_figure(incoming)} → {_figure(outgoing)}/s",)
        texts = (f"⋈ {short_name(rule.store)}", f"hop {edge.hop} · {edge}", *rates)
        box = Box(part, "step", x, top, texts, self._step_hint(rule), rule.users, rule.store)
        self.boxes[part] = box
        return max(height, HEIGHT + DOWN)

    def _store(self, name: str, x: float, y: float) -> None:
        """Place a store where its tuples first come to it."""
        part = f"store:{name}"
        if part not in self.boxes:
            store = self.nodes[name]
            held = self.seen.stores.get(name) if self.seen else None
            full = f"{_figure(held.rows)} rows · {_bytes(held.bytes)}" if held else str(store.layout)
            box = Box(
                part, "store", x, y, (short_name(name), full), self._store_hint(store), store.users, name
            )
            self.boxes[part] = box

    def _filled(self, rule: StoreRule, x: float, y: float) -> str:
        """The box of a store that probes fill: in the first lane the store itself, in others one that refers to it."""
        part = f"store:{rule.store}"
        if part not in self.boxes:
            self._store(rule.store, x, y)
            return part
        hint = self._store_hint(self.nodes[rule.store])
        box = Box(
            f"into:{rule.edge}",
            "store",
            x,
            y,
            (f"→ {short_name(rule.store)}", "the same store"),
            hint,
            rule.users,
            rule.store,
        )
        self.boxes[box.part] = box
        return box.part

    def _link(self, source: str, target: str, rate: float | None, name: str, users: Users) -> Link:
        one, other, edge = self.boxes[source], self.boxes[target], self.edges[name]
        if one.x == other.x:  # an input and its store below it
            start, end = (one.x + 20, one.y + HEIGHT), (other.x + 20, other.y)
        else:
            start, end = (one.x + WIDTH, one.y + HEIGHT / 2), (other.x, other.y + HEIGHT / 2)
        how = "" if rate is None else f": {_figure(rate)} tuples/s"
        hint = "\n".join([f"{edge}, hop {edge.hop}{how}", *_users_hint(users)])
        return Link(source, target, start, end, rate, edge.kind != LOCAL, users, hint)

    def _rates(self, rule: ProbeRule) -> tuple[float | None, float | None]:
        """How many tuples a second come to a step, and how many leave it."""
        if self.seen is not None:
            step = self.seen.steps.get(rule.edge)
            if step is None:
                return None, None
            return self.seen.rate(step.probes), self.seen.rate(step.matches)
        estimate = rule.estimate
        return (estimate.incoming, estimate.outgoing) if estimate is not None else (None, None)

    def _rate_of_input(self, alias: str) -> float | None:
        if self.seen is None or alias not in self.seen.inputs:
            return None
        return self.seen.rate(self.seen.inputs[alias].rows)

    def _users_of(self, edges: Sequence[str]) -> Users:
        return tuple(sorted({user for name in edges for user in self.rules[name].users}))

    def _input_hint(self, alias: str) -> list[str]:
        found = self.seen.inputs.get(alias) if self.seen else None
        if found is None:
            return []
        bad = ", ".join(f"{count:,} {reason}" for reason, count in found.set_aside.items())
        return [f"{found.rows:,} rows, {bad}"]

    def _step_hint(self, rule: ProbeRule) -> str:
        checks = " AND ".join([*map(str, rule.equalities), *map(str, rule.predicates)]) or "every pair"
        edge, (incoming, outgoing) = self.edges[rule.edge], self._rates(rule)
        known = "seen" if self.seen is not None else "expected"
        rates = f"{_figure(incoming)} in/s, {_figure(outgoing)} out/s {known}"
        probed = f"{'⋈'.join(rule.known)} probes {rule.store}"
        return "\n".join([probed, checks, f"{edge}, hop {edge.hop}", rates, *_users_hint(rule.users)])

    def _store_hint(self, store: StoreNode) -> str:
        held = self.seen.stores.get(store.name) if self.seen else None
        full = [f"{held.rows:,.0f} rows, {held.bytes:,} bytes, {held.runs} runs"] if held else []
        filling = [f"filled for the plan to come of {', '.join(store.filling)}"] if store.filling else []
        looked = ", ".join(map(str, store.indexes))
        by = [f"looked up by {looked}"] if looked else []
        title = f"store {store.name}"
        return "\n".join([title, str(store.layout), *by, *full, *filling, *_users_hint(store.users)])


def _named(users: Users) -> str:
    return users[0] if len(users) == 1 else f"{len(users)} queries"


def _users_hint(users: Users) -> list[str]:
    return [f"for {', '.join(users)}"] if users else []


def _figure(value: float | None) -> str:
    return "?" if value is None else number(round(value, 1) if value >= 1 else value)


def _bytes(count: float) -> str:
    return f"{number(count)}B" if count >= 1e4 else f"{count:.0f} B"
