"""How many random cases the tests take, and which: what `--scale` and `--seed` say.

Guarantees: at scale 1 and seed 0 (`make test`), the cases are the same every time. Every random test takes more of them
at a larger scale and others at another seed, so `make campaign` meets what the share of `make test` leaves out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import sqrt
from typing import Any

import pytest
from hypothesis import settings

__all__ = ["Share", "current", "examples", "numbers", "quick", "rare", "seeds", "share_of", "use"]

_APART = 1_000_000  # cases of one seed, before those of the next begin
MANY = 250  # cases, of which chance explains little


@dataclass(frozen=True, slots=True)
class Share:
    """So many times the cases of `make test`, beginning with those of a seed.

    >>> Share(2.0, seed=7).seeds(3, block=1)
    range(7000006, 7000012)
    """

    scale: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        if not self.scale > 0 or self.seed < 0:
            raise ValueError(f"the scale must be above 0 and the seed not below it: {self}")

    def of(self, count: int, least: int = 1) -> int:
        """How many cases to take where `make test` takes ``count``."""
        return max(least, round(self.scale * count))

    def seeds(self, count: int, block: int = 0, least: int = 1) -> range:
        """The seeds of a block of cases, of which `make test` takes ``count``; blocks have none in common."""
        taken = self.of(count, least)
        first = self.seed * _APART + block * taken
        return range(first, first + taken)


_current = Share()


def use(share: Share) -> None:
    """Take this share from now on; for conftest.py, before any test module is imported."""
    global _current
    _current = share


def current() -> Share:
    """The share that is taken."""
    return _current


def share_of(count: int, least: int = 1) -> int:
    """How many cases to take where `make test` takes ``count``."""
    return _current.of(count, least)


def seeds(count: int, block: int = 0, least: int = 1) -> range:
    """The seeds of a block of cases, of which `make test` takes ``count``; blocks have none in common."""
    return _current.seeds(count, block, least)


def numbers(count: int, block: int = 0) -> range:
    """The seeds of a block of ``count`` cases, whatever the scale: for tests that take more blocks at a larger one."""
    first = _current.seed * _APART + block * count
    return range(first, first + count)


def examples(count: int) -> settings:
    """A decorator for a Hypothesis test of which `make test` tries ``count`` examples."""
    return settings(max_examples=_current.of(count))


def quick(cases: Iterable[Any], count: int = 1) -> list[Any]:
    """Cases for `parametrize`, of which `make test` takes the first ``count``, and `make ci` the others."""
    return [
        pytest.param(case, marks=() if place < count else pytest.mark.ci) for place, case in enumerate(cases)
    ]


def rare(met: Counter[str], wanted: Mapping[str, float], cases: int, alike: int = 1) -> dict[str, int]:
    """What too few of so many cases met, though ``wanted`` says of which part it is to be expected at least.

    Of many cases at least that part must have met it. Of few, chance is allowed for: what is met three standard
    deviations less often is not rare yet. Cases come in groups of ``alike`` that meet the same (variants of one seed),
    which makes chance larger.

    >>> rare(Counter(joins=90, gaps=9), {"joins": 0.5, "gaps": 0.2}, 200)
    {'gaps': 9}
    >>> rare(Counter(joins=190, gaps=90), {"joins": 0.5, "gaps": 0.2}, 400)
    {'joins': 190}
    """
    if cases >= MANY:
        return {what: met[what] for what, part in wanted.items() if met[what] < int(part * cases)}
    floors = {
        what: part * cases - 3 * sqrt(alike * cases * part * (1 - part)) for what, part in wanted.items()
    }
    return {what: met[what] for what, floor in floors.items() if met[what] < floor}
