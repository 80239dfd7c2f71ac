"""The streams and functions that queries can name.

Guarantees: no two streams and no two functions of one name, case aside, and no stream and query of one name; an
unknown name is answered with those that exist.
"""

from __future__ import annotations

from collections.abc import Mapping
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

        for name in (name.lower() for name, _ in self.queries):
            if name in names:
                raise CatalogError(f"a stream and a query are called {name!r}", hint="choose another name")

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

    @checked(CatalogError)
    def with_queries(self, queries: Mapping[str, Query]) -> Catalog:
        """The catalog with these queries, by name, and no others."""
        return replace(self, queries=tuple(queries.items()))

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
