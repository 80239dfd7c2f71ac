"""The pages that show results: `docs/evidence.md`, and one HTML page with the plots.

Guarantees: every value on them was measured, and stands with the command that measures it again. A figure that was not
measured is listed as such.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from benchmarks._plot import draw
from benchmarks.papers.figures import Figure, columns, means, plots, spread_text, verdicts

Results = Mapping[str, Mapping[str, Any]]

INTRODUCTION = """# The papers' experiments

Weft unites five papers. Each figure or table below is one of theirs, repeated by one command: what they measured, what
is measured here, how the two differ, what they report, and what Weft does. `weft bench paper --list` lists them,
`weft bench paper NAME` measures one, and `--small` does so in about a minute; this page is written from
`benchmarks/results/` by `weft bench paper --page`. The machines of the papers are others (clusters of up to 25 nodes),
so compare ratios. What a paper concludes is a ratio here, and whether it holds is computed, in
[the last table](#what-holds)."""


def number(value: str | float) -> str:
    """A value as short as it can be read."""
    if isinstance(value, str):
        return value
    if value and abs(value) < 10 and value != int(value):
        return f"{value:.3g}"
    return f"{value:,.0f}"


def machine_line(result: Mapping[str, Any]) -> str:
    """On what, and how often, a figure was measured."""
    found, versions = result["machine"], result["versions"]
    return (
        f"{found['cores']} cores, {found['memory_gb']} GB, Python {found['python']}, Weft "
        f"{versions['weft']}, "
        f"pyarrow {versions['pyarrow']}, numba {versions['numba']}; "
        f"{result['measured'][:10]}, load {result['load']:.1f}"
    )


def section(figure: Figure, result: Mapping[str, Any] | None) -> list[str]:
    """The part of the page about one figure."""
    lines = [f"### {figure.title}", ""]
    lines += [f"There: {figure.there}. Here: {figure.here}. What differs: {figure.differs}.", ""]
    lines += [f"- {fact.where}: {fact.said}." for fact in figure.facts]
    if result is None:
        return [*lines, "", f"`{figure.command}` (not measured yet)", ""]
    rows = means(figure, result["runs"])
    heads = columns(rows)
    lines += ["", f"`{result['command']}` ({machine_line(result)})", ""]
    lines += ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    lines += ["| " + " | ".join(number(row.get(name, "")) for name in heads) + " |" for row in rows]
    lines += ["", f"{spread_text(figure, result['runs']).capitalize()}.", ""]
    return lines


def closing_table(figures: Sequence[Figure], results: Results) -> list[str]:
    """What the papers conclude, and whether it holds here."""
    lines = ["## What holds", "", "| | claim | here | command |", "|---|---|---|---|"]
    for figure in figures:
        if figure.name in results:
            for verdict in verdicts(figure, results[figure.name]):
                where = f"{figure.paper}, {figure.title.partition(':')[0]}"
                lines.append(
                    f"| {where} | {verdict.claim.text} | {verdict} | `{results[figure.name]['command']}` |"
                )
        else:
            lines += [
                f"| {figure.paper}, {figure.title.partition(':')[0]} | {claim.text} | not measured yet | "
                f"`{figure.command}` |"
                for claim in figure.claims
            ]
    return lines


def evidence(figures: Sequence[Figure], results: Results) -> str:
    """The page in Markdown."""
    lines = [INTRODUCTION, ""]
    for paper in dict.fromkeys(figure.paper for figure in figures):
        lines += [f"## {paper}", ""]
        for figure in figures:
            if figure.paper == paper:
                lines += section(figure, results.get(figure.name))
    return "\n".join([*lines, *closing_table(figures, results)]) + "\n"


def draw_png(figure: Figure, result: Mapping[str, Any], file: Path) -> bool:
    """Draw the plots of a figure; whether it has any."""
    found = plots(figure, result)
    if found:
        draw(file, found)
    return bool(found)


def html_page(figures: Sequence[Figure], results: Results, images: Mapping[str, Path]) -> str:
    """One page with everything, the plots included."""
    body = []
    for figure in figures:
        result = results.get(figure.name)
        if result is None:
            continue
        rows = means(figure, result["runs"])
        heads = columns(rows)
        cells = "".join(
            "<tr>" + "".join(f"<td>{escape(number(row.get(name, '')))}</td>" for name in heads) + "</tr>"
            for row in rows
        )
        facts = "".join(f"<li>{escape(fact.where)}: {escape(fact.said)}</li>" for fact in figure.facts)
        judged = "".join(
            f"<li>{escape(one.claim.text)}: <b>{escape(str(one))}</b></li>"
            for one in verdicts(figure, result)
        )
        image = ""
        if figure.name in images:
            data = base64.b64encode(images[figure.name].read_bytes()).decode()
            image = f'<img alt="{escape(figure.title)}" src="data:image/png;base64,{data}">'
        body.append(
            f"<h2>{escape(figure.paper)}, {escape(figure.title)}</h2><p>There: {escape(figure.there)}.<br>"
            f"Here: {escape(figure.here)}.<br>What differs: {escape(figure.differs)}.</p><ul>{facts}</ul>"
            f"<p><code>{escape(result['command'])}</code> ({escape(machine_line(result))})</p>{image}"
            f"<table><tr>{''.join(f'<th>{escape(head)}</th>' for head in heads)}</tr>{cells}</table><ul>{judged}</ul>"
        )
    style = (
        "body{font-family:sans-serif;max-width:70em;margin:auto}"
        "td,th{padding:.1em .6em;text-align:right}img{max-width:100%}"
    )
    title = "The papers' experiments, repeated with Weft"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{style}</style>'
        f"<body><h1>{title}</h1>{''.join(body)}</body></html>\n"
    )
