"""What became of the plan while queries ran: every change, why it was made, what it promised and what it brought.

Guarantees: plain data. What was observed of a change is filled in when an epoch has passed since.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["PlanChange", "history_text"]


@dataclass(frozen=True, slots=True)
class PlanChange:
    """A change of the plan, which took effect with batch ``batch``.

    ``way`` is how: "at once", "eager", "side by side" (stores begin to be filled), "filled" (they answer from now on)
    or "given up". If only tasks changed, there are so many ``tasks`` since, and ``way`` is "scaled up", "scaled down",
    "scaled out", "scaled in" or "moved partitions". ``what`` names the probe orders and stores that changed, and
    ``cause`` is why a plan was looked for. ``gain`` is the part of the work that the plan was expected to save,
    ``seconds`` and ``bytes`` are what the migration was expected to take and to lay out anew. ``observed`` is the part
    of the work per row that it really saved; None until that is known.
    """

    batch: int
    way: str
    cause: str
    reason: str
    what: str = ""
    gain: float = 0.0
    seconds: float = 0.0
    bytes: int = 0
    observed: float | None = None
    tasks: int | None = None

    def __str__(self) -> str:
        seen = "" if self.observed is None else f"; observed: {self.observed:+.0%}"
        what = f" · {self.what}" if self.what else ""
        return f"batch {self.batch}: {self.way} · {self.cause} · {self.reason}{seen}{what}"


def history_text(changes: tuple[PlanChange, ...], most: int = 5) -> str:
    """The last changes as lines; empty if there were none."""
    if not changes:
        return ""
    hidden = len(changes) - most
    lines = [f"Plan changes{f' (the last {most} of {len(changes)})' if hidden > 0 else ''}"]
    return "\n".join([*lines, *(f"  {change}" for change in changes[-most:])]) + "\n"
