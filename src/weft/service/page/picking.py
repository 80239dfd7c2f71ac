"""Clicks, and the keys that stand for them, on parts of a text of HTML that was made here."""

from __future__ import annotations

from collections.abc import Callable

from nicegui import ui

__all__ = ["on_pick"]

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
