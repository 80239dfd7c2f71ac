"""One figure of the statistics, with where it comes from, how much it rests on and how old it is (design, D11).

Guarantees: plain values. The sources, the most trusted first, are "observed" by a running probe, "sampled" from the
streams, "given" by the user, and "default".
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SOURCES", "Figure"]

SOURCES = ("observed", "sampled", "given", "default")


@dataclass(frozen=True, slots=True)
class Figure:
    """A value; ``evidence`` is how many tuples or pairs it rests on, where older ones weigh less.

    ``batch`` is the last batch that contributed to it, and ``moment`` when that began, in seconds since 1970; both are
    None if no batch did.
    """

    value: float
    source: str = "default"
    evidence: float = 0.0
    batch: int | None = None
    moment: float | None = None
