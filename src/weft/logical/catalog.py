"""The streams and functions that queries can name.

Guarantees: no two streams and no two functions of one name, case aside, and no stream and query of one name; an
unknown name is answered with those that exist.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from copy import copy
from dataclasses import dataclass, replace
from textwrap import shorten

from weft.errors import CatalogError, nearest
from weft.logical.arguments import check_fields, checked
from weft.logical.expr.user_functions import UserFunction
from weft.logical.query.query import Query
from weft.logical.schema import Stream

__all__ = ["Catalog"]


@dataclass(frozen=True, slots=True)
class Catalog:
    """An immutable set of streams, the functions that users registered, and the queries that have a name."""

    streams: tuple[Stream, ...] = ()
    functions: tuple[UserFunction, ...] = ()
    queries: tuple[tuple[str, Query], ...] = ()

    def __repr__(self) -> str:
        names = [stream.name for stream in self.streams] + [function.name for function in self.functions]
        names += [name for name, _ in self.queries]
        return f"<Catalog {shorten(', '.join(names), 200, placeholder=' …')}>"

    def __post_init__(self) -> None:
        check_fields(self, CatalogError)
        names = [stream.name.lower() for stream in self.streams]
        for name in names:
            if names.count(name) > 1:
                raise CatalogError(f"there is already a stream {name!r}", hint="choose another name")
        functions = [function.name for function in self.functions]
        for name in functions:
            if functions.count(name) > 1:
                raise CatalogError(f"there is already a function {name!r}", hint="choose another name")
        _check_query_names((name for name, _ in self.queries), self.streams)

    @checked(CatalogError)
    def add(self, stream: Stream) -> Catalog:
        """The catalog with one stream more."""
        return replace(self, streams=(*self.streams, stream))

    @checked(CatalogError)
    def remove(self, name: str) -> Catalog:
        """The catalog without the stream of that name."""
        return replace(self, streams=tuple(stream for stream in self.streams if stream.name != name))

    def define(self, function: UserFunction) -> Catalog:
        """The catalog with one function more."""
        return replace(self, functions=(*self.functions, function))

    def with_queries(self, queries: Mapping[str, Query]) -> Catalog:
        """The catalog with these queries, by name, and no others.

        What is in this catalog and in each query was checked when these were made, and is not checked again: a session
        asks for this once for every query that it is given.
        """
        if not isinstance(queries, Mapping) or not all(
            isinstance(name, str) and isinstance(query, Query) for name, query in queries.items()
        ):
            raise CatalogError(
                "the queries of a catalog are no queries by name", hint="use a mapping of them"
            )
        _check_query_names(queries, self.streams)
        catalog = copy(self)
        object.__setattr__(catalog, "queries", tuple(queries.items()))
        return catalog

    @checked(CatalogError)
    def find_query(self, name: str) -> Query | None:
        """The query of that name, upper or lower case."""
        folded = name.lower()
        return next((query for known, query in self.queries if known.lower() == folded), None)

    @property
    def query_names(self) -> tuple[str, ...]:
        """The queries' names, sorted."""
        return tuple(sorted(name for name, _ in self.queries))

    @checked(CatalogError)
    def find(self, name: str) -> Stream | None:
        """The stream of that name, upper or lower case."""
        folded = name.lower()
        return next((stream for stream in self.streams if stream.name.lower() == folded), None)

    @checked(CatalogError)
    def stream(self, name: str) -> Stream:
        """The stream of that name; it must exist."""
        found = self.find(name)
        if found is None:
            raise CatalogError(f"there is no stream {name!r}", hint=nearest(name, self.names))
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The streams' names, sorted."""
        return tuple(sorted(stream.name for stream in self.streams))


def _check_query_names(names: Iterable[str], streams: Iterable[Stream]) -> None:
    taken = {stream.name.lower() for stream in streams}
    for name in names:
        if name.lower() in taken:
            raise CatalogError(
                f"a stream and a query are called {name.lower()!r}", hint="choose another name"
            )
