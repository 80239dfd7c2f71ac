"""Pictures of graphs: nothing overlaps, all is there, and no name of a user's becomes markup."""

from __future__ import annotations

from xml.etree import ElementTree

import pyarrow as pa
import pytest

import weft
from weft.plan.physical.graph import PhysicalGraph
from weft.plan.physical.rules import ProbeRule, ResultRule
from weft.plan.show.layout import ACROSS, HEIGHT, WIDTH, Box, draw_graph, shortened
from weft.plan.show.observation import Observation
from weft.plan.show.svg import THICK, THIN, svg
from weft.runtime.observe.observations import observed
from weft.testing import LocalRun

QUERIES = {
    "pairs": "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS] WHERE a.k = b.k",
    "chain": "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS], c [RANGE 10 SECONDS] "
    "WHERE a.k = b.k AND b.j = c.j",
    "star": "SELECT a.k FROM a [RANGE 10 SECONDS], b [RANGE 10 SECONDS], c [RANGE 5 SECONDS] "
    "WHERE a.k = b.k AND b.k = c.k AND c.j > 1",
}
NASTY = """<script>alert("x")</script> & 'y'"""


def session(queries: dict[str, str] | None = None) -> weft.Session:
    made = weft.Session(adapt="off", options=weft.Options(partitions=2))
    for name in "abcdefghijkl":
        made.stream(name, "k long, j long, ts timestamp", event_time="ts")
    for name, text in (queries or QUERIES).items():
        made.query(text, name=name, sink=weft.to_memory())
    return made


def shared_graph(queries: dict[str, str] | None = None) -> PhysicalGraph:
    graph = session(queries).shared_graph
    assert graph is not None
    return graph


def seen_graph() -> tuple[PhysicalGraph, Observation]:
    """The graph after two batches, the second of them a second later than the first."""
    made = session()
    run = LocalRun(made)
    for second in range(2):
        times = pa.array([(second * 10 + i) * 100_000 for i in range(10)], pa.timestamp("us", "UTC"))
        rows = pa.table({"k": [i % 3 for i in range(10)], "j": list(range(10)), "ts": times})
        run.batch({"a": rows, "b": rows, "c": rows})
    history = run._loop.history
    graph = history.graphs[max(history.graphs)]
    return graph, observed(graph, [metrics for _, metrics in history.batches])


def overlap(one: Box, other: Box) -> bool:
    return abs(one.x - other.x) < WIDTH and abs(one.y - other.y) < HEIGHT


def check(graph: PhysicalGraph) -> None:
    """Every part is drawn once, inside the picture, and nothing lies over something else."""
    drawing = draw_graph(graph)
    parts = {box.part for box in drawing.boxes}
    assert {part for part in parts if not part.startswith("into:")} == {
        *(f"input:{alias}" for alias in graph.aliases),
        *(f"store:{store.name}" for store in graph.stores),
        *(f"step:{rule.edge}" for rule in graph.rules if isinstance(rule, ProbeRule)),
        *(f"result:{rule.edge}" for rule in graph.rules if isinstance(rule, ResultRule)),
    }
    assert len(drawing.links) == len(graph.rules)
    for place, one in enumerate(drawing.boxes):
        assert 0 <= one.x <= drawing.width - WIDTH
        assert 0 <= one.y <= drawing.height - HEIGHT
        assert not any(overlap(one, other) for other in drawing.boxes[place + 1 :])
    for link in drawing.links:
        lane = next(one for one in drawing.lanes if one.y <= link.start[1] <= one.y + one.height)
        assert lane.y <= link.end[1] <= lane.y + lane.height  # no link crosses a lane
        assert link.start[0] + ACROSS == link.end[0] or link.start[0] == link.end[0]
    tree = ElementTree.fromstring(svg(drawing))
    assert len(tree.findall(".//*[@data-part]")) == len(parts)


def test_a_shared_graph_is_drawn_without_overlap() -> None:
    check(shared_graph())


