"""The picture of a graph as SVG text.

Guarantees: equal drawings give equal texts. Every text of a user's is escaped: names of queries, streams and columns
may hold anything. No colour is fixed: all come from CSS variables (`STYLE` has them for light and dark), and every
part has a class. A box can be reached by keyboard, and has its hint as its accessible title; ``data-part`` names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from math import sqrt

from weft.logical.query.canonical import readable
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.show.layout import HEIGHT, WIDTH, Box, Drawing, Lane, Link, draw_graph, shortened
from weft.plan.show.observation import Observation

__all__ = ["COLOURS", "STYLE", "colour_of", "picture", "svg"]

COLOURS = 40  # so many queries have a colour of their own
CHOSEN = 10  # of these, so many were chosen by hand; the others are as far apart as that many hues can be
DOTS = 6  # so many users of a part are shown as dots; of more, their number
INSET, LETTERS = 14, 22  # where the texts of a box begin, and how many letters fit
THIN, THICK = 1.2, 11.0  # links are so thin at least, and so thick at most

STYLE = """
.weft-graph { --weft-ink: #1d2530; --weft-dim: #5a6675; --weft-box: #ffffff; --weft-lane: #f3f5f8;
  --weft-line: #b9c2cd; --weft-link: #7d8b9c; --weft-store: #eaf1fb; --weft-result: #edf7ee; --weft-mark: #c2410c;
  --weft-q0: #2563eb; --weft-q1: #d97706; --weft-q2: #059669; --weft-q3: #dc2626; --weft-q4: #7c3aed;
  --weft-q5: #0891b2; --weft-q6: #be185d; --weft-q7: #65a30d; --weft-q8: #92400e; --weft-q9: #475569;
  LIGHT }
.body--dark .weft-graph, .weft-graph.dark { --weft-ink: #e6ebf1; --weft-dim: #9fadbd; --weft-box: #222b36;
  --weft-lane: #12181f; --weft-line: #465364; --weft-link: #8493a5; --weft-store: #1d2f49; --weft-result: #1c3a2a;
  --weft-mark: #fb923c;
  --weft-q0: #60a5fa; --weft-q1: #fbbf24; --weft-q2: #34d399; --weft-q3: #f87171; --weft-q4: #a78bfa;
  --weft-q5: #22d3ee; --weft-q6: #f472b6; --weft-q7: #a3e635; --weft-q8: #d6a06a; --weft-q9: #94a3b8;
  DARK }
.weft-graph text { font: 12px system-ui, sans-serif; fill: var(--weft-ink); }
.weft-graph text.second { font-size: 11px; fill: var(--weft-dim); }
.weft-graph .lane { fill: var(--weft-lane); }
.weft-graph .box { fill: var(--weft-box); stroke: var(--weft-line); stroke-width: 1.2; }
.weft-graph .input .box { stroke-width: 2; }
.weft-graph .store .box { fill: var(--weft-store); }
.weft-graph .result .box { fill: var(--weft-result); }
.weft-graph .lid { fill: none; stroke: var(--weft-line); }
.weft-graph .link { fill: none; stroke: var(--weft-link); stroke-opacity: .8; }
.weft-graph .link.local { stroke-opacity: .4; }
.weft-graph g[data-part] { cursor: pointer; outline: none; }
.weft-graph g[data-part]:hover .box, .weft-graph g[data-part]:focus .box, .weft-graph .chosen .box {
  stroke: var(--weft-mark); stroke-width: 2.2; }
