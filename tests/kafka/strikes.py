"""A broker that dies at chosen moments of a writer's transactions, and comes back."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from weft.connectors.kafka import sink as kafka_transactions
from weft.service.kafka_broker import Broker

__all__ = ["MOMENTS", "Strikes", "struck"]

_STEPS = (
    "init_transactions",
    "begin_transaction",
    "produce_batch",
    "flush",
    "send_offsets_to_transaction",
    "commit_transaction",
)
MOMENTS = tuple(f"{when} {step}" for step in _STEPS for when in ("before", "after"))


class Strikes:
    """Kills the broker at moments in turn, each at the n-th time that it comes; it is back a while later.

    A kill after a commit comes so soon that transactions are committed and not yet ended in their partitions.
    """

    def __init__(self, broker: Broker, plan: list[tuple[str, int]], chance: random.Random) -> None:
        self._broker, self._plan, self._chance, self.done = broker, list(plan), chance, list[str]()
        self._left = self._plan[0][1] if self._plan else 0
        self._thread: threading.Thread | None = None

    def at(self, moment: str) -> None:
        """Tell that a moment has come."""
        if not self._plan or self._plan[0][0] != moment or (self._thread and self._thread.is_alive()):
            return
        self._left -= 1
        if self._left <= 0:
            self.done.append(self._plan.pop(0)[0])
            self._left = self._plan[0][1] if self._plan else 0
            self._broker.kill()
            self._thread = threading.Thread(target=self._back, args=(self._chance.uniform(0, 0.5),))
            self._thread.start()

    def _back(self, pause: float) -> None:
        time.sleep(pause)
        self._broker.start()

    def end(self) -> None:
        """Wait until the broker is there again."""
        if self._thread is not None:
            self._thread.join()


def struck(monkeypatch: pytest.MonkeyPatch, strikes: Strikes) -> None:
    """Have producers of sinks tell what they do."""

    def told(step: str) -> Callable[..., Any]:
        def call(self: Any, *given: Any, **named: Any) -> Any:
            strikes.at(f"before {step}")
            found = getattr(confluent_kafka.Producer, step)(self, *given, **named)
            strikes.at(f"after {step}")
            return found

        return call

    producer = type("Producer", (confluent_kafka.Producer,), {step: told(step) for step in _STEPS})
    client = SimpleNamespace(**{**vars(confluent_kafka), "Producer": producer})
    monkeypatch.setattr(kafka_transactions, "load_client", lambda *_: client)
