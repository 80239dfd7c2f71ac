"""Random cases by the block, which must meet what they are there for.

Guarantees: blocks share no seed; a campaign fails if a case does, or if too few of its cases met something that is
wanted of a part of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping

__all__ = ["campaign"]


def campaign(
    check: Callable[[int, Counter[str]], None],
    block: int,
    seeds: int,
    variants: int,
    wanted: Mapping[str, float],
) -> None:
    """So many seeds of a block, each checked in so many variants."""
    met: Counter[str] = Counter()
    for seed in range(block * seeds, (block + 1) * seeds):
        check(seed, met)
    cases = seeds * variants
    rare = {what: met[what] for what, part in wanted.items() if met[what] < int(part * cases)}
    assert not rare, f"of {cases} cases too few met {rare}"
