"""Puts the page into an application of FastAPI.

Guarantees: the page is made of files of its own and of NiceGUI's: nothing is loaded from elsewhere. It is mounted at
most once in a process, since NiceGUI has one set of pages.
"""

from __future__ import annotations

from collections.abc import Callable

from fastapi import FastAPI, Request
from nicegui import ui

from weft.service.demo_controls import DemoControls
from weft.service.hub.hub import SessionHub
from weft.service.page.catalogue import catalogue
from weft.service.page.demo import demo
from weft.service.page.frame import THEME, framed
from weft.service.page.history import dead_letters, log, state
from weft.service.page.overview import overview
from weft.service.page.plan import plan
from weft.service.page.query import query
from weft.service.page.visit import Live, PageModel, Visit

__all__ = ["mount_page"]

_VIEWS: dict[str, tuple[str, Callable[[Visit], Live]]] = {
    "/": ("Overview", overview),
    "/streams": ("Streams", catalogue),
    "/plan": ("Plan", plan),
    "/query": ("Query", query),
    "/dead-letters": ("Dead letters", dead_letters),
    "/state": ("State", state),
    "/log": ("Log", log),
}


def mount_page(app: FastAPI, hub: SessionHub, controls: DemoControls | None = None) -> None:
    """Put the page at the root of an application; with ``controls``, it is the demo's."""
    model = PageModel(hub, controls)
    model.follow()
    views = _VIEWS if controls is None else {**_VIEWS, "/demo": ("Demo", demo)}
    for path, (title, build) in views.items():
        _add(model, path, title, build)
    ui.run_with(
        app,
        title="Weft",
        language="en-US",
        favicon=_ICON,
        mount_path="/",
        tailwind=False,
        show_welcome_message=False,
        binding_refresh_interval=None,
        reconnect_timeout=10.0,
    )


def _add(model: PageModel, path: str, title: str, build: Callable[[Visit], Live]) -> None:
    @ui.page(path)
    def page(request: Request) -> None:
        may_change = getattr(request.state, "access", "full") == "full"
        asked = dict(request.query_params)
        visit = Visit(model, may_change, path, getattr(request.state, "client", ""), asked)
        framed(visit, title, build, request.cookies.get(THEME))


_ICON = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><g fill="none" stroke="#1d4ed8" stroke-width="4">'
    '<path d="M4 8h24M4 16h24M4 24h24"/><path stroke="#f59e0b" d="M8 4v24M16 4v24M24 4v24"/></g></svg>'
)
