"""What is merged when: nothing lost, age kept, few runs at every place, little in one batch, a bounded debt."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from tests.shares import examples
from weft.bucket.bounds import PLACES, Bounds
from weft.runtime.state.merge_plan import DRAIN, Extent, RangeMerge, plan_merges

ROW = 16  # bytes


@dataclass
class Store:
    """A store as a model: runs as ranges and lists of (place, number of the row), in the order of age."""

    piece: int
    fanout: int
    budget: int
    runs: list[tuple[int, int, list[tuple[int, int]]]] = field(default_factory=list)
    rows: int = 0
    rewritten: int = 0
    debt: int = 0
    pending: list[tuple[RangeMerge, list[tuple[int, int]]]] = field(default_factory=list)

    def extents(self) -> list[Extent]:
        return [Extent(low, high, Bounds(len(rows), ROW * len(rows))) for low, high, rows in self.runs]

    def add(self, places: list[int]) -> None:
        self.runs.append((0, PLACES, [(place, self.rows + n) for n, place in enumerate(places)]))
        self.rows += len(places)
        plan = plan_merges(self.extents(), self.budget, piece=self.piece, fanout=self.fanout)
        allowed = max(self.budget, (plan.debt + sum(merge.bytes for merge in plan.merges)) // DRAIN)
        assert sum(merge.bytes for merge in plan.merges[1:]) <= allowed
        self.debt = plan.debt
        for merge in plan.merges:
            self.merge(merge)

    def merge(self, merge: RangeMerge) -> None:
        """Take the rows that are merged; `commit` cuts the runs later, since plans name them as they were."""
        taken: list[tuple[int, int]] = []
        for number in merge.runs:
            low, high, rows = self.runs[number]
            assert low <= merge.low < merge.high <= high
            taken += [row for row in rows if merge.low <= row[0] < merge.high]
        self.rewritten += len(taken)
        self.pending.append((merge, taken))

    def commit(self) -> None:
        """Put merged runs where the oldest of their runs was, and cut those."""
        begins: dict[int, list[tuple[int, int, list[tuple[int, int]]]]] = {}
        cut: dict[int, list[tuple[int, int]]] = {}
        for merge, rows in self.pending:
            begins.setdefault(merge.runs[0], []).append((merge.low, merge.high, rows))
            for number in merge.runs:
                cut.setdefault(number, []).append((merge.low, merge.high))
        runs: list[tuple[int, int, list[tuple[int, int]]]] = []
        for number, (low, high, rows) in enumerate(self.runs):
            runs += begins.get(number, [])
            for begin, end in [*sorted(cut.get(number, [])), (high, high)]:
                if low < begin:
                    runs.append((low, begin, [row for row in rows if low <= row[0] < begin]))
                low = end
        self.runs = runs
        self.pending = []

    def check(self) -> None:
        everything = [row for _, _, rows in self.runs for row in rows]
        assert sorted(number for _, number in everything) == list(range(self.rows))
        last: dict[int, int] = {}
        for place, number in everything:
            assert last.get(place, -1) < number
            last[place] = number
        assert all(low <= place < high for low, high, rows in self.runs for place, _ in rows)

    def deepest(self) -> int:
        """The most runs that lie over one place."""
        cuts = {low for low, _, _ in self.runs}
        return max(sum(low <= cut < high for low, high, _ in self.runs) for cut in cuts)


@st.composite
def batches(draw: st.DrawFn) -> list[list[int]]:
    count = draw(st.integers(1, 60))
    kind = draw(st.sampled_from(["spread", "narrow", "heavy"]))
    top = {"spread": PLACES - 1, "narrow": PLACES >> 20, "heavy": 3}[kind]
    places = st.lists(st.integers(0, top), min_size=0, max_size=draw(st.sampled_from([3, 30])))
    return [draw(places) for _ in range(count)]


@examples(20)
@given(batches(), st.integers(1, 2_000), st.integers(2, 5), st.integers(0, 3_000))
def test_merging_in_pieces_keeps_every_row_once_and_in_the_order_of_age(
    parts: list[list[int]], piece: int, fanout: int, budget: int
) -> None:
    store = Store(piece, fanout, budget)
    for part in parts:
        store.add(part)
        store.commit()
        store.check()


def test_runs_stay_few_rows_are_seldom_rewritten_and_the_debt_is_bounded() -> None:
    """400 equal batches: no batch merges more than 4 pieces, each of 4 batches, however much is stored."""
    spread = [PLACES // 64 * n + 5 for n in range(64)]
    store = Store(piece=4 * 64 * ROW, fanout=4, budget=6 * 64 * ROW)
    most = deepest = debt = 0
    for _ in range(400):
        before = store.rewritten
        store.add(spread)
        store.commit()
        most, deepest = max(most, store.rewritten - before), max(deepest, store.deepest())
        debt = max(debt, store.debt)
    store.check()
    assert most <= 16 * 64
    assert deepest <= 20
    assert store.rewritten <= 4 * store.rows
    assert debt <= 256 * 64 * ROW


def test_closed_runs_are_left_alone() -> None:
    long, short = Bounds(10, 90, 0, 100), Bounds(10, 90, 100, 110)

    def merged(*bounds: Bounds) -> list[tuple[int, ...]]:
        runs = [Extent(0, PLACES, part) for part in bounds]
        return [merge.runs for merge in plan_merges(runs, 0, reach=100).merges]

    assert merged(long, long, long, long) == []
    assert merged(long, short, short, short) == []
    assert merged(long, short, short, short, short) == [(1, 2, 3, 4)]


def test_runs_that_cover_enough_time_are_closed() -> None:
    long, short = Bounds(10, 99, min_time=0, max_time=100), Bounds(10, 99, min_time=100, max_time=110)

    def merged(runs: list[Bounds], reach: int) -> list[tuple[int, ...]]:
        extents = [Extent(0, PLACES, run) for run in runs]
        return [merge.runs for merge in plan_merges(extents, 10_000, reach=reach).merges]

    assert merged([long] * 4, 100) == []
    assert merged([long, short, short, short], 100) == []
    assert merged([long] + [short] * 4, 100) == [(1, 2, 3, 4)]
    assert merged([long] * 4, 101) == [(0, 1, 2, 3)]
