"""The demo's own view: queries to add with a click, data that drifts, and a worker to kill."""

from __future__ import annotations

from dataclasses import dataclass

from nicegui import run, ui

from weft.errors import WeftError
from weft.service.demo_controls import Balance, DemoControls
from weft.service.hub.values import NewQuery, Overview
from weft.service.page.elements import heading
from weft.service.page.frame import tell_error
from weft.service.page.visit import Live, LogRecord, PlanVersion, Visit

__all__ = ["demo"]


@dataclass(frozen=True, slots=True)
class _Shown:
    overview: Overview
    versions: tuple[PlanVersion, ...]
    balance: Balance | None
    repeats: list[LogRecord]


def demo(visit: Visit) -> Live:
    """Build the view."""
    controls = visit.model.controls
    if controls is None:
        raise WeftError("this is no demo")
    with ui.element("section").classes("w-card"):
        heading("A video platform, live")
        ui.label(
            "Four generated streams: what people are shown, watch, comment on and react to. "
            "All queries run by one plan, which is drawn under Plan."
        ).classes("w-dim")
        figures = ui.label("").classes("w-big").mark("figures")
    with ui.element("div").classes("w-two"):
        with ui.element("section").classes("w-card"):
            heading("Make the data drift")
            ui.label(
                "To the right, people become angry and stop using emojis: reactions that were rare become common. "
                "Within some seconds the plan follows."
            ).classes("w-dim")
            slider = ui.slider(min=0, max=1, step=0.05, value=controls.drift()).props(
                'label label-always aria-label="drift"'
            )
            slider.style("padding: 18px 10px 0").mark("drift")
            plans = ui.label("").classes("w-dim").style("white-space: pre-wrap").mark("plans")
        with ui.element("section").classes("w-card"):
            heading("Kill a worker")
            ui.label(
                "One of this demo's own processes gets a SIGKILL. The batch under way is repeated; nothing is lost."
            ).classes("w-dim")
            kill = (
                ui.button("Kill a worker", icon="bolt")
                .props("unelevated no-caps color=negative")
                .mark("kill")
            )
            balance = ui.label("").mark("balance").props('role="status"')
            repeats = ui.label("").classes("w-dim").style("white-space: pre-wrap").mark("repeats")
    buttons = _queries(visit, controls)

    def turned(event: object) -> None:
        if visit.may_change:
            controls.turn(float(getattr(event, "value", 0.0)))

    async def killed() -> None:
        if visit.may_change:
            try:
                said = await run.io_bound(controls.kill)
                ui.notify(said or "", type="warning", html=False)
            except WeftError as error:
                tell_error(error)

    slider.on_value_change(turned)
    kill.on_click(killed)
    for element in (slider, kill):
        element.set_enabled(visit.may_change)

    def load() -> _Shown:
        lines = [one for one in visit.model.log.lines() if "is run again" in one.text]
        return _Shown(visit.hub.overview(), visit.model.plans.look(), controls.balance(), lines)

    def show(found: _Shown) -> None:
        seen = found.overview
        figures.set_text(
            f"{seen.rows_per_second:,.0f} rows/s in · {seen.results_per_second:,.0f} results/s out"
        )
        plans.set_text(_plans(found.versions))
        balance.set_text(balance_text(found.balance))
        repeats.set_text("\n".join(one.text for one in found.repeats[:3]))
        running = {one.name for one in seen.queries if one.status != "stopped"}
        for name, button in buttons.items():
            button.set_text(f"stop {name}" if name in running else f"run {name}")
            button.props("outline" if name in running else "", remove="" if name in running else "outline")

    return Live(load, show)


def _queries(visit: Visit, controls: DemoControls) -> dict[str, ui.button]:
    """A button for every query that is ready to be run."""
    buttons: dict[str, ui.button] = {}
    with ui.element("section").classes("w-card"):
        heading("Queries to add")
        for name, text in controls.queries.items():
            with ui.element("div").classes("w-row").style("flex-wrap: nowrap; align-items: flex-start"):
                buttons[name] = _button(visit, name, text)
                ui.label(text).classes("w-pre")
    return buttons


def _button(visit: Visit, name: str, text: str) -> ui.button:
    async def clicked() -> None:
        if not visit.may_change:
            return
        running = any(one.name == name and one.status != "stopped" for one in visit.hub.queries())
        try:
            if running:
                await run.io_bound(visit.hub.stop_query, name)
            else:
                await run.io_bound(visit.hub.create, NewQuery(text, name), visit.client)
        except WeftError as error:
            tell_error(error)

    button = ui.button(f"run {name}", on_click=clicked).props("no-caps unelevated").style("min-width: 110px")
    button.set_enabled(visit.may_change)
    return button


def _plans(versions: tuple[PlanVersion, ...]) -> str:
    """How often the plan has changed, and the last changes that the data caused."""
    caused = [change for version in versions for change in version.changes]
    if not caused:
        return "The plan has not followed the data yet."
    last = "\n".join(str(change) for change in caused[-2:])
    often = "once" if len(caused) == 1 else f"{len(caused)} times"
    return f"The plan has followed the data {often}.\n{last}"


def balance_text(found: Balance | None) -> str:
    """Whether anything was lost, in words."""
    if found is None:
        return "waiting for the first results"
    if not found.missing and not found.twice:
        return f"✓ of the last {found.expected:,} videos, each came out exactly once"
    return f"✗ of the last {found.expected:,} videos, {found.missing:,} are missing and {found.twice:,} came twice"
