"""What is known of the data, as people read it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.stats.test_combine import Samples, checked, sampled
from weft.runtime.log.checkpoint import Checkpoint
from weft.session.session import Session
from weft.session.show.statistics_report import statistics_report
from weft.stats.known import CallSums, Checked, Known, StreamSums
from weft.stats.statistics import Statistics, StreamStatistics

KNOWN = Known(
    9,
    100.0,
    {"v": StreamSums(1000, 4, 10, clocks=("v", "w"), bytes=2000, held=50, batch=9, moment=100.0)},
    {},
    {
        ("v.k = w.k",): Checked(1e6, 1e6, 1e4, 7, 90.0),
        ("v.x < w.x",): checked(1e6, 5e5),
        ("v.k = w.k", "v.x < w.x"): checked(1e6, 1e4),
    },
    calls={"f": CallSums(10, 0.5, 9, 100.0)},
)
GIVEN = Statistics(
    {"w": StreamStatistics(5.0, {"k": 7.0}, {"k": {3: 0.5}})}, {"v.k = w.k": 0.3, "c.y = 1": 0.25}
)
SAMPLED = Samples({"v.k = w.k": sampled(0.5)}, {"v": {"k": sampled(40.0)}}, {"v": {"k": ((42, 0.25),)}})


REPORT = """\
Statistics
  of                       what         value  source    batches ago  seconds ago  evidence
  c                        rate          1000  default             -            -         -
  v                        rate           100  observed            0          0.0      1000
  w                        rate             5  given               -            -         -
  v                        bytes           40  observed            0          0.0        50
  v.k                      distinct        40  sampled             6            -      1000
  w.k                      distinct         7  given               -            -         -
  v.k = 42                 heavy         0.25  sampled             -            -         -
  w.k = 3                  heavy          0.5  given               -            -         -
  f                        cost          0.05  observed            0          0.0        10
  c.y = 1                  selectivity   0.25  given               -            -         -
  v.k = w.k                selectivity   0.01  observed            2         10.0        1M
  v.x < w.x                selectivity    0.5  observed            6         70.0        1M
  v.x > 3                  selectivity  0.333  default             -            -         -
  v.k = w.k AND v.x < w.x  joint         0.01  observed            6         70.0        1M"""


def test_every_figure_is_shown_with_the_source_that_wins() -> None:
    """So that a user sees by what queries are planned, and how far to trust it."""
    session = Session()
    for name in ("v", "w"):
        session.stream(name, "k long, x long, ts timestamp", event_time="ts")
    query = session.parse(
        "SELECT v.k FROM v [RANGE 1 MINUTE], w [RANGE 1 MINUTE] WHERE v.k = w.k AND v.x < w.x AND v.x > 3"
    )
    report = statistics_report(GIVEN, KNOWN, ["v", "w", "c"], [query], sampled=SAMPLED)
    assert str(report) == REPORT


def test_nothing_known_is_shown_as_defaults() -> None:
    """Before the first batch."""
    rows = statistics_report(Statistics(), Known(), ["v"], []).rows
    assert [(row.of, row.what, row.value, row.source) for row in rows] == [("v", "rate", 1000.0, "default")]


def test_what_is_known_is_kept_in_the_log(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A damaged file is no reason not to start."""
    log = Checkpoint.at(tmp_path)
    assert log.statistics() is None
    log.write_statistics(KNOWN.to_json())
    text = log.statistics()
    assert text is not None
    assert Known.from_json(text) == KNOWN
    (tmp_path / "statistics.json").write_bytes(b"{}")
    assert log.statistics() is None
    assert "measured again" in caplog.text
