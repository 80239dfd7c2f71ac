"""The frame of every page: the bar with the views, light or dark, how the session is, and the clock of the view.

Guarantees: if the session has failed, every page says why. A view that cannot be brought up to date says so and goes on
trying. Nothing is asked for a visitor who has gone.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from nicegui import run, ui

from weft.errors import WeftError
from weft.service.hub.values import Health
from weft.service.page.elements import CSS, heading
from weft.service.page.visit import Live, Visit

__all__ = ["error_text", "framed", "tell_error"]

_ANSWERED = 20.0  # seconds for which a browser may be busy

THEME = "weft_theme"  # the cookie that keeps whether somebody wants it light or dark

_VIEWS = (
    ("Overview", "/"),
    ("Streams", "/streams"),
    ("Plan", "/plan"),
    ("Query", "/query"),
    ("Dead letters", "/dead-letters"),
    ("State", "/state"),
    ("Log", "/log"),
)
_STATES = {
    "running": "w-good",
    "failed": "w-bad",
    "starting": "w-warn",
    "stopping": "w-warn",
    "stopped": "w-warn",
}


def framed(visit: Visit, title: str, build: Callable[[Visit], Live], theme: str | None) -> None:
    """A page with a view in it, which is kept up to date while somebody looks."""
    ui.page_title(f"{title} · Weft")
    ui.add_css(CSS)
    ui.colors(primary="#2563eb", negative="#b91c1c", positive="#15803d")
    dark = ui.dark_mode({"light": False, "dark": True}.get(theme or ""))
    ui.link("Skip to the content", "#content").classes("w-skip")
    with ui.element("header").classes("w-bar"):
        ui.link("Weft", "/").classes("w-brand")
        with ui.element("nav").classes("w-nav").props('aria-label="views"'):
            demo = (("Demo", "/demo"),) if visit.model.controls is not None else ()
            for name, path in (*_VIEWS, *demo):
                link = ui.link(name, path)
                if path == visit.path:
                    link.classes("here").props('aria-current="page"')
        ui.space()
        state = ui.label("").classes("w-dim").props('role="status"')
        if not visit.may_change:
            ui.label("read only").classes("w-dim")
        _theme_button(dark, visit)
    banner = ui.element("div").classes("w-banner").props('role="alert"')
    banner.set_visibility(False)
    with banner:
        said = ui.label("").style("white-space: pre-wrap")
    with ui.element("div").classes("w-main").props('id="content" tabindex="-1"'):
        heading(title, 1).classes("w-hidden")
        live = build(visit)

    async def refresh() -> None:
        try:
            loaded = await run.io_bound(_load, visit, live)
        except Exception as error:
            said.set_text(f"This page cannot be brought up to date: {error_text(error)}")
            banner.set_visibility(True)
            return
        if loaded is not None:  # None: the service is ending
            _show_health(loaded[0], state, said, banner)
            live.show(loaded[1])

    async def begin() -> None:
        with suppress(TimeoutError):  # whoever has left before does not answer
            is_dark = await ui.run_javascript(
                "document.body.classList.contains('body--dark')", timeout=_ANSWERED
            )
            _theme(visit, bool(is_dark))

    ui.timer(live.every, refresh, immediate=True)
    if visit.themed:
        ui.timer(0.1, begin, once=True)


def _theme(visit: Visit, is_dark: bool) -> None:
    for tell in visit.themed:
        tell(is_dark)


def _load(visit: Visit, live: Live) -> tuple[Health, object]:
    return visit.hub.health(), live.load()


def _show_health(health: Health, state: ui.label, said: ui.label, banner: ui.element) -> None:
    batch = "" if health.batch is None else f" · batch {health.batch:,}"
    state.set_text(f"{health.state}{batch}")
    state.classes(replace=f"w-dim {_STATES[health.state]}")
    why = f"The session has failed: {health.error}" if health.state == "failed" else ""
    said.set_text(f"{why}\nhint: {health.hint}" if why and health.hint else why)
    banner.set_visibility(bool(why))


def _theme_button(dark: ui.dark_mode, visit: Visit) -> None:
    """A button between light and dark; what was chosen is kept in a cookie of the browser's."""
    script = (
        "() => { const dark = !document.body.classList.contains('body--dark');"
        f" document.cookie = '{THEME}=' + (dark ? 'dark' : 'light') + '; path=/; max-age=31536000; samesite=strict';"
        " emit(dark); }"
    )

    def turned(event: object) -> None:
        is_dark = bool(getattr(event, "args", False))
        dark.set_value(is_dark)
        _theme(visit, is_dark)

    button = ui.button(icon="contrast").props('flat round dense aria-label="light or dark"')
    button.on("click", turned, js_handler=script)


def tell_error(error: Exception) -> None:
    """Tell a visitor what went wrong with something that was asked for."""
    ui.notify(error_text(error), type="negative", multi_line=True, timeout=8000, html=False)


def error_text(error: Exception) -> str:
    """An error in words, without what only the log should have."""
    if isinstance(error, WeftError):
        return f"{error.message} ({error.hint})" if error.hint else error.message
    return f"{type(error).__name__}: {error}"
