"""The page of `weft bench all --report FILE`: tables and plots of all benchmarks, next to the committed results.

Guarantees: one file of HTML that needs nothing else, no script and no network; what benchmarks print is shown as text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from benchmarks._committed import Result, worse

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222 }
pre { background: #f6f6f4; padding: .8rem; overflow-x: auto; font-size: 12px; line-height: 1.25 }
table { border-collapse: collapse } td, th { padding: .15rem .8rem; text-align: right; border-bottom: 1px solid #ddd }
td:first-child, th:first-child { text-align: left } .worse, .failed { color: #a21 } .reached { color: #161 }
"""
_BAR, _ROW, _LABEL = 360, 34, 300  # the pixels of a plot: longest bar, height of a row, width of the names


def write_page(
    path: Path, results: Sequence[Result], titles: Mapping[str, str], before: Mapping[str, Result]
) -> None:
    """Write the page."""
    parts = [_head(results), _changes(results, before)]
    parts += [_section(one, titles[one.name], before.get(one.name)) for one in results]
    page = '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Weft, benchmarks</title>'
    page += f"<style>{_STYLE}</style></head>\n<body>\n" + "\n".join(parts) + "\n</body></html>\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page, encoding="utf-8")


def _head(results: Sequence[Result]) -> str:
    about = [*results[0].machine.items(), *results[0].versions.items()] if results else []
    told = ", ".join(f"{escape(name)} {escape(value)}" for name, value in about)
    return f"<h1>Weft, benchmarks</h1>\n<p>{told}</p>"


def _changes(results: Sequence[Result], before: Mapping[str, Result]) -> str:
    """What is worse than committed, or failed."""
    lines = [f"{one.name}: {trouble}" for one in results for trouble in one.troubles]
    lines += [line for one in results for line in worse(one, before.get(one.name))]
    if not lines:
        return "<p>No ratio is more than a tenth worse than the committed one.</p>"
    return '<ul class="worse">' + "".join(f"<li>{escape(line)}</li>" for line in lines) + "</ul>"


def _section(one: Result, title: str, known: Result | None) -> str:
    command = " ".join(["weft bench", one.name, *one.arguments])
    parts = [f'<h2 id="{escape(one.name)}">{escape(one.name)}</h2>', f"<p>{escape(title)}</p>"]
    parts.append(f"<p><code>{escape(command)}</code>, {one.seconds:,.0f} s</p>")
    parts += [f'<p class="failed">{escape(trouble)}</p>' for trouble in one.troubles]
    if one.ratios:
        parts += [_table(one, known), _plot(one, known)]
    parts += [_verdict(*target) for target in one.judged]
    if one.output.strip():
        parts.append(f"<pre>{escape(one.output.strip())}</pre>")
    return "\n".join(parts)


def _table(one: Result, known: Result | None) -> str:
    rows = ["<tr><th>ratio to a peer, more is better</th><th>now</th><th>committed</th><th>change</th></tr>"]
    for what, ratio in one.ratios.items():
        then = None if known is None else known.ratios.get(what)
        compared = ("–", "–") if then is None else (f"{then:.2f} ×", f"{ratio / then - 1:+.0%}")
        cells = (escape(what), f"{ratio:.2f} ×", *compared)
        rows.append("<tr>" + "".join(f"<td>{cell}</td>" for cell in cells) + "</tr>")
    return "<table>" + "".join(rows) + "</table>"


def _plot(one: Result, known: Result | None) -> str:
    """A bar for every ratio, dark as it is now, and light as it was committed."""
    then = {} if known is None else known.ratios
    longest = max([*one.ratios.values(), *(then.get(what, 0.0) for what in one.ratios), 1e-9])
    bars = []
    for number, (what, ratio) in enumerate(one.ratios.items()):
        y = number * _ROW
        bars.append(f'<text x="{_LABEL - 8}" y="{y + 18}" text-anchor="end">{escape(what)}</text>')
        bars.append(_bar(y + 4, ratio / longest, "#356") + _bar(y + 18, then.get(what, 0) / longest, "#bcd"))
    size = f'width="{_LABEL + _BAR}" height="{_ROW * len(one.ratios)}"'
    return f'<svg {size} font-size="12" role="img">{"".join(bars)}</svg>'


def _bar(y: int, part: float, colour: str) -> str:
    return f'<rect x="{_LABEL}" y="{y}" width="{_BAR * part:.1f}" height="12" fill="{colour}"/>'


def _verdict(target: str, reached: bool | None) -> str:
    word = {True: "reached", False: "missed", None: "unknown"}[reached]
    return f'<p class="{word}">{word}: {escape(target)}</p>'
