"""Pipeline files say in which order results leave."""

from __future__ import annotations

import pytest

from weft.errors import PipelineError
from weft.logical.query.ordering import Ordering
from weft.service.pipeline import read_pipeline

TEXT = """
streams:
  a: {{schema: "k long, ts timestamp", event_time: ts}}
queries:
  q: {{sql: SELECT k FROM a, {}}}
"""


def test_a_query_has_its_order() -> None:
    """As `Session.query` would have it."""
    pipeline = read_pipeline(TEXT.format("order: outer, precision: 64"), "p.yaml")
    assert pipeline.plan("q").ordering == Ordering("outer", 64)
    assert read_pipeline(TEXT.format("order: none"), "p.yaml").plan("q").ordering is None


@pytest.mark.parametrize("wrong", ["order: sorted", "order: outer, precision: many"])
def test_what_is_no_order_is_refused_at_its_place(wrong: str) -> None:
    """With the file and the place in it."""
    with pytest.raises(PipelineError, match=r"queries\.q\."):
        read_pipeline(TEXT.format(wrong), "p.yaml")


def test_what_a_query_cannot_have_is_refused_when_it_is_planned() -> None:
    """With the file and the query."""
    with pytest.raises(PipelineError, match="has no precision"):
        read_pipeline(TEXT.format("order: event, precision: 2"), "p.yaml").plan("q")
