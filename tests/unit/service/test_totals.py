"""Totals count every batch once: beyond what is remembered, and over restarts."""

from __future__ import annotations

import json
import random
from pathlib import Path
from unittest.mock import patch

import pytest

import weft
from tests.shares import seeds
from tests.unit.service.api.running import JOIN, Place, place, running_hub, wait_for
from weft.logical.codec import encode
from weft.runtime.log.totals import QueryTotals, Totals
from weft.runtime.log.values import Manifest
from weft.runtime.observe import progress
from weft.service.figures import batches_after, figures
from weft.service.hub.values import NewQuery
from weft.stats.input_figures import TupleCounts


def give(here: Place, session: weft.Session, pairs: int, first: int) -> None:
    """So many results of the join on k, each in a batch of its own."""
    for number in range(first, first + pairs):
        here.put("a", f"{number},x,2024-01-01T00:00:00Z")
        here.put("b", f"{number},2024-01-01T00:00:00Z")
        session.process_all_available()


def test_totals_are_not_those_of_the_batches_that_are_remembered(tmp_path: Path) -> None:
    """A count that falls is no total: 161,139 results were said where there were 392,342."""
    here = place(tmp_path)
    with patch.object(progress, "KEPT", 2), running_hub(tmp_path) as hub:
        give(here, hub.session, 6, 0)
        wait_for(lambda: hub.query("q").results == 6)
        hub.health()
        overview = hub.overview()
        assert (overview.results, overview.rows, hub.stream("a").rows) == (6, 12, 6)
        assert len(hub.session.progress["q"]) <= 3
        found = figures(hub.session.queries, batches_after(hub.session.progress, -1), hub.session.run_totals)
        assert (found.queries[0].results, found.streams[0].counts.rows) == (6, 6)
        assert found.batches == hub.query("q").batches == overview.batches


def test_totals_go_on_after_a_restart_and_a_run_says_what_it_did(tmp_path: Path) -> None:
    """The page and the API count on; `weft run` tells of its own run."""
    here = place(tmp_path)
    with running_hub(tmp_path) as hub:
        give(here, hub.session, 3, 0)
        before = hub.session.totals
    with running_hub(tmp_path) as hub:
        assert hub.query("q").results == 3
        assert hub.overview().results == 3
        give(here, hub.session, 2, 3)
        assert (hub.query("q").results, hub.overview().results, hub.stream("b").rows) == (5, 5, 5)
        assert hub.overview().batches == hub.query("q").batches > before.batches
        run = hub.session.run_totals
        assert (run.results, run.queries["q"].results, run.streams["a"]) == (2, 2, TupleCounts(2))


def test_a_query_of_the_same_name_begins_at_nothing(tmp_path: Path) -> None:
    """And what its predecessor gave stays in the total of the session."""
    here = place(tmp_path)
    with running_hub(tmp_path) as hub:
        give(here, hub.session, 2, 0)
        hub.stop_query("q")
        wait_for(lambda: hub.query("q").status == "stopped")
        assert hub.query("q").results == 2
        hub.create(NewQuery(JOIN, "q"))
        assert (hub.query("q").status, hub.query("q").results) == ("waiting", 0)
        give(here, hub.session, 1, 5)
        assert (hub.query("q").results, hub.session.totals.results) == (1, 3)


def test_a_manifest_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    """Its counters tell what there is to tell."""
    here = place(tmp_path)
    with running_hub(tmp_path) as hub:
        give(here, hub.session, 2, 0)
    old = encode(Manifest(7, results={"q": 5}, arrived={"a": 9}))
    del old["totals"]
    found = Manifest.from_dict(json.loads(json.dumps(old))).totals
    assert found == Totals(8, 0.0, 5, {"q": QueryTotals(None, 0, 5)}, {"a": TupleCounts(9)})
    assert found.of_query("q", 3).results == 5


@pytest.mark.parametrize("seed", seeds(20))
def test_totals_of_batches_add_up(seed: int) -> None:
    """However batches are cut, whoever begins and stops, and through JSON."""
    rng = random.Random(seed)
    found, results, rows, own = Totals(), 0, 0, dict[str, tuple[int, int]]()
    for batch in range(rng.randrange(1, 30)):
        if rng.random() < 0.3:
            own[rng.choice("pqr")] = batch, 0
        if own and rng.random() < 0.2:
            del own[rng.choice(sorted(own))]
        queries = {}
        for name, (first, count) in own.items():
            more = rng.randrange(5)
            results, own[name] = results + more, (first, count + more)
            known = found.of_query(name, first)
            queries[name] = QueryTotals(first, known.batches + 1, known.results + more)
        brought = rng.randrange(4)
        rows += brought
        found = found.plus(0.5, queries, {"a": TupleCounts(brought)})
        found = Totals.from_manifest({"totals": json.loads(json.dumps(encode(found)))})
        assert (found.batches, found.results, found.streams["a"].rows) == (batch + 1, results, rows)
        assert {name: (one.first, one.results) for name, one in found.queries.items()} == own
