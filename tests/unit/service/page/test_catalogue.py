"""What the page has of streams, requests and tasks, without a browser."""

from __future__ import annotations

import logging
import sys
from dataclasses import replace
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.unit.service.api.running import JOIN, place, running_hub, wait_for
from weft.errors import WeftError
from weft.plan.show.svg import COLOURS, STYLE, colour_of
from weft.runtime.observe.metrics import BatchMetrics
from weft.service.hub.values import NewQuery
from weft.service.page.catalogue import about_stream, first_query
from weft.service.page.history import asked_cells
from weft.service.page.overview import task_cells
from weft.service.page.visit import RecentLog, query_link


def test_some_rows_of_a_stream_are_read_beside_the_run(tmp_path: Path) -> None:
    """Nobody writes a query over columns that were never seen; and what is looked at is joined all the same."""
    here = place(tmp_path)
    with running_hub(tmp_path) as hub:
        with pytest.raises(WeftError, match="has no rows yet"):
            hub.sample("a", 5)
        here.put("a", *(f"{number},t{number},2024-01-01T00:00:0{number}Z" for number in range(9)))
        sample = hub.sample("a", 2)
        assert sample.names == ("k", "x", "ts")
        assert [row[:2] for row in sample.rows] == [("7", "t7"), ("8", "t8")]
        here.put("b", "8,2024-01-01T00:00:08Z")
        wait_for(lambda: hub.query("q").results == 1)
        with pytest.raises(WeftError, match="no stream"):
            hub.sample("c", 2)


def test_a_first_query_over_every_stream_can_be_planned(tmp_path: Path) -> None:
    """The catalogue leads to the editor with a text that is right."""
    place(tmp_path)
    with running_hub(tmp_path) as hub:
        for stream in hub.streams():
            assert hub.preview(NewQuery(first_query(stream))).shares is not None
            assert "read by q" in about_stream(stream)


def test_a_link_holds_a_whole_query() -> None:
    """Whoever opens it has the same text in the editor."""
    sql = "SELECT a.x AS \"ü & ?\"\nFROM a WHERE a.x = '#%+'"
    asked = parse_qs(urlsplit(query_link(sql, "näme")).query)
    assert asked == {"sql": [sql], "name": ["näme"]}


def test_what_was_asked_for_is_remembered_with_why_it_was_refused(tmp_path: Path) -> None:
    """Newest first, also what never ran."""
    place(tmp_path)
    with running_hub(tmp_path) as hub:
        hub.create(NewQuery(JOIN, "good"))
        with pytest.raises(WeftError):
            hub.create(NewQuery("SELECT a.wrong FROM a", "bad"))
        hub.stop_query("good")
        history = hub.history()
        assert [(asked.what, asked.name) for asked in history] == [
            ("stop", "good"),
            ("run", "bad"),
            ("run", "good"),
        ]
        cells = [asked_cells(asked) for asked in history]
        assert "wrong" in cells[1][4]
        assert cells[0][4] == cells[2][4] == ""


def test_the_log_has_whole_exceptions() -> None:
    """A number under which another log has them helps nobody who has only the page."""
    log = RecentLog()
    try:
        raise ValueError("the reason")
    except ValueError:
        record = logging.getLogger("weft").makeRecord(
            "weft", logging.ERROR, __file__, 1, "request %s failed", ("x",), sys.exc_info()
        )
    log.emit(record)
    (line,) = log.lines()
    assert line.text.startswith("request x failed\nTraceback")
    assert line.text.endswith("ValueError: the reason")


def test_skew_and_backpressure_are_told(tmp_path: Path) -> None:
    """By hop, and by the streams of which more comes than is joined."""
    place(tmp_path)
    batch = BatchMetrics(1, (), {}, {}, {}, 0, seconds=(0.01, 2.0, 0.5), busiest=(1.0, 0.9, 0.5))
    merging = task_cells(replace(batch, merged_bytes=3_000_000, merge_debt=5_000_000), ())
    assert merging[-1] == ("merging", "–", "–", "3.0 MB of stored runs merged, 5.0 MB wait to be")
    rows = task_cells(batch, ())
    assert [row[0] for row in rows] == ["reading", "hop 1", "hop 2"]
    assert [bool(row[3]) for row in rows] == [False, True, False]
    assert rows[1][1:3] == ("2.0 s", "90%")
    with running_hub(tmp_path) as hub:
        pressed = replace(hub.stream("a"), backlog=7, behind=12.0)
        (row,) = task_cells(None, (pressed,))
        assert "7 parts wait" in row[3]
        assert task_cells(None, (replace(pressed, behind=0.1),)) == []


def test_no_two_queries_have_one_colour() -> None:
    """As long as there are fewer of them than eyes can tell apart."""
    names = tuple(f"q{number}" for number in range(COLOURS))
    assert len({colour_of(name, names) for name in names}) == COLOURS
    assert all(STYLE.count(f"--weft-q{number}:") == 2 for number in range(COLOURS))  # light and dark
    light = STYLE.split("}")[0]
    values = [part.split(":", 1)[1].strip() for part in light.split(";") if "--weft-q" in part]
    assert len(values) == len(set(values)) == COLOURS
