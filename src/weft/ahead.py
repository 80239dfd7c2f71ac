"""What a run will need of Weft, loaded while Java starts.

Guarantees: nothing of Spark's is loaded, for the caller loads that at the same time. When the caller goes on, no import
is under way.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from threading import Thread

__all__ = ["loading_ahead"]

_MODULES = (
    "weft.runtime.task.worker",
    "weft.running",
)  # kernels and their compiler; planners, their solver, the loop


@contextmanager
def loading_ahead() -> Iterator[None]:
    """Load modules in a thread while the caller waits for something else."""
    thread = Thread(target=_load, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _load() -> None:
    with suppress(Exception):  # whoever imports them next will be told
        for name in _MODULES:
            import_module(name)
