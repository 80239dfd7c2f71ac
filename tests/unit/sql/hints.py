"""The hints of `weft.sql` and `weft.logical` that suggest SQL, each with what it is to be tried on.

Guarantees: `suggesting` finds them in the sources, so that a new one without an entry in `REPLACED` or `PLAIN` is seen.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import weft.logical
import weft.sql

# Hint: the expression that gets it, and what the hint says to write; over the columns of `test_hints.py`.
REPLACED: dict[str, tuple[tuple[str, str], ...]] = {
    "a backslash escapes % and _: write x LIKE '10\\%'": (("s LIKE '10!%' ESCAPE '!'", "s LIKE '10\\%'"),),
    "write || between them": (("'a' 'b'", "'a' || 'b'"),),
    "write CAST": (("TRY_CAST(s AS INT)", "CAST(s AS INT)"),),
    "with n months, of which a year has 12 (negative ones to subtract), write add_months(x, n) of a date, and "
    "add_months(x, n) + (x - CAST(x AS DATE)) of a timestamp": (
        ("t - INTERVAL '1' MONTH", "add_months(t, -1) + (t - CAST(t AS DATE))"),
        ("t + INTERVAL '2' YEAR", "add_months(t, 24) + (t - CAST(t AS DATE))"),
        ("d - INTERVAL '1' MONTH", "add_months(d, -1)"),
    ),
    "multiply: x * INTERVAL '1' SECOND": (("t + INTERVAL n SECOND", "t + n * INTERVAL '1' SECOND"),),
}

# Hints that name SQL and suggest no other way to say the same; what they say is tested where they are raised.
PLAIN = frozenset(
    line.strip()
    for line in (Path(__file__).parent / "plain_hints.txt").read_text(encoding="utf-8").splitlines()
    if line.strip()
)

_SQL = re.compile(r"\bwrite\b|\b[A-Z]{2,}\b|\b[a-z_]+\([a-z]")


def suggesting() -> Iterator[str]:
    """All hints of the two packages that name SQL; {} stands for what is filled in."""
    for package in (weft.sql, weft.logical):
        for path in sorted(Path(next(iter(package.__path__))).rglob("*.py")):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            yield from (hint for hint in _hints(tree) if _SQL.search(hint))


def _hints(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.keyword | ast.Assign | ast.AnnAssign) and _is_hint(node):
            yield from _texts(node.value)
        elif isinstance(node, ast.Call) and _called(node) in ("error", "mismatch") and len(node.args) > 1:
            yield from _texts(node.args[-1])
        elif isinstance(node, ast.FunctionDef) and node.name.startswith("_instead"):
            yield from (
                text for one in ast.walk(node) if isinstance(one, ast.Return) for text in _texts(one.value)
            )


_TABLES = ("_NODES", "_ARGUMENTS")
_TEXTS = (
    "_MONTHS",
    "_OUTSIDE",
    "_GROUPED",
    "_FLAT",
    "_VALUE",
    "_NO_CLOCK",
    "_ORDER",
    "_EXPLODE",
)


def _is_hint(node: ast.keyword | ast.Assign | ast.AnnAssign) -> bool:
    if isinstance(node, ast.keyword):
        return node.arg == "hint"
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    names = [one.id for one in targets if isinstance(one, ast.Name)]
    return any(name == "hint" or name.endswith("_HINT") or name in (*_TABLES, *_TEXTS) for name in names)


def _called(node: ast.Call) -> str:
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _texts(node: ast.expr | None) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    elif isinstance(node, ast.JoinedStr):
        yield "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
    elif isinstance(node, ast.Dict):
        for value in node.values:
            yield from _texts(value.elts[-1] if isinstance(value, ast.Tuple) else value)
    elif isinstance(node, ast.IfExp):
        yield from (*_texts(node.body), *_texts(node.orelse))
