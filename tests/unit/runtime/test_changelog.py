"""Queries that come and go: none may be lost, none may begin that was stopped before."""

from __future__ import annotations

import json
import threading

from tests.unit.plan.workloads import PAIR, query
from weft.logical.codec import decode, encode
from weft.runtime.queries.changelog import Changelog
from weft.runtime.queries.request import QueryRequest

ASKED = QueryRequest(query(PAIR))


def test_what_is_asked_for_is_taken_once() -> None:
    """With the next batch, together."""
    log = Changelog()
    assert not log.take()
    log.begin("a", ASKED)
    log.stop("old", "stopped")
    assert log.waiting() == ("a",)
    found = log.take()
    assert (dict(found.begin), dict(found.stop)) == ({"a": ASKED}, {"old": "stopped"})
    assert not log.take()
    assert log.waiting() == ()


def test_a_query_that_has_not_begun_never_does() -> None:
    """It is among those to stop, so that it is known to have been, and does not wait for ever."""
    log = Changelog()
    log.begin("a", ASKED)
    log.stop("a", "stopped")
    changes = log.take()
    assert (dict(changes.begin), dict(changes.stop)) == ({}, {"a": "stopped"})


def test_a_query_can_be_stopped_while_its_first_batch_is_planned() -> None:
    """It is asked for no longer and does not run yet; a stop in between was lost, and the query ran on for ever."""
    log = Changelog()
    log.begin("a", ASKED)
    log.take()
    assert log.request("a") == ASKED
    log.stop("a", "stopped")
    assert log.take().stop == {"a": "stopped"}
    assert log.request("a") is None


def test_the_first_reason_stays() -> None:
    """A query that failed and is then stopped by hand has failed."""
    log = Changelog()
    log.stop("a", "failed: why")
    log.stop("a", "stopped")
    assert log.take().stop == {"a": "failed: why"}


def test_many_threads_lose_nothing() -> None:
    """A server adds queries from its own."""
    log = Changelog()
    taken: list[str] = []

    def ask(worker: int) -> None:
        for number in range(50):
            log.begin(f"{worker}-{number}", ASKED)

    threads = [threading.Thread(target=ask, args=(worker,)) for worker in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        taken += log.take().begin
    for thread in threads:
        thread.join()
    taken += log.take().begin
    assert len(taken) == len(set(taken)) == 200


def test_a_request_survives_json() -> None:
    """It runs again after a crash."""
    request = QueryRequest(query(PAIR), (("v", "x"), ("w", "y")), "flat", True, {"kind": "memory"})
    assert decode(QueryRequest, json.loads(json.dumps(encode(request)))) == request
