"""Which figure wins, what is shared out, and what is called correlated."""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest

from tests.unit.stats.queries import query
from weft.errors import StatisticsError
from weft.stats.combine import combined, observed_figures
from weft.stats.estimate import Estimator
from weft.stats.figure import Figure
from weft.stats.known import CallSums, Checked, JointSums, Known, PredicateSet, StreamSums
from weft.stats.predicate_sets import PredicateSets
from weft.stats.skew import HeavyShares
from weft.stats.statistics import Statistics, StreamStatistics


@dataclass(frozen=True)
class Samples:
    """What samples tell."""

    selectivities: Mapping[str, Figure] = field(default_factory=dict)
    distinct: Mapping[str, Mapping[str, Figure]] = field(default_factory=dict)
    heavy: HeavyShares = field(default_factory=dict)


def checked(compared: float, matched: float) -> Checked:
    """So many pairs in the last batch."""
    return Checked(compared, compared, matched, 3, 30.0)


def sampled(value: float, evidence: float = 1000.0) -> Figure:
    """A sampled figure."""
    return Figure(value, "sampled", evidence, 3)


def test_the_most_trusted_figure_wins() -> None:
    """Observed, sampled, given; a sample of a few tuples is worth nothing."""
    given = Statistics(
        {"v": StreamStatistics(5.0, {"k": 7.0, "x": 8.0})},
        {"a": 0.1, "b": 0.2, "c": 0.3},
        origin="given",
        costs={"f": 1.0, "g": 2.0},
    )
    known = Known(
        3, 30.0, {"v": StreamSums(100, 1, 10, clocks=("v",))}, {}, {("a",): checked(1000, 500)},
        calls={"f": CallSums(10, 40)},
    )  # fmt: skip
    samples = Samples(
        {"a": sampled(0.9), "b": sampled(0.8), "c": sampled(0.7, 2)},
        {"v": {"k": sampled(50)}},
        {"v": {"k": ((42, 0.25),)}},
    )
    found = combined(given, known, samples)
    assert found.selectivities == {"a": 0.5, "b": 0.8, "c": 0.3}
    assert found.stream("v") == StreamStatistics(10.0, {"k": 50.0, "x": 8.0}, {"k": {42: 0.25}})
    assert found.costs == {"f": 4.0, "g": 2.0}
    assert found.origin == "measured"
    assert pickle.loads(pickle.dumps(found)) == found
    assert combined(given, Known(), None) is given
    assert combined(given, Known(), Samples()) is given


def test_what_is_known_alone_is_not_shared_out() -> None:
    """Of three conditions checked together, one is known by itself; a sample does as well."""
    known = Known(
        3, 30.0, {}, {}, {("a",): checked(100, 50), ("a", "b", "c"): checked(1e6, 5e3)},
        guesses={"a": 0.5, "b": 0.1, "c": 0.01},
    )  # fmt: skip
    alone = observed_figures(known).selectivities
    assert alone["a"].value == 0.5
    assert alone["b"].value == pytest.approx(0.01 ** (1 / 3))
    assert alone["c"].value == pytest.approx(0.01 ** (2 / 3))
    found = observed_figures(known, Samples({"b": sampled(0.2)}))
    assert found.selectivities.keys() == {"a", "c"}
    assert found.selectivities["c"].value == pytest.approx(0.05)
    assert found.joint == {}
    assert alone["c"].source == "observed"
    assert (alone["c"].evidence, alone["c"].batch, alone["c"].moment) == (1e6, 3, 30.0)


