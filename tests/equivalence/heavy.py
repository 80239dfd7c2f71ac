"""Plans with random heavy values, whatever the optimiser thinks of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

from weft.logical.expr.expression import Literal, to_sql
from weft.plan.join_plan import JoinPlan, Layout, Operator, Store
from weft.stats.skew import key_column

NUMBERS: Sequence[int] = (0, 1, 2, 2, 99)  # the last one never comes
TEXTS: Sequence[str] = ("a", "A", "b", "", "never")


def scatter(plan: JoinPlan, seed: int) -> JoinPlan:
    """The plan with heavy values in most stores that can have some; stores of one key differ in them now and then."""
    rng = random.Random(seed)
    common = rng.random() < 0.5
    drawn = {kind: rng.sample(values, rng.randint(1, 3)) for kind, values in _KINDS.items()}
    operators = []
    for operator in plan.operators:
        stores = tuple(_scattered(rng, store, drawn if common else {}) for store in operator.stores)
        operators.append(Operator(stores, operator.orders))
    return replace(plan, operators=tuple(operators), cost=None)


_KINDS: dict[str, Sequence[int | str]] = {"long": NUMBERS, "int": NUMBERS, "string": TEXTS}


def _scattered(rng: random.Random, store: Store, drawn: dict[str, list[int | str]]) -> Store:
    by = store.layout.by
    if by is None or key_column(by) is None or by.type.name not in _KINDS or rng.random() < 0.2:
        return store
    values = drawn.get(by.type.name) or rng.sample(_KINDS[by.type.name], rng.randint(1, 3))
    return Store(store.aliases, with_heavy(store.layout, values))


def with_heavy(layout: Layout, values: Sequence[int | str]) -> Layout:
    """A layout that scatters these values."""
    assert layout.by is not None
    literals = {Literal(value, layout.by.type) for value in values}
    return replace(layout, heavy=tuple(sorted(literals, key=to_sql)))
