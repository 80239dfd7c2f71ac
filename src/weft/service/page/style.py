"""The look of the page: colours for light and dark by CSS variables, and the few shapes that all views use."""

from __future__ import annotations

from weft.plan.drawing.svg import STYLE

__all__ = ["CSS", "SERIES"]

# The colours of lines in charts, which are legible on light and on dark.
SERIES = ("#3b82f6", "#f59e0b", "#10b981", "#ef4444")

CSS = (
    """
:root { --w-bg: #f6f7f9; --w-card: #ffffff; --w-ink: #1d2530; --w-dim: #5a6675; --w-line: #dfe4ea; --w-accent: #1d4ed8;
  --w-good: #15803d; --w-bad: #b91c1c; --w-warn: #b45309; --w-code: #f3f5f8; }
.body--dark { --w-bg: #12171e; --w-card: #1a212b; --w-ink: #e6ebf1; --w-dim: #9fadbd; --w-line: #313c4a;
  --w-accent: #7cb0ff; --w-good: #4ade80; --w-bad: #f87171; --w-warn: #fbbf24; --w-code: #141b24; }
body, .body--dark { background: var(--w-bg) !important; color: var(--w-ink); font-family: system-ui, sans-serif; }
.nicegui-content { padding: 14px 18px 40px; gap: 14px; width: 100%; max-width: 1500px; margin: 0 auto; }
.w-bar { background: var(--w-card) !important; color: var(--w-ink) !important; box-shadow: none; border: 1px solid var(--w-line);
  border-radius: 10px; padding: 0 16px; min-height: 46px; display: flex; align-items: center; gap: 18px; flex-wrap: wrap;
  width: 100%; box-sizing: border-box; }
.w-brand { font-weight: 700; letter-spacing: .02em; color: var(--w-ink); text-decoration: none; }
.w-nav { display: flex; gap: 2px; flex-wrap: wrap; }
.w-nav a { color: var(--w-dim); text-decoration: none; padding: 6px 10px; border-radius: 6px; font-size: 14px; }
.w-nav a:hover { background: var(--w-code); }
.w-nav a.here { color: var(--w-accent); font-weight: 600; background: var(--w-code); }
.w-card { background: var(--w-card); border: 1px solid var(--w-line); border-radius: 10px; padding: 14px 16px; width: 100%;
  box-sizing: border-box; gap: 8px; box-shadow: none; min-width: 0; }
.w-title { font-weight: 600; font-size: 14px; margin: 0; }
.w-dim { color: var(--w-dim); font-size: 13px; }
.w-big { font-size: 24px; font-weight: 600; line-height: 1.2; font-variant-numeric: tabular-nums; }
.w-tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); gap: 12px; width: 100%; }
.w-charts { display: grid; grid-template-columns: repeat(4, minmax(0, 1fr)); gap: 12px; width: 100%; }
@media (max-width: 1240px) { .w-charts { grid-template-columns: repeat(2, minmax(0, 1fr)); } }
.w-two { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 2fr); gap: 14px; width: 100%; }
@media (max-width: 1100px) { .w-two { grid-template-columns: minmax(0, 1fr); } }
.w-good { color: var(--w-good); } .w-bad { color: var(--w-bad); } .w-warn { color: var(--w-warn); }
.w-pre { font: 12.5px/1.45 ui-monospace, "DejaVu Sans Mono", monospace; white-space: pre; overflow: auto; margin: 0;
  background: var(--w-code); border: 1px solid var(--w-line); border-radius: 6px; padding: 10px; width: 100%;
  box-sizing: border-box; color: var(--w-ink); }
.w-error { border-left: 4px solid var(--w-bad); color: var(--w-ink); }
.w-banner { background: var(--w-card); border: 1px solid var(--w-bad); border-left: 5px solid var(--w-bad); border-radius: 8px;
  padding: 10px 14px; width: 100%; box-sizing: border-box; color: var(--w-ink); }
.w-scroll { overflow: auto; width: 100%; max-height: 70vh; border: 1px solid var(--w-line); border-radius: 8px; }
.w-legend { display: flex; gap: 4px 12px; flex-wrap: wrap; font-size: 13px; }
.w-legend button { display: inline-flex; align-items: center; gap: 6px; color: var(--w-ink); background: none; border: 0;
  padding: 2px 6px; border-radius: 5px; cursor: pointer; font: inherit; }
.w-legend button.here { background: var(--w-code); outline: 1px solid var(--w-line); }
.w-dot { width: 10px; height: 10px; border-radius: 5px; display: inline-block; }
.w-time { display: flex; gap: 6px; overflow-x: auto; width: 100%; padding: 2px 0 8px; }
.w-time button { flex: 0 0 auto; max-width: 220px; text-align: left; background: var(--w-code); color: var(--w-ink);
  border: 1px solid var(--w-line); border-radius: 6px; padding: 5px 9px; cursor: pointer; font-size: 12px; }
.w-time button.here { border-color: var(--w-accent); box-shadow: inset 0 -3px 0 var(--w-accent); }
.w-time .caused { color: var(--w-warn); }
.w-editor { border: 1px solid var(--w-line); border-radius: 6px; height: 220px; width: 100%; overflow: hidden; }
.w-wrong { text-decoration: underline wavy var(--w-bad); text-decoration-skip-ink: none; }
.q-table__container, .q-table__card { background: transparent !important; color: var(--w-ink) !important; box-shadow: none; }
.q-table th { color: var(--w-dim) !important; font-weight: 600; }
.q-table td, .q-table th { border-color: var(--w-line) !important; padding: 4px 10px !important; height: auto !important; }
.q-table td { font-variant-numeric: tabular-nums; }
.w-results { max-height: 380px; width: 100%; }
.w-lost { position: fixed; inset: auto 0 0 0; }
"""
    + STYLE
)
