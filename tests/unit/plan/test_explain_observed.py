"""A plan's text with what was observed next to what was predicted."""

from __future__ import annotations

from weft.plan.physical.graph import PhysicalGraph
from weft.plan.show.explain import explain
from weft.plan.show.observation import EVENT_TIME, WALL_CLOCK, Observation, StepSeen, StoreSeen
from weft.session.session import Session
from weft.stats.input_figures import InputFigures

SQL = "SELECT v.x, w.uid FROM v [RANGE 5 SECONDS], w [RANGE 5 SECONDS] WHERE v.vid = w.vid"


def planned(sql: str = SQL) -> PhysicalGraph:
    """A small plan by default statistics: 1,000 tuples a second, 10,000 values."""
    session = Session()
    session.stream("v", "vid long, x long, ts timestamp", event_time="ts")
    session.stream("w", "vid long, uid long, ts timestamp", event_time="ts")
    return session.query(sql, strategy="flat").graph


SEEN = Observation(
    batches=4,
    seconds=8.0,
    clock=EVENT_TIME,
    results=16_000,
    inputs={"v": InputFigures(8_000, 3, 2, 1), "w": InputFigures(800)},
    steps={"v: 1": StepSeen(8_000, 12_000), "w: 1": StepSeen(800, 4_000)},
    stores={"v": StoreSeen(5_100, 81_600, 3), "w": StoreSeen(510, 8_160, 2)},
    hops=(0.25, 0.5),
    elapsed=1.5,
    backlog={"v": 5},
)


def cells(text: str) -> list[list[str]]:
    """The words of every line."""
    return [line.split() for line in text.splitlines()]


def test_predicted_and_observed_stand_side_by_side() -> None:
    """In one unit, with the time of every hop."""
    text = explain(planned(), "pair", "flat", SEEN)
    lines = cells(text)
    assert "Observed: 4 batches over 8 s of event time · 16k results · 2000 results/s, predicted 1000" in text
    assert ["v", "8000", "1000", "3", "2", "1", "0", "5"] in lines  # of the input
    assert ["w", "800", "100", "0", "0", "0", "0", "?"] in lines
    assert any(line[:1] == ["v"] and line[-4:] == ["5000", "5100", "81.6k", "1000"] for line in lines)
    steps = [line for line in lines if line[:3] in (["v", "→", "w"], ["w", "→", "v"])]
    assert [line[8:-1] for line in steps] == [
        ["1000", "1000", "1", "500", "1500", "0.5", "1.5"],
        ["1000", "100", "1", "500", "500", "0.5", "5"],
    ]
    assert ["hop", "1", "0.5"] in lines
    assert ["whole", "batch", "1.5"] in lines


def test_columns_are_aligned() -> None:
    """Figures end where their heads end."""
    lines = explain(planned(), "pair", "flat", SEEN).splitlines()
    for title in ("Inputs", "Stores", "Probe orders", "Time per batch"):
        first = lines.index(title) + 1
        block = lines[first : lines.index("", first)]
        assert len({len(line) for line in block}) == 1, block


def test_without_observation_the_text_is_as_ever() -> None:
    """Golden files hold it."""
    text = explain(planned(), "pair", "flat")
    assert "bserved" not in text
    assert explain(planned(), "pair", "flat", None) == text


def test_what_is_not_known_is_a_question_mark() -> None:
    """No batch yet, or none that took time."""
    text = explain(planned(), "pair", "flat", Observation(0, 0.0, WALL_CLOCK, 0))
    assert "0 batches over 0 s of wall-clock time · 0 results · ? results/s" in text
    assert ["whole", "batch", "?"] in cells(text)


def test_a_query_of_one_input_has_no_steps_to_compare() -> None:
    """It is filtered and done."""
    seen = Observation(1, 2.0, EVENT_TIME, 10, {"v": InputFigures(20)})
    text = explain(planned("SELECT v.x FROM v WHERE v.vid = 1"), "one", "flat", seen)
    assert "Observed: 1 batch over 2 s of event time · 10 results · 5 results/s\n" in text
    assert "Probe orders" not in text
