"""Which queries share: if these fail, queries with little in common slow each other down."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.optimizer.ajoin import (
    CR,
    QUERIES,
    SAMPLE,
    STATISTICS,
    VW,
    WC,
    ask,
    common,
    query_set,
    union_by_formula,
)
from weft.errors import StatisticsError
from weft.optimizer.groups.grouping import Groups, SharingCosts, TwoWayJoin, groups, join_cost, sub_joins
from weft.optimizer.groups.overlap import Estimated, Measured
from weft.stats.estimate import Estimator
from weft.stats.statistics import DEFAULTS, Statistics

NAMES = tuple(QUERIES)


class TestEquation1:
    """Crd, by the formula and the efficient way."""

    def test_three_sets(self) -> None:
        """|A| + |B| + |C| − |A ∩ B| − |B ∩ C| − |A ∩ C| + |A ∩ B ∩ C|, as printed."""
        sets = {"A": {1, 2, 3, 4}, "B": {3, 4, 5}, "C": {4, 5, 6, 7}}

        def shared(names: tuple[str, ...]) -> float:
            return len(set.intersection(*(sets[name] for name in names)))

        assert union_by_formula("ABC", shared) == 4 + 3 + 4 - 2 - 2 - 1 + 1 == len({1, 2, 3, 4, 5, 6, 7})

    def test_the_query_sets_of_the_text(self) -> None:
        """Q1 and Q4 share three tuples of four; Q2, Q5 and Q6 want none."""
        sets = ["100100", "101100", "100100", "100000"]
        counts = {query_set(text): float(sets.count(text)) for text in sets}
        sample = Measured(NAMES, {"V": counts})
        assert common(sample, "V", ("Q1", "Q4")) == 3 / 4
        assert sample.part("V", ("Q1", "Q4")) == 1
        assert sample.part("V", ("Q2", "Q5", "Q6")) == 0
        assert sample.part("V", ("Q3", "Q6")) == 1 / 4

    @given(
        st.dictionaries(st.integers(0, 63), st.integers(1, 9), min_size=1), st.sets(st.sampled_from(NAMES))
    )
    def test_both_ways_agree(self, counts: dict[int, int], names: set[str]) -> None:
        """The one look at every query-set is the formula's 2ⁿ − 1 intersections."""
        sample = Measured(NAMES, {"V": counts})
        formula = union_by_formula(sorted(names), lambda some: common(sample, "V", some))
        assert sample.part("V", names) == pytest.approx(formula, abs=1e-9)

    def test_impossible_samples_are_refused(self) -> None:
        """A query-set with a query that is not there would count for nobody."""
        with pytest.raises(StatisticsError, match="cannot be"):
            Measured(("Q1",), {"V": {0b10: 1.0}})


class TestEquation2:
    """COST and its booleans."""

    def test_everything(self) -> None:
        """Indexing both sides, the smaller number of keys, all matches."""
        assert join_cost((100, 50), (20, 10), 500) == 100 + 50 + 10 + 500

    def test_what_is_indexed_is_not_indexed_again(self) -> None:
        """b_i1 = 0: an intermediate result that stays in place."""
        assert join_cost((100, 50), (20, 10), 500, index=(False, True)) == 50 + 10 + 500

    def test_late_materialisation(self) -> None:
        """b_m = 0: not the last join."""
        assert join_cost((100, 50), (20, 10), 500, materialise=False) == 160


