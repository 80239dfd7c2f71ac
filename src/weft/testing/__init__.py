"""Tools for tests, shipped because users test their queries too (`docs/testing.md`).

Guarantees: a run gives the same every time; `reference_join` and `is_ordered` share no code with what they check.
"""

from weft.testing.ordered import is_ordered
from weft.testing.reference import BATCH, FROM, POSITION, TIME, UNTIL, reference_join
from weft.testing.run import LocalRun

__all__ = [
    "BATCH",
    "FROM",
    "POSITION",
    "TIME",
    "UNTIL",
    "LocalRun",
    "is_ordered",
    "reference_join",
]
