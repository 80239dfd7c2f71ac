"""The plan: the graph that runs, drawn and live, one query's probe trees, and how the plan has changed.

Guarantees: of a part of the plan, what was expected stands beside what was observed; a figure that is not known is
shown as `?`. A part is picked by a click or by the keys that stand for one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape

from nicegui import ui

from weft.errors import WeftError
from weft.plan.join_plan import StepCost, StoreCost
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.rules import ProbeRule, StoreRule
from weft.plan.show.figures import number
from weft.plan.show.layout import draw_graph
from weft.plan.show.observation import Observation, StepSeen
from weft.plan.show.svg import colour_of, svg
from weft.runtime.observe.observations import observed
from weft.service.page.elements import heading, set_rows, text_table
from weft.service.page.visit import Live, PlanVersion, Visit

__all__ = [
    "Details",
    "details",
    "on_pick",
    "plan",
    "version_reason",
]


_ALL = "all queries together"
_ZOOMS = (0.5, 0.65, 0.8, 1.0, 1.25, 1.6)


@dataclass
class _Choice:
    """What a visitor looks at: which version (None: the one that runs), which query, which part, how large."""

    version: int | None = None
    trees_of: str = _ALL
    only: str | None = None
    part: str | None = None
    zoom: int = _ZOOMS.index(1.0)


@dataclass(frozen=True, slots=True)
class _Shown:
    """What there is to show of the choice."""

    versions: tuple[PlanVersion, ...]
    current: PlanVersion | None
    picture: str
    details: Details | None
    explain: str
    queries: tuple[str, ...]


def plan(visit: Visit) -> Live:
    """Build the view."""
    choice = _Choice()
    with ui.element("section").classes("w-card"):
        heading("Plans so far")
        line = ui.html(sanitize=False).classes("w-time").props('role="list" aria-label="plans so far"')
        reason = ui.label("").classes("w-dim").style("white-space: pre-wrap").mark("plan-reason")
    with ui.element("section").classes("w-card"):
        with ui.element("div").classes("w-row"):
            heading("Graph")
            trees = ui.select([_ALL], value=_ALL, label="probe trees of").props(
                "dense outlined options-dense"
            )
            trees.style("min-width: 210px")
            ui.space()
            for icon, step, name in (("zoom_out", -1, "smaller"), ("zoom_in", 1, "larger")):
                button = ui.button(icon=icon, on_click=lambda _, step=step: zoomed(step))
                button.props(f'flat round dense aria-label="{name}"')
        legend = ui.html(sanitize=False).classes("w-legend")
        picture = ui.html(sanitize=False).classes("w-scroll").mark("graph")
        ui.label(
            "A line is as thick as tuples pass over it; pale lines stay in their task. Click a part to see more."
        ).classes("w-dim")
    with ui.element("section").classes("w-card").mark("details") as panel:
        title = heading("")
        facts = ui.label("").classes("w-dim").style("white-space: pre-wrap")
        figures = text_table(("", "predicted", "observed"))
    with ui.expansion("The plans as text").style("width: 100%"):
        text = ui.label("").classes("w-pre")

    def load() -> _Shown:
        return _load(visit, choice)

    def show(found: _Shown) -> None:
        trees.set_options([_ALL, *found.queries], value=choice.trees_of)
        line.set_content(_time_line(found.versions, choice.version))
        reason.set_text(version_reason(found.current))
        legend.set_content(_legend(found.queries, choice.only) if choice.trees_of == _ALL else "")
        picture.set_content(found.picture)
        panel.set_visibility(found.details is not None)
        if found.details is not None:
            title.set_text(found.details.title)
            users = ", ".join(found.details.users)
            facts.set_text("\n".join([*found.details.facts, *([f"for {users}"] if users else [])]))
            set_rows(figures, found.details.rows)
        if text.text != found.explain:
            text.set_text(found.explain)

    def again() -> None:
        show(load())

    def zoomed(step: int) -> None:
        choice.zoom = min(len(_ZOOMS) - 1, max(0, choice.zoom + step))
        again()

    def turned(number: str) -> None:
        choice.version = None if number == "now" else int(number)
        again()

    def picked(part: str) -> None:
        choice.part = None if choice.part == part else part
        again()

    def only(name: str) -> None:
        choice.only = None if choice.only == name else name
        again()

    def trees_of(event: object) -> None:
        choice.trees_of, choice.part = str(getattr(event, "value", _ALL)), None
        again()

    on_pick(line, "version", turned)
    on_pick(picture, "part", picked)
    on_pick(legend, "query", only)
    trees.on_value_change(trees_of)
    return Live(load, show, every=2.0)


def _load(visit: Visit, choice: _Choice) -> _Shown:
    session, versions = visit.hub.session, visit.model.plans.look()
    current = next((v for v in versions if v.number == choice.version), versions[-1] if versions else None)
    is_live = bool(versions) and current is versions[-1]
    running = tuple(sorted(m.name for m in versions[-1].graph.members)) if versions else ()
    if choice.trees_of not in (_ALL, *running):
        choice.trees_of = _ALL
    explain = visit.hub.explain() if versions else ""
    if current is None:
        return _Shown(versions, None, _NOTHING, None, explain, running)
    if choice.trees_of != _ALL:
        graph, seen = session.graph_of(choice.trees_of), _own_observation(visit, choice.trees_of)
        expected: Expected = {choice.trees_of: _own_expected(graph)}
    else:
        graph, seen = current.graph, current.observation()
        users = _users_of(graph, choice.part)
        expected = {name: session.expected_of(name) for name in users} if is_live else {}
    drawing = draw_graph(graph, seen)
    colours = {name: colour_of(name, running) for name in drawing.queries}
    scale = _ZOOMS[choice.zoom]
    only = choice.only if choice.trees_of == _ALL else None
    drawn = svg(drawing, only=only, chosen=choice.part, colours=colours, scale=scale)
    found = details(graph, choice.part, seen, expected) if choice.part else None
    return _Shown(versions, current, drawn, found, explain, running)


_NOTHING = '<p style="padding: 16px">No batch has run yet: the plan is drawn once a query runs.</p>'


def _own_observation(visit: Visit, name: str) -> Observation | None:
    try:
        batches = visit.hub.session.progress[name][-40:]
        return observed(visit.hub.session.graph_of(name), batches) if batches else None
    except (KeyError, WeftError):
        return None


def _own_expected(graph: PhysicalGraph) -> tuple[dict[str, StepCost], dict[str, StoreCost]]:
    """What is expected of the parts of a query's own graph."""
    steps = {r.edge: r.estimate for r in graph.rules if isinstance(r, ProbeRule) and r.estimate is not None}
    sizes = {one.store: one for one in graph.cost.stores} if graph.cost else {}
    return steps, {s.name: sizes[s.aliases] for s in graph.stores if s.aliases in sizes}