class TestIndexes:
    """b_i: an input is indexed once for all sub-joins that look it up by the same columns."""

    @staticmethod
    def paid_too_often(where: str, tables: str) -> tuple[float, dict[str, float]]:
        """What indexing would cost more if every sub-join had indexes of its own, and the rates of the inputs."""
        queries = {"Q": ask(tables, where)}
        overlap = Estimated(queries, STATISTICS)
        found = list(sub_joins(queries["Q"]))
        each = sum(SharingCosts(queries, overlap, STATISTICS, join).total([("Q",)]) for join in found)
        rates = dict(zip(queries["Q"].aliases, Estimator(queries["Q"], STATISTICS).rates, strict=True))
        again = {
            alias: rate * (sum(alias in (join.left, join.right) for join in found) - 1)
            for alias, rate in rates.items()
        }
        return each - SharingCosts(queries, overlap, STATISTICS).total([("Q",)]), again

    def test_a_join_of_two_costs_what_the_equation_says(self) -> None:
        """With one sub-join, both sides are indexed, once."""
        queries = {"Q": ask("W, C", WC)}
        estimator = Estimator(queries["Q"], STATISTICS)
        keys = [
            STATISTICS.stream(name).distinct.get("usrID", DEFAULTS.distinct) for name in queries["Q"].aliases
        ]
        known = [min(some, rate) for some, rate in zip(keys, estimator.rates, strict=True)]
        wanted = join_cost(
            (estimator.rates[0], estimator.rates[1]), (known[0], known[1]), estimator.rate(0b11)
        )
        costs = SharingCosts(queries, Estimated(queries, STATISTICS), STATISTICS)
        assert costs.total([("Q",)]) == pytest.approx(wanted)

    def test_joins_on_one_column_share_the_index(self) -> None:
        """W, C and R are joined by their users: each has one index, whichever sub-joins look into it."""
        extra, again = self.paid_too_often(f"{WC} AND {CR}", "W, C, R")
        assert again["C"] > 0
        assert extra == pytest.approx(sum(again.values()))

    def test_joins_on_other_columns_need_other_indexes(self) -> None:
        """W is looked up by the video from V and by the user from C."""
        extra, again = self.paid_too_often(f"{VW} AND {WC}", "V, W, C")
        assert again["W"] > 0
        assert extra == pytest.approx(0, abs=1e-9)

    @given(st.dictionaries(st.integers(0, 63), st.integers(1, 9), min_size=1), st.permutations(NAMES))
    def test_a_gain_is_the_difference_of_the_totals(self, counts: dict[int, int], names: list[str]) -> None:
        """Else groups would be formed by another cost than the one they are judged by."""
        costs = SharingCosts(QUERIES, Measured(NAMES, dict.fromkeys("VWCR", counts)), STATISTICS)
        for size in range(1, len(names)):
            group, name = tuple(names[:size]), names[size]
            saved = costs.total([group, (name,)]) - costs.total([(*group, name)])
            common_join = costs.have_common(group, (name,))
            assert costs.gain(group, name) == pytest.approx(saved if common_join else 0.0, abs=1e-6)


class TestEstimatedOverlap:
    """What is assumed before anything is measured."""

    STATISTICS = Statistics(selectivities={"W.geo = 'EU'": 0.5, "W.duration < 10": 0.2}, origin="given")

    def part(self, *where: str) -> float:
        queries = {str(i): ask("W, C", f"{WC}{filters}") for i, filters in enumerate(where)}
        return Estimated(queries, self.STATISTICS).part("W", tuple(queries))

    def test_equal_filters_overlap_wholly(self) -> None:
        """However they are written."""
        assert self.part(" AND W.geo = 'EU'", " AND 'EU' = W.geo") == 0.5

    def test_no_filter_lets_everything_through(self) -> None:
        """So others add nothing."""
        assert self.part("", " AND W.geo = 'EU'") == 1

    def test_more_conditions_add_nothing(self) -> None:
        """Who passes both passes the one."""
        assert self.part(" AND W.geo = 'EU'", " AND W.geo = 'EU' AND W.duration < 10") == 0.5

    def test_others_are_independent(self) -> None:
        """A half and a fifth are three fifths together."""
        assert self.part(" AND W.geo = 'EU'", " AND W.duration < 10") == pytest.approx(0.6)


def place(
    before: Groups, name: str, queries: Any, overlap: Any, known: Statistics, join: TwoWayJoin | None = None
) -> Groups:
    """The groups with one query more, where it gains most, or in one of its own."""
    best, position = SharingCosts(queries, overlap, known, join).best_group(before, name)
    if best <= 0:
        return (*before, (name,))
    return tuple((*group, name) if i == position else group for i, group in enumerate(before))


