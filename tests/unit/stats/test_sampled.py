"""What is sampled of queries, and under which names figures are found."""

from __future__ import annotations

import math

import numpy as np
import pytest

from tests.unit.stats.queries import query
from tests.unit.stats.test_samples import exact, report
from weft.stats.sampling.attributes import Attribute, join_attributes
from weft.stats.sampling.sampled import sampled_statistics
from weft.stats.sampling.samples import Sample

JOIN = query(
    "SELECT v.x FROM v, w, c WHERE v.k = w.k AND w.k = c.x AND v.s = c.s AND v.x < w.x + 5 AND v.k = 3"
)
BAND = query("SELECT v.x FROM v, w WHERE v.k = w.k AND v.x BETWEEN w.x - 10 AND w.x + 10 AND v.ts <= w.ts")


def test_what_queries_join_on_is_sampled_once() -> None:
    """Sides of equalities, and of comparisons but for those of event times, which are part of the windows."""
    found = {(one.attribute.stream, one.attribute.name): one for one in join_attributes([JOIN, BAND])}
    equal = {name for name, one in found.items() if one.equal}
    ordered = {name for name, one in found.items() if one.ordered}
    assert equal == {("v", "k"), ("w", "k"), ("c", "x"), ("v", "s"), ("c", "s")}
    assert ordered == {("v", "x"), ("w", "x")}


def test_a_stream_under_two_names_is_sampled_once() -> None:
    """An attribute belongs to the stream."""
    (one,) = join_attributes([query("SELECT a.x FROM v AS a, v AS b WHERE a.k = b.k")])
    assert (one.attribute, one.alias) == (Attribute("v", "k"), "a")


def test_expressions_are_attributes_by_their_text() -> None:
    """A cast to a wider whole number is its column; others are computed."""
    found = join_attributes([query("SELECT v.x FROM v, w WHERE v.k = CAST(w.s AS BIGINT) AND v.x = w.x + 1")])
    assert [one.attribute.name for one in found] == ["k", "x", "CAST(w.s AS BIGINT)", "w.x + 1"]


def samples(names: str, keys: int = 200) -> dict[Attribute, Sample]:
    """Samples of the attributes with these names, such as "v.k w.k"."""
    found = {}
    for place, name in enumerate(names.split()):
        values = np.random.default_rng(place).integers(0, keys, 5_000)
        found[Attribute(*name.split("."))] = Sample.from_report(report(values), 8)
    return found


def test_figures_go_by_the_names_of_predicates() -> None:
    """All pairs of an equality class have one, also that which the query does not state."""
    found = sampled_statistics(samples("v.k w.k c.x v.x w.x"), [JOIN]).selectivities
    assert found.keys() == {"v.k = w.k", "c.x = w.k", "c.x = v.k", "v.x < w.x + 5"}
    assert all(one.source == "sampled" and one.batch == 8 and one.evidence > 100 for one in found.values())
    values = [np.random.default_rng(place).integers(0, 200, 5_000) for place in range(2)]
    assert found["v.k = w.k"].value == pytest.approx(exact(*values))
    assert found["v.x < w.x + 5"].value == pytest.approx(0.52, abs=0.05)


def test_the_bounds_of_a_band_share_its_selectivity() -> None:
    """Each gets the square root, so that together they are the band."""
    found = sampled_statistics(samples("v.k w.k v.x w.x", 1_000), [BAND]).selectivities
    first, second = (one for name, one in found.items() if "x" in name)
    assert first == second
    assert first.value == pytest.approx(math.sqrt(0.021), rel=0.15)


def test_columns_have_distinct_counts_nulls_and_heavy_values() -> None:
    """By stream and column."""
    found = sampled_statistics(samples("v.k w.k", 20), [JOIN])
    assert found.distinct["v"]["k"].value == 20
    assert found.nulls["w"]["k"].value == 0
    assert len(found.heavy["v"]["k"]) == 20
    assert sum(share for _, share in found.heavy["v"]["k"]) == pytest.approx(1.0, abs=1e-4)


def test_without_samples_nothing_is_said() -> None:
    """One sampled side is not enough."""
    assert sampled_statistics(samples("v.k v.x"), [JOIN]).selectivities == {}