@pytest.mark.parametrize(
    ("compared", "matched", "factor"),
    [
        (1e6, 1e4, None),  # as the product says
        (1e6, 1.15e4, None),  # within a fifth
        (1e6, 1e5, 10.0),
        (1e6, 1e3, 0.1),
        (1e6, 0, 5e-5),
        (200, 6, None),  # 2 were expected
        (200, 100, 50.0),
    ],
)
def test_a_set_is_correlated_if_chance_does_not_explain_it(
    compared: float, matched: float, factor: float | None
) -> None:
    """By the errors of what was counted, and at least a fifth."""
    pairs = {("a",): checked(1e6, 1e5), ("b",): checked(1e6, 1e5), ("a", "b"): checked(compared, matched)}
    found = combined(Statistics(), Known(3, 30.0, {}, {}, pairs)).joint
    assert found == ({} if factor is None else {("a", "b"): pytest.approx(factor)})
    half = JointSums(checked(compared / 20, matched / 2), 0.1, 0.01)
    later: dict[tuple[PredicateSet, PredicateSet], JointSums] = {
        (("a", "b"), ("a",)): half,
        (("a", "b"), ("b",)): half,
    }
    singles: dict[PredicateSet, Checked] = {names: one for names, one in pairs.items() if len(names) == 1}
    known = Known(3, 30.0, {}, {}, singles, joint=later)
    assert combined(Statistics(), known).joint == pytest.approx(found)


def test_samples_tell_that_a_set_is_correlated() -> None:
    """If nothing checks its predicates alone."""
    known = Known(3, 30.0, {}, {}, {("a", "b"): checked(1e6, 1e5)})
    assert combined(Statistics(), known).joint == {}
    found = combined(Statistics(), known, Samples({"a": sampled(0.1), "b": sampled(0.1)}))
    assert found.joint == {("a", "b"): pytest.approx(10)}


STAR = query("SELECT v.k FROM v, w, c WHERE v.k = w.k AND w.k = c.k AND v.x < w.x AND c.x > 3 AND c.s = 'a'")


def test_a_set_has_one_name_whatever_the_aliases_and_the_spelling() -> None:
    """Three members of one class are two equalities."""
    other = query("SELECT 1 FROM v AS z, w AS y, c AS x WHERE z.k = x.k AND x.k = y.k AND z.x < y.x")
    names = ("c.k = v.k", "c.k = w.k", "v.x < w.x")
    assert PredicateSets(STAR).names(7) == PredicateSets(other).names(7) == names
    assert PredicateSets(STAR).names(0b110) == ("v.k = w.k", "v.x < w.x")  # v and w
    assert PredicateSets(STAR).names(0b001) == ()


def test_estimates_use_the_largest_sets_that_are_disjoint() -> None:
    """And depend on the set of inputs alone."""
    base = Statistics(selectivities={"v.x < w.x": 0.5})
    pair, whole = ("v.k = w.k", "v.x < w.x"), ("c.k = v.k", "c.k = w.k", "v.x < w.x")
    plain = Estimator(STAR, base)

    def factors(joint: dict[tuple[str, ...], float]) -> list[float]:
        found = Estimator(STAR, Statistics(selectivities={"v.x < w.x": 0.5}, joint=joint))
        return [found.selectivity(mask) / plain.selectivity(mask) for mask in (0b110, 0b011, 0b111)]

    assert factors({}) == [1, 1, 1]
    assert factors({pair: 3.0}) == pytest.approx([3, 1, 3])
    assert factors({pair: 3.0, whole: 7.0}) == pytest.approx([3, 1, 7])
    assert factors({("z.k = w.k",): 3.0}) == [1, 1, 1]
    found = Estimator(STAR, Statistics(joint={pair: 1e9}))
    assert found.selectivity(0b110) == 1


def test_filters_of_one_input_may_be_correlated() -> None:
    """They are a set as any other."""
    names = ("c.s = 'a'", "c.x > 3")
    plain = Estimator(STAR, Statistics()).rates
    found = Estimator(STAR, Statistics(joint={names: 2.0})).rates
    assert [b / a for a, b in zip(plain, found, strict=True)] == pytest.approx([2, 1, 1])


def test_a_factor_that_cannot_be_is_refused() -> None:
    """Valid by construction."""
    with pytest.raises(StatisticsError, match="times as often"):
        Statistics(joint={("a", "b"): 0.0})