def join_of(left: str, right: str) -> TwoWayJoin:
    every = {join for query in QUERIES.values() for join in sub_joins(query)}
    return next(join for join in every if {join.left, join.right} == {left, right})


class TestFigure7a:
    """The groups of Q1-Q6."""

    def test_groups_of_v_join_w(self) -> None:
        """Q1 and Q2 are in one group; Q5 is not with Q4 (Figure 6), Q6 not with Q2."""
        found = groups(QUERIES, SAMPLE, STATISTICS, join=join_of("V", "W"))
        assert found == (("Q1", "Q2"), ("Q4", "Q6"), ("Q5",))

    def test_groups_of_w_join_c(self) -> None:
        """Q2 can share with Q3; the other group is Q4 and Q6."""
        assert groups(QUERIES, SAMPLE, STATISTICS, join=join_of("W", "C")) == (("Q2", "Q3"), ("Q4", "Q6"))

    def test_groups_of_queries(self) -> None:
        """Over all their joins."""
        assert groups(QUERIES, SAMPLE, STATISTICS) == (("Q1", "Q2", "Q3"), ("Q4", "Q6"), ("Q5",))

    def test_q7_joins_the_group_it_has_most_in_common_with(self) -> None:
        """W ⋈ C.G2, so that only Q4 and Q6 are affected."""
        queries = {**QUERIES, "Q7": ask("W, C", f"{WC} AND W.duration > 45")}
        sample = Measured(
            tuple(queries),
            {
                "W": {query_set("1110000"): 3, query_set("0001011"): 3, query_set("0000100"): 2, 0: 2},
                "C": {query_set("0110000"): 4, query_set("0001011"): 4, 0: 2},
            },
            otherwise=SAMPLE,
        )
        before = groups(QUERIES, sample, STATISTICS, join=join_of("W", "C"))
        after = place(before, "Q7", queries, sample, STATISTICS, join=join_of("W", "C"))
        assert after == (("Q2", "Q3"), ("Q4", "Q6", "Q7"))

    def test_a_query_with_nothing_in_common_gets_a_group_of_its_own(self) -> None:
        """Else the others would carry what only it wants."""
        queries = {**QUERIES, "Q7": ask("W, C", f"{WC} AND W.duration = 7")}
        sample = Measured(
            tuple(queries),
            {
                "W": {query_set("1110000"): 3, query_set("0001010"): 3, query_set("0000001"): 4},
                "C": {query_set("0110000"): 4, query_set("0001010"): 4, query_set("0000001"): 2},
            },
            otherwise=SAMPLE,
        )
        before = groups(QUERIES, sample, STATISTICS)
        assert place(before, "Q7", queries, sample, STATISTICS) == (*before, ("Q7",))


class TestGroups:
    """Whatever the workload."""

    def test_queries_without_a_common_join_are_apart(self) -> None:
        """V ⋈ W and C ⋈ R have nothing to share."""
        queries = {"a": ask("V, W", "V.vID = W.vID"), "b": ask("C, R", "C.usrID = R.usrID")}
        assert groups(queries, Estimated(queries, STATISTICS), STATISTICS) == (("a",), ("b",))

    def test_queries_without_filters_share(self) -> None:
        """Their tuples are the same."""
        queries = {name: ask("V, W", "V.vID = W.vID") for name in "abc"}
        assert groups(queries, Estimated(queries, STATISTICS), STATISTICS) == (("a", "b", "c"),)

    @given(st.lists(st.integers(0, 63), min_size=1, max_size=8))
    def test_every_query_is_in_one_group(self, sets: list[int]) -> None:
        """And every group gains by sharing, so that none is dearer than its queries apart."""
        counts = {bits: float(sets.count(bits)) for bits in sets}
        sample = Measured(NAMES, dict.fromkeys("VWCR", counts))
        found = groups(QUERIES, sample, STATISTICS)
        assert sorted(name for group in found for name in group) == sorted(NAMES)
        for group in found:
            for pair in combinations(group, 2) if len(group) == 2 else ():
                assert place((pair[:1],), pair[1], QUERIES, sample, STATISTICS) == (pair,)
