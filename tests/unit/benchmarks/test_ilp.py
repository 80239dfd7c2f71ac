"""What the benchmark of joint planning is measured on, and what it makes of its figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from benchmarks._natural import natural_queries
from benchmarks.ilp import Measured, Row, measure, verdicts

from weft.logical.expr.expression import aliases
from weft.optimizer.joint.exact.solve import Solution
from weft.plan.workload import WorkloadPlan


class TestQueries:
    @pytest.mark.parametrize(("relations", "span"), [(10, 3), (100, 5)])
    def test_they_are_repeatable_connected_and_of_one_size(self, relations: int, span: int) -> None:
        """Or the figures of two runs could not be compared."""
        queries, statistics = natural_queries(3, drawn=20, relations=relations, span=span)
        assert (queries, statistics) == natural_queries(3, drawn=20, relations=relations, span=span)
        for query in queries:
            assert len(query.inputs) == span
            assert query.component(query.aliases[0]) == set(query.aliases)

    def test_relations_join_by_the_names_of_their_attributes(self) -> None:
        """Two queries over the same two relations join them alike, so that there is something to share."""
        queries, _ = natural_queries(1, drawn=50)
        for query in queries:
            for key in query.keys:
                assert len({str(member).split(".")[1] for member in key.members}) == 1
                assert all(len(aliases(member)) == 1 for member in key.members)

    def test_a_query_drawn_twice_is_one(self) -> None:
        """Over ten relations that happens often, as in the thesis."""
        queries, _ = natural_queries(1, drawn=100)
        assert len({query.aliases for query in queries}) == len(queries) < 70


class TestFigures:
    SOLUTION = Solution(WorkloadPlan(()), cost=50.0, bound=50.0, seconds=1.0, variables=1)

    def measured(
        self,
        row: Row,
        *,
        cost: float = 50.0,
        orders: float = 100.0,
        seconds: float = 1.0,
        incremental: float = 51.0,
        added: float = 0.1,
    ) -> Measured:
        solution = replace(self.SOLUTION, cost=cost)
        return Measured(row, 100, orders, 80.0, solution, seconds, incremental, 1.0, added)

    def test_what_is_saved_and_what_is_behind(self) -> None:
        """Half of the best orders' cost, three eighths of the best plans'; 51 is 2 % more than 50."""
        one = self.measured((10, 3, 100, 1, 1.0))
        assert one.saved == pytest.approx(0.5)
        assert one.saved_alone == pytest.approx(0.375)
        assert one.behind == pytest.approx(0.02)

    def test_targets_are_missed_when_they_are(self) -> None:
        """Too little saved, too slow, too far from the bound, too far behind, too slow to add."""
        good = [self.measured((10, 3, 100, 1, 1.0)), self.measured((100, 5, 30, 1, 1.0))]
        assert all(reached for _, reached in verdicts(good))
        bad = [
            self.measured((10, 3, 100, 1, 1.0), orders=99.0, incremental=53.0, added=0.3),
            self.measured((100, 5, 30, 1, 1.0), seconds=6.0),
            self.measured((100, 5, 100, 1, 1.0), cost=52.0),
        ]
        assert [reached for _, reached in verdicts(bad)] == [False] * 5

    def test_a_small_workload_is_measured(self) -> None:
        """Every figure of a row can be had."""
        found = measure((10, 3, 5, 1, 5.0), seed=1)
        assert found.solution.gap == 0
        assert found.solution.cost <= found.alone <= found.orders
        assert found.behind >= -1e-9