def test_a_store_that_several_inputs_fill_is_referred_to() -> None:
    made = session()
    made.query(QUERIES["chain"], name="deep", sink=weft.to_memory(), strategy="left_deep")
    graph = made.graph_of("deep")
    check(graph)
    inner = [store for store in graph.stores if len(store.aliases) > 1]
    filled = [box for box in draw_graph(graph).boxes if box.part.startswith("into:")]
    assert len(filled) == sum(len(store.aliases) - 1 for store in inner)


def test_a_query_of_one_input_is_drawn() -> None:
    check(shared_graph({"alone": "SELECT a.k FROM a"}))


def test_twelve_inputs_are_drawn() -> None:
    names = "abcdefghijkl"
    text = f"SELECT a.k FROM {', '.join(f'{n} [RANGE 9 SECONDS]' for n in names)} WHERE "
    check(shared_graph({"long": text + " AND ".join(f"a.k = {n}.k" for n in names[1:])}))


def test_fifty_queries_are_drawn() -> None:
    pairs = [(one, other) for one in "abcdef" for other in "abcdef" if one < other]
    queries = {}
    for number in range(50):
        one, other = pairs[number % len(pairs)]
        window = f"[RANGE {1 + number} SECONDS]"
        queries[f"q{number}"] = (
            f"SELECT {one}.k FROM {one} {window}, {other} {window} WHERE {one}.k = {other}.k"
        )
    graph = shared_graph(queries)
    check(graph)
    assert "+" in svg(draw_graph(graph))  # of many users of a part, some dots and a number are shown


def test_what_was_seen_is_drawn() -> None:
    graph, seen = seen_graph()
    drawing = draw_graph(graph, seen)
    rates = {link.target: link.rate for link in drawing.links}
    for rule in graph.rules:
        if isinstance(rule, ProbeRule):
            assert rates[f"step:{rule.edge}"] == seen.rate(seen.steps[rule.edge].probes)
    stores = [box for box in drawing.boxes if box.kind == "store"]
    assert all("20 rows" in box.lines[1] for box in stores)
    widths = [float(path.get("stroke-width") or 0) for path in _paths(svg(drawing))]
    assert max(widths) == THICK
    assert min(widths) >= THIN


def test_thickness_follows_the_rate() -> None:
    graph, seen = seen_graph()
    paths = _paths(svg(draw_graph(graph, seen)))
    links = sorted(
        zip([link.rate or 0.0 for link in draw_graph(graph, seen).links], paths, strict=True),
        key=lambda x: x[0],
    )
    widths = [float(path.get("stroke-width") or 0) for _, path in links]
    assert widths == sorted(widths)


def _paths(text: str) -> list[ElementTree.Element]:
    tree = ElementTree.fromstring(text)
    return [p for p in tree.iter("{http://www.w3.org/2000/svg}path") if "link" in (p.get("class") or "")]


def test_names_are_never_markup() -> None:
    """A query's name could run a script in the page of everybody who looks at it."""
    made = session()
    made.query(QUERIES["pairs"], name=NASTY, sink=weft.to_memory())
    graph = made.shared_graph
    assert graph is not None
    text = svg(draw_graph(graph), chosen='"><script>', only=NASTY)
    assert "<script" not in text
    assert ElementTree.fromstring(text) is not None


def test_what_serves_others_is_faded() -> None:
    drawing = draw_graph(shared_graph())
    tree = ElementTree.fromstring(svg(drawing, only="pairs", chosen="input:a"))
    classes = {g.get("data-part"): (g.get("class") or "").split() for g in tree.findall(".//*[@data-part]")}
    for box in drawing.boxes:
        assert ("faded" in classes[box.part]) == ("pairs" not in box.users)
    assert "chosen" in classes["input:a"]


@pytest.mark.parametrize(("text", "short"), [("abc", "abc"), ("abcdef", "abc…")])
def test_texts_are_shortened(text: str, short: str) -> None:
    assert shortened(text, 4) == short
