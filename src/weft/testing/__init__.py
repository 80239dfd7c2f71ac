"""Tools for tests and benchmarks, shipped because users test their queries too (`docs/testing.md`).

Guarantees: everything random takes a seed and gives the same in every run; `reference_join` and `is_ordered` share no
code with what they check.
"""

from weft.testing.cases import SHAPES, Case, chain, clique, random_case, star
from weft.testing.ordered import is_ordered
from weft.testing.reference import BATCH, FROM, POSITION, TIME, UNTIL, reference_join
from weft.testing.run import LocalRun

__all__ = [
    "BATCH",
    "FROM",
    "POSITION",
    "SHAPES",
    "TIME",
    "UNTIL",
    "Case",
    "LocalRun",
    "chain",
    "clique",
    "is_ordered",
    "random_case",
    "reference_join",
    "star",
]
