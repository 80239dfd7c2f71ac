"""OpenLineage: what every query of a service reads and writes, column by column, told to a catalogue or a file.

Guarantees: an event is told when a query begins, now and then while it runs, and when it stops or fails; each is a
`RunEvent` of OpenLineage 2.0 as plain JSON, so no client library is needed. Events go out from a thread of their own:
neither batches nor requests wait for whoever takes them, and one that cannot be told is dropped with a warning, once
until telling works again.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
import urllib.error
import urllib.request
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import weft
from weft.errors import ConfigError, WeftError
from weft.service.hub.hub import SessionHub
from weft.service.hub.values import ColumnSource, DatasetInfo, QueryInfo, QueryLineage

__all__ = ["LineageEvents", "LineageTeller", "lineage_teller"]

_LOG = logging.getLogger("weft")

PRODUCER = f"urn:weft:{weft.__version__}"
SPEC = "https://openlineage.io/spec"
EVENT = f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
EVERY = 1.0  # seconds between two looks
AGAIN = 60.0  # seconds after which a query that runs is told of again
PATIENCE = 5.0  # seconds that telling may take
KEY = "OPENLINEAGE_API_KEY"

Event = dict[str, Any]
Tell = Callable[[Event], None]


@dataclass
class _Run:
    """A query that was told of: its run, and when it was told last."""

    id: str
    first_batch: int | None
    told: float


class LineageEvents:
    """Makes events of what is seen of queries; ``namespace`` is that of jobs."""

    def __init__(self, hub: SessionHub, namespace: str, clock: Callable[[], float] = time.time) -> None:
        self._hub, self._namespace, self._clock = hub, namespace, clock
        self._runs: dict[str, _Run] = {}

    def look(self) -> list[Event]:
        """The events of what has happened since the last look."""
        now, events = self._clock(), list[Event]()
        failure = self._hub.health().error
        for query in self._hub.queries():
            run = self._runs.get(query.name)
            if query.status in ("running", "suspended"):
                if run is None or run.first_batch != query.first_batch:
                    run = self._runs[query.name] = _Run(str(uuid.uuid4()), query.first_batch, now)
                    events.append(self._event("START", query, run, now))
                elif now - run.told >= AGAIN:
                    run.told = now
                    events.append(self._event("RUNNING", query, run, now))
                if failure is not None:
                    events.append(self._event("FAIL", query, self._runs.pop(query.name), now, failure))
            elif query.status == "stopped" and run is not None:
                why = query.reason if query.reason not in ("", "stopped") else None
                kind = "COMPLETE" if why is None else "FAIL"
                events.append(self._event(kind, query, self._runs.pop(query.name), now, why))
        return events

    def end(self) -> list[Event]:
        """The events of a service that stops: its queries go on when it is started again."""
        now, running = self._clock(), {query.name: query for query in self._hub.queries()}
        runs, self._runs = self._runs, {}
        return [
            self._event("ABORT", running[name], run, now) for name, run in runs.items() if name in running
        ]

    def _event(self, kind: str, query: QueryInfo, run: _Run, now: float, error: str | None = None) -> Event:
        lineage = self._hub.lineage(query.name)
        facets = {} if error is None else {"errorMessage": _error_facet(error)}
        return {
            "eventType": kind,
            "eventTime": datetime.fromtimestamp(now, timezone.utc).isoformat(),
            "producer": PRODUCER,
            "schemaURL": EVENT,
            "run": {"runId": run.id, "facets": facets},
            "job": {"namespace": self._namespace, "name": query.name, "facets": _job_facets(lineage)},
            "inputs": [_dataset(dataset) for dataset in lineage.inputs],
            "outputs": [_output(lineage)],
        }


def _facet(version: str, name: str, **content: Any) -> dict[str, Any]:
    url = f"{SPEC}/facets/{version}/{name}.json#/$defs/{name}"
    return {"_producer": PRODUCER, "_schemaURL": url, **content}


def _error_facet(message: str) -> dict[str, Any]:
    return _facet("1-0-1", "ErrorMessageRunFacet", message=message, programmingLanguage="PYTHON")


def _job_facets(lineage: QueryLineage) -> dict[str, Any]:
    return {
        "sql": _facet("1-1-0", "SQLJobFacet", query=lineage.sql, dialect="spark"),
        "jobType": _facet(
            "2-0-4", "JobTypeJobFacet", processingType="STREAMING", integration="WEFT", jobType="QUERY"
        ),
    }


def _dataset(dataset: DatasetInfo) -> dict[str, Any]:
    columns = [{"name": column.name, "type": column.type} for column in dataset.columns]
    facets = {"schema": _facet("1-2-0", "SchemaDatasetFacet", fields=columns)}
    return {"namespace": dataset.namespace, "name": dataset.name, "facets": facets}


def _output(lineage: QueryLineage) -> dict[str, Any]:
    fields = {
        name: {"inputFields": [_field(source) for source in sources]}
        for name, sources in lineage.columns.items()
    }
    rows = [_field(source) for source in lineage.rows]
    output = _dataset(lineage.output)
    output["facets"]["columnLineage"] = _facet(
        "1-2-0", "ColumnLineageDatasetFacet", fields=fields, dataset=rows
    )
    return output


def _field(source: ColumnSource) -> dict[str, Any]:
    kind = "DIRECT" if source.how in ("IDENTITY", "TRANSFORMATION") else "INDIRECT"
    how = {"type": kind, "subtype": source.how, "description": "", "masking": False}
    return {
        "namespace": source.namespace,
        "name": source.name,
        "field": source.field,
        "transformations": [how],
    }


def teller_of(place: str, root: Path) -> Tell:
    """How events are told to a place: an http:// address to post them to, or a file to which lines are added."""
    if place.startswith(("http://", "https://")):
        return lambda event: _post(place, event)
    file = root / place.removeprefix("file:")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.open("a").close()
    except OSError as error:
        raise ConfigError(f"cannot write lineage to {file}: {error.strerror}") from None

    def add(event: Event) -> None:
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(event, ensure_ascii=False) + "\n")

    return add


def _post(url: str, event: Event) -> None:
    headers = {"Content-Type": "application/json"}
    if key := os.environ.get(KEY):
        headers["Authorization"] = f"Bearer {key}"
    request = urllib.request.Request(url, json.dumps(event).encode(), headers, method="POST")
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        answer.read()


class LineageTeller:
    """Looks again and again in a thread, and tells what has happened."""

    def __init__(self, events: LineageEvents, tell: Tell, every: float = EVERY) -> None:
        self._events, self._tell, self._every = events, tell, every
        self._stop, self._is_lost = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="weft-lineage", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self._look(self._events.look)

    def _look(self, look: Callable[[], Sequence[Event]]) -> None:
        try:
            for event in look():
                self._tell(event)
            self._is_lost = False
        except (OSError, WeftError, urllib.error.URLError) as error:
            if not self._is_lost:
                _LOG.warning("lineage cannot be told, and events are dropped: %s", error)
            self._is_lost = True

    def close(self) -> None:
        """Tell the rest, and no more."""
        self._stop.set()
        self._thread.join(PATIENCE)
        self._look(self._events.look)
        self._look(self._events.end)


def lineage_teller(hub: SessionHub, place: str, root: Path) -> LineageTeller:
    """Tell the lineage of a service's queries to a place; jobs have the namespace of its checkpoint."""
    namespace = f"weft:{hub.pipeline.checkpoint or hub.pipeline.file}"
    return LineageTeller(LineageEvents(hub, namespace), teller_of(place, root))
