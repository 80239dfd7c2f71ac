"""What a run looks like: from the metrics of batches to text, with no run and no clock."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from rich.console import Console, RenderableType

import weft
from weft.runtime.log.totals import QueryTotals, Totals
from weft.runtime.observe.metrics import Backlog, BatchMetrics, StoreMetrics
from weft.service.figures import batches_after, figures
from weft.service.terminal.view import line, probe_orders, screen, summary
from weft.session.session import PlannedQuery
from weft.stats.histogram import Histogram, Latency
from weft.stats.input_figures import InputFigures, TupleCounts


@pytest.fixture(scope="module")
def planned() -> list[PlannedQuery]:
    """Two queries over three streams, one of which both read."""
    session = weft.Session()
    for name in ("videos", "views", "comments"):
        session.stream(name, "vid long, usr long, ts timestamp", event_time="ts")
    window = "[RANGE 1 MINUTE]"
    return [
        session.query(
            f"SELECT v.vid FROM videos {window} v, views {window} w WHERE v.vid = w.vid", name="first"
        ),
        session.query(
            f"SELECT w.vid FROM views {window} w, comments {window} c WHERE w.usr = c.usr", name="second"
        ),
    ]


def batch(number: int, aliases: str, results: int, **given: object) -> BatchMetrics:
    """A batch of a second that began when its number says, with 100 tuples of each input."""
    made = BatchMetrics(
        number,
        tuple(aliases),
        {alias: InputFigures(100, late=1) for alias in aliases},
        {},
        {alias: StoreMetrics(1000, 20_000, 2) for alias in aliases},
        results,
        seconds=(0.1, 0.25, 0.5),
        started=1000.0 + number,
        elapsed=1.0,
    )
    return replace(made, **given)  # type: ignore[arg-type]


def rendered(view: RenderableType, width: int = 80) -> str:
    out = io.StringIO()
    Console(file=out, width=width, color_system=None).print(view)
    return out.getvalue()


LATE = Latency(Histogram.of([30_000] * 9 + [2_000_000]), Histogram.of([5_000_000] * 10))


def progress(count: int = 4) -> dict[str, list[BatchMetrics]]:
    return {
        "first": [batch(number, "vw", 10 * number) for number in range(count)],
        "second": [
            batch(
                number, "wc", 5, backlog={"views": Backlog(3, 4_000, 64_000, 2.5)}, latencies={"second": LATE}
            )
            for number in range(count)
        ],
    }


def totals(found: dict[str, list[BatchMetrics]]) -> Totals:
    """What these batches come to, of which every stream brought the same."""
    batches = max(found.values(), key=len)
    rows = sum(one.rows for batch in batches for one in list(batch.inputs.values())[:1])
    late = sum(one.late for batch in batches for one in list(batch.inputs.values())[:1])
    return Totals(
        len(batches),
        sum(batch.elapsed for batch in batches),
        sum(batch.results for every in found.values() for batch in every),
        {
            name: QueryTotals(0, len(every), sum(one.results for one in every))
            for name, every in found.items()
        },
        {name: TupleCounts(rows, late) for name in ("videos", "views", "comments")},
    )


def test_a_stream_is_counted_once(planned: list[PlannedQuery]) -> None:
    """Views is read by both queries; its rows are still those that came."""
    found = {
        stream.name: stream for stream in figures(planned, progress(), totals(progress()), 1004.0).streams
    }
    assert list(found) == ["comments", "videos", "views"]
    assert (found["views"].counts, found["views"].per_second) == (TupleCounts(400, 4), 100.0)
    assert (found["views"].backlog, found["videos"].backlog) == (Backlog(3, 4_000, 64_000, 2.5), None)


def test_rates_are_of_the_last_seconds(planned: list[PlannedQuery]) -> None:
    """What was long ago says nothing; what stands still shows it."""
    seen = progress(20)
    recent = figures(planned, seen, totals(seen), 1020.0).queries[0]
    assert recent.results == sum(range(0, 200, 10))
    assert recent.per_second == pytest.approx(sum(range(140, 200, 10)) / 6)
    assert figures(planned, seen, totals(seen), 1100.0).queries[0].per_second == 0
    overall = figures(planned, seen, totals(seen)).queries[0]
    assert overall.per_second == pytest.approx(overall.results / 20)


def test_only_this_run_counts(planned: list[PlannedQuery]) -> None:
    """A run that goes on where another stopped is told of that one's last batch."""
    mine = batches_after(progress(4), 2)
    found = figures(planned, mine, totals(mine), 1004.0)
    assert (found.batches, found.batch, found.queries[0].results) == (1, 3, 30)


