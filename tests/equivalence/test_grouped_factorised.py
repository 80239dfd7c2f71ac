"""Aggregates over joins that are never made: the same as DuckDB gives, and made of the tuples alone."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest

import weft
from tests.equivalence.grouped import BEGINNING, random_session, random_tables, rounded
from tests.equivalence.test_derived import split
from tests.equivalence.test_grouped import last_per_key
from tests.shares import quick, seeds
from weft.kernels.groups.partials import PartialGroups
from weft.runtime.hop import interpret, search
from weft.runtime.hop.groups import factorised
from weft.testing import LocalRun, reference_join

_ON_ONE_KEY = (
    ("ab", "a [RANGE 5 SECONDS], b [RANGE 8 SECONDS] WHERE a.k = b.k"),
    ("abc", "a [RANGE 4 SECONDS], b [RANGE 4 SECONDS], c [RANGE 6 SECONDS] WHERE a.k = b.k AND b.k = c.k"),
    ("abc", "a [RANGE 4 SECONDS], b [RANGE 3 SECONDS], c [RANGE 4 SECONDS] WHERE a.x = b.x AND a.x = c.x"),
)
_JOINS = (
    *_ON_ONE_KEY,
    ("ab", "a [RANGE 3 SECONDS], b [RANGE 8 SECONDS] WHERE a.k = b.k AND a.x = b.x"),
)
_AGGREGATES = (
    *("count(*)", "count({v}.s)", "sum({v}.x)", "sum({v}.d)", "sum({v}.f)", "avg({v}.x)", "avg({v}.d)"),
    *(
        "min({v}.s)",
        "max({v}.f)",
        "max({v}.d)",
        "count(DISTINCT {v}.s)",
        "stddev({v}.x)",
        "count_if({v}.x > 2)",
    ),
    *("sum({v}.x) FILTER (WHERE {v}.f > 0)", "approx_count_distinct({v}.x)", "var_pop({v}.x)"),
)


def _text(rng: random.Random, apart: bool = False) -> str:
    """Groups by columns of one input, or by a key of the join, and aggregates over any of the inputs.

    ``apart`` is for a query whose join need not be made: on one key, whose hashes say what is equal, with aggregates
    over the input that has the groups.
    """
    names, join = rng.choice(_ON_ONE_KEY if apart else _JOINS)
    key = "k" if "a.k" in join else "x"
    one = rng.choice(names)
    keys = rng.choice(([f"{rng.choice(names)}.{key}"], [f"{one}.{key}", f"{one}.s"], [f"{one}.x % 3"], []))
    window = rng.choice(("", f"window({one}.ts, '10 seconds', '4 seconds')"))
    shown = [f"{text} AS k{place}" for place, text in enumerate(keys)]
    shown += ["window.start AS w0"] if window else []
    for place, text in enumerate(rng.sample(_AGGREGATES, rng.randint(1, 4))):
        value = one if apart or window or rng.random() < 0.5 else rng.choice(names)
        shown.append(f"{text.format(v=value)} AS a{place}")
    by = [*keys, *([window] if window else [])]
    return f"SELECT {', '.join(shown)} FROM {join}" + (f" GROUP BY {', '.join(by)}" if by else "")


@pytest.mark.parametrize("seed", quick(seeds(60), 12))
def test_groups_of_joins_that_are_not_made(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tuple would count as often as another, or the groups of one input would miss what others add."""
    rng, taken = random.Random(seed), list[bool]()

    def watched(*args: Any) -> bool:
        taken.append(factorised.gather_factorised(*args))
        return taken[-1]

    monkeypatch.setattr(interpret, "gather_factorised", watched)
    monkeypatch.setattr(search, "FEW", 0)
    monkeypatch.setattr(factorised, "_pays", lambda *_: rng.random() < 0.9)
    tables, texts = random_tables(rng, 25), [_text(rng, apart=not number) for number in range(3)]
    for text in texts:
        mode = rng.choice(("append", "update"))
        session = random_session(rng, q=(text, mode))
        run = LocalRun(session)
        for batch in split(rng, tables, rng.randint(1, 5)):
            run.batch(batch)
        run.end()
        expected = rounded(reference_join(session.parse(text), tables))
        results = run.results("q")
        assert rounded(last_per_key(results) if mode == "update" else results) == expected, text
    assert any(taken), texts


@pytest.mark.parametrize("more", ["", "AND a.k = c.k"])
def test_a_heavy_key_is_counted_without_its_pairs(more: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key with 20,000 partners on each side would make 400 million rows, to be counted and thrown away."""
    count, lifted = 20_000 if not more else 2_000, list[int]()
    lift = PartialGroups.lift

    def watched(self: PartialGroups, made: pa.RecordBatch, *args: Any, **named: Any) -> pa.RecordBatch:
        lifted.append(made.num_rows)
        return lift(self, made, *args, **named)

    monkeypatch.setattr(PartialGroups, "lift", watched)
    session = weft.Session(options=weft.Options(partitions=1), adapt="off")
    names = "abc" if more else "ab"
    for name in names:
        session.stream(name, "k long, x long, ts timestamp", event_time="ts")
    froms = ", ".join(f"{name} [RANGE 9 SECONDS]" for name in names)
    text = (
        "SELECT a.k, count(*) AS n, sum(a.x) AS sa, sum(b.x) AS sb, max(b.x) AS mb "
        f"FROM {froms} WHERE a.k = b.k {more} GROUP BY a.k"
    )
    session.query(text, name="q", sink=weft.to_memory(), mode="update")
    run = LocalRun(session)
    values = pa.array(range(count), pa.int64())
    table = pa.table(
        {
            "k": pa.array([7] * count, pa.int64()),
            "x": values,
            "ts": pa.array([BEGINNING] * count, pa.timestamp("us", "UTC")),
        }
    )
    run.batch(dict.fromkeys(names, table))
    total = count ** len(names)
    each = sum(range(count)) * count ** (len(names) - 1)
    assert run.results("q").to_pylist() == [{"k": 7, "n": total, "sa": each, "sb": each, "mb": count - 1}]
    assert 0 < sum(lifted) <= count * len(names)


@pytest.mark.parametrize("aggregate", ["sum(a.x)", "stddev(a.x)"])
def test_a_group_of_more_floats_than_can_be_summed_is_an_error(aggregate: str) -> None:
    """Digits would overflow, and the sum would be wrong; before joins stayed unmade nobody had so many rows."""
    session = weft.Session(options=weft.Options(partitions=1), adapt="off")
    for name in "abc":
        session.stream(name, "k long, x double, ts timestamp", event_time="ts")
    froms = "a [RANGE 9 SECONDS], b [RANGE 9 SECONDS], c [RANGE 9 SECONDS] WHERE a.k = b.k AND a.k = c.k"
    text = f"SELECT a.k, {aggregate} AS v FROM {froms} GROUP BY a.k"
    session.query(text, name="q", sink=weft.to_memory(), mode="update")
    run, count = LocalRun(session), 3_000
    table = pa.table(
        {
            "k": pa.array([7] * count, pa.int64()),
            "x": pa.array([0.5] * count),
            "ts": pa.array([BEGINNING] * count, pa.timestamp("us", "UTC")),
        }
    )
    with pytest.raises(weft.WeftError, match="floats, of which a group may have"):
        run.batch(dict.fromkeys("abc", table))
