"""The plan: the graph that runs, drawn and live, one query's probe trees, and how the plan has changed."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape

from nicegui import ui

from weft.errors import WeftError
from weft.plan.drawing.layout import draw_graph
from weft.plan.drawing.svg import colour_of, svg
from weft.plan.graph import PhysicalGraph
from weft.plan.join_plan import StepCost, StoreCost
from weft.plan.observation import Observation
from weft.plan.rules import ProbeRule
from weft.runtime.observe.observed import observed
from weft.service.page.details import Details, Expected, details
from weft.service.page.picking import on_pick
from weft.service.page.plans import PlanVersion
from weft.service.page.tables import set_rows, text_table
from weft.service.page.visit import Live, Visit

__all__ = ["plan"]

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
        ui.label("Plans so far").classes("w-title")
        line = ui.html(sanitize=False).classes("w-time").props('role="list" aria-label="plans so far"')
        reason = ui.label("").classes("w-dim").style("white-space: pre-wrap").mark("plan-reason")
    with ui.element("section").classes("w-card"):
        with ui.element("div").classes("w-row"):
            ui.label("Graph").classes("w-title")
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
        title = ui.label("").classes("w-title")
        facts = ui.label("").classes("w-dim").style("white-space: pre-wrap")
        figures = text_table(("", "predicted", "observed"))
    with ui.expansion("The plans as text").style("width: 100%"):
        text = ui.label("").classes("w-pre")

    def load() -> _Shown:
        return _load(visit, choice)

    def show(found: _Shown) -> None:
        trees.set_options([_ALL, *found.queries], value=choice.trees_of)
        line.set_content(_time_line(found.versions, choice.version))
        reason.set_text(_reason(found.current))
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
        caused = ' <span class="caused">●</span>' if version.changes else ""
        at = datetime.fromtimestamp(version.started, timezone.utc).strftime("%H:%M:%S")
        parts.append(
            f'<button type="button" class="{"here" if here else ""}" aria-pressed="{str(here).lower()}" '
            f'data-version="{"now" if newest else version.number}" title="{escape(version.reason)}">'
            f"<b>batch {version.first}</b>{caused} {at}{' · now' if newest else ''}<br>"
            f"{escape(version.title)}</button>"
        )
    return "".join(parts)


def _reason(version: PlanVersion | None) -> str:
    if version is None:
        return ""
    span = f"batches {version.first} to {version.last}"
    seen = [str(change) for change in version.changes]
    return "\n".join([f"{version.title} · {span}", *seen])


def _legend(queries: tuple[str, ...], only: str | None) -> str:
    return "".join(
        f'<button type="button" class="{"here" if name == only else ""}" aria-pressed="{str(name == only).lower()}" '
        f'data-query="{escape(name)}"><span class="w-dot weft-graph" '
        f'style="background: var(--weft-q{colour_of(name, queries)})"></span>{escape(name)}</button>'
        for name in queries
    )