def test_before_the_first_batch_it_waits(planned: list[PlannedQuery]) -> None:
    """Nothing divides by nothing."""
    nothing = figures(planned, {"first": [], "second": []}, Totals(), 5.0)
    assert "waiting for the first batch" in rendered(screen("weft run", planned, nothing, 0.5))
    assert line(nothing, 3.0) == line(nothing, 5.0) == "Waiting for the first batch …"
    assert rendered(summary("weft run", nothing, 3.0)) == "weft run: nothing arrived in 3.0 s\n"


SCREEN = """\
weft demo  4.0 s · batch 3 took 1.0 s · 300 rows/s in · 20 results/s out   Ctrl-C stops
"""


def test_the_screen_has_everything(planned: list[PlannedQuery]) -> None:
    """Streams, queries, plans and state, within a small terminal."""
    text = rendered(
        screen("weft demo", planned, figures(planned, progress(), totals(progress()), 1004.0), 4.0), 90
    )
    assert text.startswith(SCREEN)
    rows = [row.split() for row in text.splitlines()]
    assert ["views", "100", "400", "4", "0", "4,000", "rows,", "64.0", "kB,", "2.5", "s"] in rows
    assert next(row for row in rows if "second" in row)[:8] == [
        "second",
        "5",
        "20",
        "30",
        "ms",
        "/",
        "2.0",
        "s",
    ]
    assert ["first", "15", "60", "▁▃▆█", "read", "100", "ms", "·", "hop", "1", "250", "ms"] in rows
    assert ["first", "v", "→", "w", "v", "1,000", "20.0", "kB"] in rows
    assert ["w", "→", "v", "w", "1,000", "20.0", "kB"] in rows
    assert len(rows) <= 24
    assert "…" not in text


def test_who_asked_to_stop_sees_that_it_was_heard(planned: list[PlannedQuery]) -> None:
    """A batch may take seconds."""
    found = figures(planned, progress(), totals(progress()), 1004.0)
    text = rendered(screen("weft", planned, found, 4.0, stopping=True), 100)
    assert "stopping after this batch" in text
    assert "Ctrl-C" not in text


def test_a_line_says_it_in_short(planned: list[PlannedQuery]) -> None:
    """For a log or a pipe."""
    assert line(figures(planned, progress(), totals(progress()), 1004.0), 4.0).split("  ") == [
        "",
        "4.0 s",
        "batch 3 took 1.0 s",
        "300 rows/s in",
        "results: first 60",
        "second 20",
        "latency: 30 ms / 2.0 s",
        "12 late",
        "backlog: 4,000 rows, 2.5 s",
        "state: 4,000 rows, 80.0 kB",
    ]


def test_the_summary_is_over_the_whole_run(planned: list[PlannedQuery]) -> None:
    """Totals and mean rates."""
    text = rendered(summary("weft demo", figures(planned, progress(), totals(progress())), 4.2))
    assert "weft demo: 4 batches in 4.2 s, 1.0 s each on average" in text
    rows = [row.split() for row in text.splitlines()]
    assert ["first", "15", "60", "2,000", "40.0", "kB"] in rows
    assert ["views", "100", "400", "4", "0", "4,000", "rows,", "64.0", "kB,", "2.5", "s"] in rows
    assert ["second", "5", "20", "30", "ms", "/", "2.0", "s", "2,000", "40.0", "kB"] in rows


def test_names_are_shown_as_they_are() -> None:
    """A query called [red] is no colour."""
    session = weft.Session()
    session.stream("videos", "vid long, usr long")
    odd = [session.query("SELECT v.vid FROM videos v", name="[red]")]
    found = figures(odd, {"[red]": progress()["first"]}, Totals(), 1004.0)
    assert "[red]" in rendered(screen("weft", odd, found, 1.0))
    assert "[red]" in rendered(summary("weft", found, 1.0))


def test_probe_orders_are_one_line_each(planned: list[PlannedQuery]) -> None:
    """In the order of the inputs."""
    assert probe_orders(planned[0]) == ["v → w", "w → v"]


def test_what_queries_share_is_not_said_to_be_each_ones_own(planned: list[PlannedQuery]) -> None:
    """The same store stood under every query that uses it, as if there were several."""
    shared = {"w": StoreMetrics(1000, 20_000, 2, users=2), "c": StoreMetrics(10, 300, 1)}
    seen = {
        "first": [batch(0, "vw", 1, stores={"w": shared["w"]})],
        "second": [batch(0, "wc", 1, stores=shared)],
    }
    found = figures(planned, seen, totals(seen))
    text = [line.split() for line in rendered(summary("weft run", found, 1.0), 120).splitlines()]
    assert [*text[-2][:1], *text[-2][-6:]] == ["first", "0", "0", "B", "1,000", "20.0", "kB"]
    assert [*text[-1][:1], *text[-1][-6:]] == ["second", "10", "300", "B", "1,000", "20.0", "kB"]
    assert "state: 1,010 rows, 20.3 kB" in line(found, 1.0)
