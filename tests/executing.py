"""How batches of random workloads on Spark run: what `--execution` says."""

from __future__ import annotations

__all__ = ["current", "use"]

_current = "auto"


def use(execution: str) -> None:
    """Run batches this way from now on; for conftest.py, before any test module is imported."""
    global _current
    _current = execution


def current(otherwise: str = "auto") -> str:
    """How batches run; ``otherwise`` where nothing was said."""
    return otherwise if _current == "auto" else _current
