"""How long a user is willing to wait for a plan, as a deadline of this machine's clock.

Guarantees: this is the one place where planning meets a clock; the optimiser itself has none (`optimizer/deadline.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from weft.optimizer.deadline import Deadline
from weft.optimizer.space import Options

__all__ = ["deadline_of"]

# Seconds that planning may take, unless the user says otherwise.
USUAL = 5.0
# The same for users who ask for the best plan there is.
THOROUGH = 60.0


def deadline_of(options: Options, method: str = "auto", strategies: Iterable[str] = ()) -> Deadline:
    """Until when to look for better plans, if that begins now; ``strategies`` are those that single queries ask for."""
    best = method == "exact" or "exhaustive" in (options.strategy, *strategies)
    usual = THOROUGH if best else USUAL
    seconds = usual if options.planning_seconds is None else options.planning_seconds
    return Deadline.after(seconds, time.monotonic)
