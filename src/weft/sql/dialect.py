"""Spark's SQL as sqlglot reads it, with nothing rewritten.

Guarantees: a function call stays a name with arguments, because `weft.logical.expr.functions` decides what there is;
a comma in FROM can be told from JOIN; nothing is read as an opaque command; every node knows its last word's
position.
"""

from __future__ import annotations

from typing import ClassVar, TypeVar

from sqlglot import Token, exp
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

__all__ = ["WeftSql"]

Node = TypeVar("Node", bound=exp.Expr)

# Functions that are written with keywords between their arguments, and so cannot be read as plain calls.
_KEYWORD_CALLS = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "OVERLAY")


class WeftParser(SparkParser):
    """Spark's parser without its functions."""

    FUNCTIONS: ClassVar = {}
    FUNCTION_PARSERS: ClassVar = {name: SparkParser.FUNCTION_PARSERS[name] for name in _KEYWORD_CALLS}
    JOINS_HAVE_EQUAL_PRECEDENCE = False
    NO_PAREN_IF_COMMANDS = False

    def _parse_subquery(self, this: exp.Expr | None, parse_alias: bool = True) -> exp.Subquery | None:
        """Keep where the parenthesis closes, which a window may follow."""
        closing = self._prev
        found = super()._parse_subquery(this, parse_alias)
        if found is not None and closing is not None:
            found.meta["closing"] = closing.end + 1
        return found

    def expression(
        self, instance: Node, token: Token | None = None, comments: list[str] | None = None
    ) -> Node:
        """Keep the position of the last token read, where the parser itself keeps none."""
        if token is None and not instance.meta.get("end"):
            token = self._prev
        return super().expression(instance, token, comments)


class WeftSql(Spark):
    """The dialect that `weft.sql.parse` reads."""

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokenizer, in which no word makes the rest of the text an opaque command."""

        COMMANDS: ClassVar = set()

    Parser = WeftParser

    def to_json_path(self, path: exp.Expr | None) -> exp.Expr | None:
        """Leave paths into JSON alone: they are refused, and reading them could log."""
        return path
