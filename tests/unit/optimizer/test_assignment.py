"""Which group a query is in, and when that changes: if these fail, queries share what slows them, or plans flutter."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from random import Random
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shares import examples
from tests.unit.optimizer.ajoin import QUERIES, SAMPLE, STATISTICS, VW, WC, ask, query_set
from weft.logical.query.query import Query
from weft.optimizer.groups.assignment import assigned_groups, revised_groups, separate_groups
from weft.optimizer.groups.grouping import SharingCosts
from weft.optimizer.groups.overlap import Estimated, Measured
from weft.optimizer.joint.space.storage import least_storage
from weft.stats.statistics import Statistics, StreamStatistics

# Joins that give many results, so that to share them with queries that want others costs much.
MANY = Statistics(
    {name: StreamStatistics(1_000.0, {"vID": 100.0, "usrID": 100.0}) for name in "VWCR"}, origin="given"
)


def clusters(count: int, sizes: tuple[int, ...]) -> tuple[dict[str, Query], Measured]:
    """Queries of V ⋈ W in so many clusters, by turns; the queries of one want the same tuples and no others."""
    names = [f"q{i:03}" for i in range(count)]
    queries = {name: ask("V, W", f"{VW} AND W.duration > {i}") for i, name in enumerate(names)}
    sets = {sum(1 << i for i in range(count) if i % len(sizes) == k): float(s) for k, s in enumerate(sizes)}
    return queries, Measured(names, {"V": sets, "W": sets})


def parted(groups: Mapping[str, str]) -> set[frozenset[str]]:
    """The groups without their names."""
    return {frozenset(n for n in groups if groups[n] == group) for group in groups.values()}


def partitions(names: tuple[str, ...]) -> Iterator[list[tuple[str, ...]]]:
    """All ways to part queries into groups."""
    if not names:
        yield []
        return
    first, *others = names
    for found in partitions(tuple(others)):
        yield [(first,), *found]
        for i, group in enumerate(found):
            yield [*found[:i], (first, *group), *found[i + 1 :]]


class TestANewQuery:
    """It is placed by cost, and nobody else moves."""

    NOW: ClassVar = {"Q1": "", "Q2": "", "Q3": "", "Q4": "group 2", "Q5": "group 3", "Q6": "group 2"}

    def test_it_joins_the_group_that_gains_most(self) -> None:
        """The text's Q7, of which the sample knows nothing: it wants what Q4 and Q6 want of C."""
        queries = {**QUERIES, "Q7": ask("V, W, C", f"{VW} AND {WC} AND V.length > 50 AND W.duration > 40")}
        overlap = Measured(
            tuple(queries),
            {
                "V": {query_set("1100000"): 3, query_set("0001011"): 3, query_set("0000100"): 4},
                "W": {query_set("1110000"): 3, query_set("0001011"): 3, query_set("0000100"): 4},
                "C": {query_set("0110000"): 5, query_set("0001011"): 5},
            },
        )
        found = assigned_groups(queries, self.NOW, overlap, STATISTICS)
        assert found == {**self.NOW, "Q7": "group 2"}

    def test_it_gets_a_group_of_its_own_where_it_would_lose_in_all(self) -> None:
        """With a name that no other has."""
        queries, overlap = clusters(6, (30, 30, 40))
        now = {"q000": "", "q001": "group 3", "q003": "", "q004": "group 3"}
        found = assigned_groups(queries, now, overlap, MANY)
        assert found == {**now, "q002": "group 2", "q005": "group 2"}

    def test_without_a_sample_it_shares_eagerly(self) -> None:
        """An estimate is no reason for stores of its own."""
        queries, _ = clusters(4, (50, 50))
        estimated = Estimated(queries, MANY)
        assert set(assigned_groups(queries, {}, estimated, MANY).values()) == {""}
        now = {"q000": "", "q001": "group 2"}
        found = assigned_groups(queries, now, estimated, MANY)
        assert set(found.values()) == {"", "group 2"}

    def test_a_query_that_has_no_join_in_common_needs_no_group_of_its_own(self) -> None:
        """Nor does one of a single input."""
        queries = {
            **QUERIES,
            "alone": ask("R", "R.reaction = 'angry'"),
            "apart": ask("V, C", "V.vID = C.usrID"),
        }
        found = assigned_groups(queries, self.NOW, SAMPLE, STATISTICS)
        assert (found["alone"], found["apart"]) == ("", "")

    def test_where_the_budget_leaves_no_room_it_shares(self) -> None:
        """A group has stores of its own for all its inputs."""
        queries, overlap = clusters(4, (50, 50))
        now, inputs = {"q000": "", "q002": ""}, least_storage(queries, MANY)
        assert len(parted(assigned_groups(queries, now, overlap, MANY, budget=3 * inputs))) == 2
        assert len(parted(assigned_groups(queries, now, overlap, MANY, budget=1.1 * inputs))) == 1


class TestFromNothing:
    """All queries at once."""

    def test_a_group_that_goes_on_keeps_its_name(self) -> None:
        """Else its stores would be laid out anew for a name."""
        queries, overlap = clusters(6, (50, 50))
        now = {"q001": "", "q003": "", "q000": "group 2", "q002": "group 2"}
        found = separate_groups(queries, overlap, MANY, now)
        assert found == {name: "group 2" if int(name[1:]) % 2 == 0 else "" for name in queries}

    def test_groups_for_which_there_is_no_room_are_not_formed(self) -> None:
        """All share then."""
        queries, overlap = clusters(6, (50, 50))
        budget = 1.1 * least_storage(queries, MANY)
        assert set(separate_groups(queries, overlap, MANY, budget=budget).values()) == {""}


