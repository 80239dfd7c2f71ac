"""The look of the page: colours for light and dark by CSS variables, and those of pictures of plans."""

from __future__ import annotations

from pathlib import Path

from weft.plan.drawing.svg import STYLE

__all__ = ["CSS", "SERIES"]

# The colours of lines in charts, which are legible on light and on dark.
SERIES = ("#3b82f6", "#f59e0b", "#10b981", "#ef4444")

CSS = Path(__file__).with_name("page.css").read_text(encoding="utf-8") + STYLE