def _users_of(graph: PhysicalGraph, part: str | None) -> tuple[str, ...]:
    """A few of the queries that use a part."""
    found = details(graph, part, None, {}) if part else None
    return found.users[:8] if found else ()


def _time_line(versions: tuple[PlanVersion, ...], chosen: int | None) -> str:
    """A button for every plan so far, the newest first."""
    parts = []
    for version in reversed(versions):
        newest = version is versions[-1]
        here = version.number == chosen or (newest and chosen is None)
        caused = ' <span class="caused">●</span>' if version.changes or version.scalings else ""
        at = datetime.fromtimestamp(version.started, timezone.utc).strftime("%H:%M:%S")
        parts.append(
            f'<button type="button" class="{"here" if here else ""}" aria-pressed="{str(here).lower()}" '
            f'data-version="{"now" if newest else version.number}" title="{escape(version.reason)}">'
            f"<b>batch {version.first}</b>{caused} {at}{' · now' if newest else ''}<br>"
            f"{escape(version.title)}</button>"
        )
    return "".join(parts)


def version_reason(version: PlanVersion | None) -> str:
    """Which batches a plan ran, why it took the place of another, and how tasks changed meanwhile, in words."""
    if version is None:
        return ""
    span = f"batches {version.first} to {version.last}"
    seen = [str(change) for change in (*version.changes, *version.scalings)]
    return "\n".join([f"{version.title} · {span}", *seen])


def _legend(queries: tuple[str, ...], only: str | None) -> str:
    return "".join(
        f'<button type="button" class="{"here" if name == only else ""}" aria-pressed="{str(name == only).lower()}" '
        f'data-query="{escape(name)}"><span class="w-dot weft-graph" '
        f'style="background: var(--weft-q{colour_of(name, queries)})"></span>{escape(name)}</button>'
        for name in queries
    )


_CLICK = "(e) => {{ const p = e.target.closest('[data-{0}]'); if (p) emit(p.dataset.{0}); }}"
_KEY = (
    "(e) => {{ if (e.key !== 'Enter' && e.key !== ' ') return; const p = e.target.closest('[data-{0}]');"
    " if (p) {{ e.preventDefault(); emit(p.dataset.{0}); }} }}"
)


def on_pick(element: ui.element, kind: str, picked: Callable[[str], None]) -> None:
    """Call a function with the value of ``data-kind`` of what was clicked, or chosen by Enter or Space."""

    def handle(event: object) -> None:
        picked(str(getattr(event, "args", "")))

    element.on("click", handle, js_handler=_CLICK.format(kind))
    if kind == "part":  # buttons make a click of these keys themselves
        element.on("keydown", handle, js_handler=_KEY.format(kind))


