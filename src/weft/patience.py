"""How long a user is willing to wait for a plan, as a deadline of this machine's clock.

Guarantees: the one place where planning meets a clock; the optimiser itself has none (`optimizer/deadline.py`).
"""

from __future__ import annotations

import time

from weft.optimizer.deadline import Deadline
from weft.optimizer.space import Options

__all__ = ["deadline_of"]

# Seconds, unless the user says otherwise.
USUAL = 5.0
# Of those who ask for the best plan there is.
THOROUGH = 60.0


def deadline_of(options: Options, method: str = "auto") -> Deadline:
    """Until when to look for better plans, if that begins now."""
    best = method == "exact" or options.strategy == "exhaustive"
    usual = THOROUGH if best else USUAL
    seconds = usual if options.planning_seconds is None else options.planning_seconds
    return Deadline.after(seconds, time.monotonic)
