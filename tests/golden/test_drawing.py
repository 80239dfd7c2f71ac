"""The picture of a graph, as it is drawn; `make golden` writes it anew. Look at the SVG in a browser then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.plan.test_drawing import seen_graph, shared_graph
from weft.plan.show.layout import draw_graph
from weft.plan.show.svg import svg

FOLDER = Path(__file__).parent / "drawing"


@pytest.mark.parametrize("name", ["planned", "seen"])
def test_a_graph_is_drawn(name: str, request: pytest.FixtureRequest) -> None:
    graph, seen = (shared_graph(), None) if name == "planned" else seen_graph()
    picture = svg(draw_graph(graph, seen), standalone=True)
    file = FOLDER / f"{name}.svg"
    if request.config.getoption("--regenerate-golden"):
        file.write_text(picture, encoding="utf-8")
    assert picture == file.read_text(encoding="utf-8")
