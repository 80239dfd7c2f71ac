"""Random cases by the block, which must meet what they are there for.

Guarantees: blocks share no seed; a campaign fails if a case does, or if so few of its cases met something that is
wanted of a part of them that chance does not explain it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

from tests.shares import rare, seeds

__all__ = ["campaign"]


def campaign(
    check: Callable[[int, Counter[str]], None],
    block: int,
    count: int,
    variants: int,
    wanted: Mapping[str, float],
) -> None:
    """The seeds of a block, of which `make test` takes so many, each checked in so many variants."""
    met: Counter[str] = Counter()
    taken = seeds(count, block)
    for seed in taken:
        check(seed, met)
    cases = len(taken) * variants
    too_rare = rare(met, wanted, cases, variants)
    assert not too_rare, f"of {cases} cases too few met {too_rare}"