Expected = Mapping[str, tuple[Mapping[str, StepCost], Mapping[str, StoreCost]]]  # by query


@dataclass(frozen=True, slots=True)
class Details:
    """A part in words, and a table of figures: what, predicted, observed."""

    title: str
    facts: tuple[str, ...]
    rows: tuple[tuple[str, str, str], ...] = ()
    users: tuple[str, ...] = ()


def details(graph: PhysicalGraph, part: str, seen: Observation | None, expected: Expected) -> Details | None:
    """What is known of the part that a box of the picture names; None if the graph has no such part."""
    kind, _, name = part.partition(":")
    if kind == "step":
        rule = next((r for r in graph.rules if isinstance(r, ProbeRule) and r.edge == name), None)
        return None if rule is None else _step(graph, rule, seen, expected)
    if kind == "into":
        into = next((r for r in graph.rules if isinstance(r, StoreRule) and r.edge == name), None)
        kind, name = "store", into.store if into is not None else ""
    if kind == "store" and any(store.name == name for store in graph.stores):
        return _store(graph, name, seen, expected)
    if kind == "input" and name in graph.aliases:
        return _input(graph, name, seen)
    if kind == "result":
        found = next((r for r in graph.rules if r.edge == name), None)
        return None if found is None else Details("Results", (), (), found.users)
    return None


def _step(graph: PhysicalGraph, rule: ProbeRule, seen: Observation | None, expected: Expected) -> Details:
    edge = graph.edge(rule.edge)
    checks = " AND ".join([*map(str, rule.equalities), *map(str, rule.predicates)]) or "every pair"
    found = seen.steps.get(rule.edge, StepSeen(0, 0)) if seen else None
    costs = {
        user: expected[user][0][rule.edge]
        for user in rule.users
        if rule.edge in expected.get(user, ({}, {}))[0]
    }
    title = f"{'⋈'.join(rule.known)} probes {rule.store}"
    facts = (f"checks {checks}", f"{edge}, hop {edge.hop}")
    rows: list[tuple[str, str, str]] = []
    observed = (
        (None, None, None)
        if seen is None or found is None
        else (seen.rate(found.probes), seen.rate(found.matches), found.matches_per_probe)
    )
    many = len(costs) > 1
    for user, cost in costs.items():
        whose = f" of {user}" if many else ""
        each = cost.outgoing / cost.incoming if cost.incoming else None
        predicted = (cost.incoming, cost.outgoing, each)
        rows += _compared(whose, predicted, (None, None, None) if many else observed)
    if many or not costs:
        rows += _compared(" of all together" if many else "", (None, None, None), observed)
    return Details(title, facts, tuple(rows), rule.users)


def _compared(
    whose: str, predicted: tuple[float | None, ...], observed: tuple[float | None, ...]
) -> list[tuple[str, str, str]]:
    names = ("tuples in/s", "matches out/s", "matches per tuple")
    return [
        (f"{name}{whose}", _figure(one), _figure(other))
        for name, one, other in zip(names, predicted, observed, strict=True)
    ]


def _store(graph: PhysicalGraph, name: str, seen: Observation | None, expected: Expected) -> Details:
    store = graph.store(name)
    held = seen.stores.get(name) if seen else None
    sizes = [
        found[1][name].size for user, found in expected.items() if user in store.users and name in found[1]
    ]
    looked = ", ".join(map(str, store.indexes))
    facts = [str(store.layout), *([f"looked up by {looked}"] if looked else [])]
    facts += [f"{held.runs} runs"] if held else []
    facts += [f"being filled for {', '.join(store.filling)}"] if store.filling else []
    rows = (
        ("rows", _figure(max(sizes, default=None)), _figure(held.rows if held else None)),
        ("bytes", "–", _figure(held.bytes if held else None)),
    )
    return Details(f"Store {name}", tuple(facts), rows, store.users)


def _input(graph: PhysicalGraph, alias: str, seen: Observation | None) -> Details:
    found = seen.inputs.get(alias) if seen else None
    users = tuple(m.name for m in graph.members if alias in m.query.aliases)
    rows = [("rows/s", "–", _figure(seen.rate(found.rows) if seen and found else None))]
    if found is not None:
        pairs = found.set_aside.items()
        rows += [(name, "–", f"{count:,}") for name, count in pairs]
    return Details(f"Input {alias}", (f"stream {graph.input(alias).stream.name}",), tuple(rows), users)


def _figure(value: float | None) -> str:
    return "?" if value is None else number(value)