class TestRevision:
    """Groups from measured overlap, beginning with those that there are."""

    def test_a_group_of_two_halves_is_divided(self) -> None:
        """No query would gain by leaving alone; one half keeps the name."""
        queries, overlap = clusters(40, (50, 50))
        found = revised_groups(queries, dict.fromkeys(queries, ""), overlap, MANY)
        assert found is not None
        assert set(found.values()) == {"", "group 2"}
        assert parted(found) == {frozenset(f"q{i:03}" for i in range(k, 40, 2)) for k in range(2)}

    def test_groups_of_other_joins_go_with_those_that_want_the_same_tuples(self) -> None:
        """The stores of inputs hold what any query of a group wants, whatever it joins."""
        names = [f"q{i}" for i in range(9)]
        joins = [("V, W", VW)] * 4 + [("W, C", WC)] * 5
        queries = {
            n: ask(join[0], f"{join[1]} AND W.duration > {n[1:]}")
            for n, join in zip(names, joins, strict=True)
        }
        sides = {sum(1 << i for i in range(9) if i % 2 == k): 50.0 for k in range(2)}
        overlap = Measured(names, dict.fromkeys("VWC", sides))
        found = revised_groups(queries, dict.fromkeys(names, ""), overlap, MANY)
        assert found is not None
        assert parted(found) == {frozenset(names[::2]), frozenset(names[1::2])}

    def test_groups_that_want_the_same_are_united(self) -> None:
        """Under the name of the larger."""
        queries, _ = clusters(10, (50, 50))
        everything = {(1 << 10) - 1: 100.0}
        overlap = Measured(tuple(queries), {"V": everything, "W": everything})
        now = {name: "group 2" if i < 7 else "group 5" for i, name in enumerate(queries)}
        assert revised_groups(queries, now, overlap, MANY) == dict.fromkeys(queries, "group 2")

    def test_a_query_that_changed_sides_moves_alone(self) -> None:
        """The others keep their groups."""
        queries, overlap = clusters(4, (50, 50))
        now = {"q000": "", "q001": "group 2", "q002": "group 2", "q003": "group 2"}
        assert revised_groups(queries, now, overlap, MANY) == {**now, "q002": ""}

    def test_small_gains_change_nothing(self) -> None:
        """Else groups would change back and forth with every sample."""
        queries, overlap = clusters(40, (50, 50))
        now = dict.fromkeys(queries, "")
        found = revised_groups(queries, now, overlap, MANY)
        assert found is not None
        assert revised_groups(queries, found, overlap, MANY) is None
        costs = SharingCosts(queries, overlap, MANY)
        before, after = costs.total([tuple(queries)]), costs.total([tuple(one) for one in parted(found)])
        gain = 1 - after / before
        assert revised_groups(queries, now, overlap, MANY, least_gain=gain - 0.01) == found
        assert revised_groups(queries, now, overlap, MANY, least_gain=gain + 0.01) is None

    def test_groups_for_which_there_is_no_room_are_not_formed(self) -> None:
        """The present ones stay."""
        queries, overlap = clusters(40, (50, 50))
        budget = 1.1 * least_storage(queries, MANY)
        assert revised_groups(queries, dict.fromkeys(queries, ""), overlap, MANY, budget=budget) is None

    @given(st.integers(0, 10_000))
    @examples(15)
    def test_against_all_groupings(self, seed: int) -> None:
        """Never dearer than before, and mostly as cheap as the best of all 203."""
        rng = Random(seed)
        names = tuple(QUERIES)
        samples = {a: {rng.randrange(64): rng.uniform(1, 9) for _ in range(8)} for a in "VWCR"}
        overlap = Measured(names, samples)
        costs = SharingCosts(QUERIES, overlap, MANY)
        now = {name: rng.choice(("", "group 2", "group 3")) for name in names}
        found = revised_groups(QUERIES, now, overlap, MANY, least_gain=0.0) or now
        total = costs.total([tuple(sorted(group)) for group in parted(found)])
        best = min(map(costs.total, partitions(names)))
        assert total <= costs.total([tuple(sorted(group)) for group in parted(now)]) * (1 + 1e-9)
        assert total <= 1.25 * best


class TestQueriesThatWereNotSampled:
    """A new query has no bit in any query-set."""

    def test_it_adds_to_what_was_measured_what_is_estimated(self) -> None:
        """The others' overlap stays as measured."""
        queries = {"a": ask("V, W", VW), "b": ask("V, W", VW), "new": ask("V, W", f"{VW} AND W.geo = 'EU'")}
        statistics = Statistics(selectivities={"W.geo = 'EU'": 0.5}, origin="given")
        some = {"a": ask("V, W", f"{VW} AND W.duration < 1"), "new": queries["new"]}
        overlap = Measured(("a",), {"W": {1: 20.0, 0: 80.0}}, Estimated(some, statistics))
        assert overlap.part("W", ("a",)) == pytest.approx(0.2)
        assert overlap.part("W", ("a", "new")) == pytest.approx(0.2 + 0.8 * 0.5)
        assert overlap.part("W", ("new",)) == pytest.approx(0.5)
