"""The sinks of the queries, and what each of them can do.

Guarantees: what a sink can do is found out once, when its query is added, and not in every batch.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from weft.ports.sink import CountingSink, OrderedPartSink, OrderedSink, PartSink, Sink
from weft.runtime.output.sorted_results import SortedQuery

__all__ = ["QueryOutput", "QuerySinks"]


@dataclass(frozen=True, slots=True)
class QueryOutput:
    """The sink of a query; the other fields are the same sink if it is of that kind, else None.

    If results are ``handed_over``, they come to the driver, and tasks do not write to the sink, though they could.
    Those of a query that is ``sorted`` are, since they are sorted there when all have come.
    """

    sink: Sink
    counting: CountingSink | None = None
    parts: PartSink | None = None
    ordered: OrderedSink | None = None
    in_order: OrderedPartSink | None = None
    handed_over: bool = False
    sorted: SortedQuery | None = None

    @classmethod
    def to(cls, sink: Sink) -> QueryOutput:
        """Find out what a sink can do."""
        return cls(
            sink,
            sink if isinstance(sink, CountingSink) else None,
            sink if isinstance(sink, PartSink) else None,
            sink if isinstance(sink, OrderedSink) else None,
            sink if isinstance(sink, OrderedPartSink) and sink.keeps_order else None,
        )

    def by_driver(self) -> QueryOutput:
        """The same sink, for results that come to the driver."""
        return replace(self, parts=None, in_order=None, handed_over=True)

    def sorting(self, query: SortedQuery) -> QueryOutput:
        """The same sink, for results that are sorted before it gets them."""
        return replace(self.by_driver(), counting=None, sorted=query)


class QuerySinks(Mapping[str, Sink]):
    """The sink of every query by the query's name; `output` says what it can do."""

    def __init__(self) -> None:
        self._outputs: dict[str, QueryOutput] = {}

    def add(self, name: str, sink: Sink, query: SortedQuery | None = None) -> None:
        """Send the results of a query to a sink, in place of the one it had; sorted, if they are to be."""
        output = QueryOutput.to(sink)
        self._outputs[name] = output if query is None else output.sorting(query)

    def output(self, name: str) -> QueryOutput:
        """The sink of a query with what it can do."""
        return self._outputs[name]

    def outputs(self, names: Iterable[str], suspended: Container[str]) -> dict[str, QueryOutput]:
        """The sinks of some queries; the results of those that are suspended come to the driver."""
        return {
            name: self._outputs[name].by_driver() if name in suspended else self._outputs[name]
            for name in names
        }

    def writable(self) -> Iterator[tuple[str, PartSink]]:
        """The sinks that tasks can write to, by query."""
        for name, output in list(self._outputs.items()):
            if output.parts is not None:
                yield name, output.parts

    def __getitem__(self, name: str) -> Sink:
        return self._outputs[name].sink

    def __iter__(self) -> Iterator[str]:
        return iter(list(self._outputs))  # another thread may add queries meanwhile

    def __len__(self) -> int:
        return len(self._outputs)