.weft-graph .faded { opacity: .16; }
"""


def _hues(saturation: int, *lightness: int) -> str:
    """The colours beyond the chosen ones; neighbours differ by the golden angle and in how light they are."""
    numbers = range(CHOSEN, COLOURS)
    return " ".join(
        f"--weft-q{number}: hsl({number * 137.508 % 360:.1f} {saturation}% {lightness[number % len(lightness)]}%);"
        for number in numbers
    )


STYLE = STYLE.replace("LIGHT", _hues(65, 34, 46)).replace("DARK", _hues(70, 62, 76))


def colour_of(name: str, queries: tuple[str, ...]) -> int:
    """Which of the colours stands for a query."""
    return queries.index(name) % COLOURS if name in queries else COLOURS - 1


def svg(
    drawing: Drawing,
    *,
    only: str | None = None,
    chosen: str | None = None,
    colours: Mapping[str, int] | None = None,
    scale: float = 1.0,
    standalone: bool = False,
) -> str:
    """The picture; what does not serve the query ``only`` is faded, and the part ``chosen`` is marked.

    ``colours`` are the queries' colours if they are not those of this drawing; it is ``scale`` times as large, and a
    ``standalone`` picture brings its style.
    """
    most = max((link.rate for link in drawing.links if link.rate), default=0.0)
    known = colours or {name: colour_of(name, drawing.queries) for name in drawing.queries}
    size = f'width="{drawing.width * scale:g}" height="{drawing.height * scale:g}"'
    box = f'viewBox="0 0 {drawing.width:g} {drawing.height:g}"'
    title = f"Plan of {len(drawing.queries)} quer{'y' if len(drawing.queries) == 1 else 'ies'}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="weft-graph" role="group" '
        f'aria-label="{title}" {size} {box}>',
        f"<style>{STYLE}</style>" if standalone else "",
        *(_lane(lane, drawing.width) for lane in drawing.lanes),
        *(_link(link, most, only) for link in drawing.links),
        *(_box(one, only, chosen, known) for one in drawing.boxes),
        "</svg>",
    ]
    return "\n".join(part for part in parts if part) + "\n"


def picture(graph: PhysicalGraph, seen: Observation | None = None) -> str:
    """The picture of a graph with its own style, as a notebook shows it; ``seen`` is what was observed of it."""
    return f'<div style="overflow-x:auto">{svg(draw_graph(graph, seen), standalone=True)}</div>'


def _lane(lane: Lane, width: float) -> str:
    y, height = lane.y - 6, lane.height + 12
    return f'<rect class="lane" x="4" y="{y:g}" width="{width - 8:g}" height="{height:g}" rx="8"/>'


def _link(link: Link, most: float, only: str | None) -> str:
    (x, y), (to_x, to_y) = link.start, link.end
    if x < to_x:
        middle = (x + to_x) / 2
        path = f"M{x:g} {y:g}C{middle:g} {y:g} {middle:g} {to_y:g} {to_x:g} {to_y:g}"
    else:
        path = f"M{x:g} {y:g}L{to_x:g} {to_y:g}"
    share = sqrt(link.rate / most) if link.rate and most else 0.0
    width = THIN + (THICK - THIN) * share
    classes = " ".join(["link", *(["local"] if not link.sent else []), *_faded(link.users, only)])
    title = f"<title>{_text(readable(link.hint))}</title>"
    return f'<path class="{classes}" d="{path}" stroke-width="{width:.2f}">{title}</path>'


def _box(box: Box, only: str | None, chosen: str | None, colours: Mapping[str, int]) -> str:
    picked = ["chosen"] if chosen == box.part else []
    classes = " ".join([box.kind, *picked, *_faded(box.users, only)])
    radius = 24 if box.kind in ("input", "result") else 5
    lines = [
        f'<g class="{classes}" data-part="{_text(box.part)}" data-store="{_text(box.store)}" tabindex="0" '
        f'role="button" aria-label="{_text(readable(box.hint))}" transform="translate({box.x:g} {box.y:g})">',
        f"<title>{_text(readable(box.hint))}</title>",
        f'<rect class="box" width="{WIDTH:g}" height="{HEIGHT:g}" rx="{radius}"/>',
    ]
    if box.kind == "store":
        lines.append(f'<path class="lid" d="M0 7Q{WIDTH / 2:g} 15 {WIDTH:g} 7"/>')
    lines.append(f'<text x="{INSET}" y="20">{_text(shortened(readable(box.lines[0]), LETTERS))}</text>')
    lines += [
        f'<text class="second" x="{INSET}" y="34">{_text(shortened(readable(text), LETTERS + 6))}</text>'
        for text in box.lines[1:2]
    ]
    lines += [
        f'<text class="second" x="{WIDTH - INSET:g}" y="46" text-anchor="end">{_text(text)}</text>'
        for text in box.lines[2:3]
    ]
    return "".join([*lines, _dots(box, colours), "</g>"])


def _dots(box: Box, colours: Mapping[str, int]) -> str:
    """A dot in its colour for every query that uses a part."""
    shown = box.users if len(box.users) <= DOTS else box.users[: DOTS - 2]
    dots = [
        f'<circle cx="{17 + 9 * place:g}" cy="43" r="3" fill="var(--weft-q{colours.get(user, COLOURS - 1)})"/>'
        for place, user in enumerate(shown)
    ]
    rest = len(box.users) - len(shown)
    if rest:
        dots.append(f'<text class="second" x="{15 + 9 * len(shown):g}" y="47">+{rest}</text>')
    return "".join(dots)


def _faded(users: tuple[str, ...], only: str | None) -> list[str]:
    return ["faded"] if only is not None and only not in users else []


def _text(text: str) -> str:
    """A text that is nothing but text in XML, also in an attribute; characters that XML cannot have are replaced."""
    clean = "".join(c if c in "\n\t" or c >= " " else "\N{REPLACEMENT CHARACTER}" for c in text)
    return escape(clean, quote=True)
