"""Random schemas of Avro with random values, encoded by fastavro."""

from __future__ import annotations

import io
import json
import random
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import fastavro

__all__ = ["Case", "encoded", "random_case"]

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Case:
    """A schema, the columns that are asked of it, and rows."""

    schema: dict[str, Any]
    columns: str
    rows: list[dict[str, Any]]

    @property
    def text(self) -> str:
        return json.dumps(self.schema)


def encoded(schema: Any, rows: list[Any]) -> list[bytes]:
    """Values as fastavro writes them."""
    parsed, found = fastavro.parse_schema(schema), []
    for row in rows:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, parsed, row)
        found.append(out.getvalue())
    return found


def _logical(kind: str, logical: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical, **more}


def _moment(chance: random.Random) -> datetime:
    return EPOCH + timedelta(milliseconds=chance.randrange(-(10**13), 10**13))


def _kinds(chance: random.Random, at: int) -> list[tuple[Any, list[str], Any]]:
    """Types with the columns that can have them, and how a value is made."""
    digits = chance.randint(1, 37)
    scale = chance.randint(0, digits)
    whole = 10**digits - 1
    return [
        ("boolean", ["boolean"], lambda: chance.random() < 0.5),
        ("int", ["int", "long", "double"], lambda: chance.choice([0, -1, 2**31 - 1, -(2**31), chance.randrange(999)])),
        ("long", ["long"], lambda: chance.choice([0, -1, 2**63 - 1, -(2**63), chance.randrange(10**6)])),
        ("float", ["float", "double"], lambda: chance.choice([0.0, -1.5, float("inf"), 2.0**-20])),
        ("double", ["double"], lambda: chance.choice([0.1, -1e300, float("-inf"), 3.0])),
        ("string", ["string"], lambda: chance.choice(["", "ü", "x" * chance.randrange(300), "\0\n"])),
        ("bytes", ["binary"], lambda: chance.randbytes(chance.choice([0, 3, 200]))),
        ({"type": "fixed", "name": f"F{at}", "size": 5}, ["binary"], lambda: chance.randbytes(5)),
        ({"type": "enum", "name": f"E{at}", "symbols": [*"abc"]}, ["string"], lambda: chance.choice("abc")),
        (_logical("int", "date"), ["date"], lambda: date(1970, 1, 1) + timedelta(days=chance.randrange(-9999, 9999))),
        (_logical("long", "timestamp-millis"), ["timestamp"], lambda: _moment(chance)),
        (_logical("long", "timestamp-micros"), ["timestamp"], lambda: _moment(chance) + timedelta(microseconds=7)),
        (
            _logical("bytes", "decimal", precision=digits, scale=scale),
            [f"decimal({digits},{scale})", f"decimal(38,{scale})"],
            lambda: Decimal(chance.randint(-whole, whole)).scaleb(-scale),
        ),
    ]  # fmt: skip


def _nested(chance: random.Random, at: int) -> tuple[Any, Any]:
    """A type that is nested, and how a value is made."""
    inner = {
        "type": "record",
        "name": f"R{at}",
        "fields": [{"name": "x", "type": ["null", "long", f"R{at}"]}],
    }
    return chance.choice(
        [
            ({"type": "array", "items": ["null", "string"]}, lambda: [None, "x", ""] * chance.randrange(3)),
            ({"type": "map", "values": "long"}, lambda: {"a": 1, "é": -(2**40)} if chance.random() < 0.5 else {}),
            (inner, lambda: {"x": chance.choice([None, 3, {"x": {"x": None}}])}),
            ({"type": "array", "items": "null"}, lambda: [None] * chance.randrange(9)),
        ]
    )  # fmt: skip


def random_case(seed: int, count: int = 40) -> Case:
    """A record of some fields, of which some are asked for."""
    chance = random.Random(seed)
    fields, columns, makers = list[dict[str, Any]](), list[str](), dict[str, Any]()
    for at in range(chance.randint(1, 8)):
        name = f"f{at}"
        if chance.random() < 0.2:
            type_, make = _nested(chance, at)
            column = "string"
        else:
            type_, wanted, make = chance.choice(_kinds(chance, at))
            column = chance.choice(wanted)
        if chance.random() < 0.5:
            inside, branches = make, ["null", type_] if chance.random() < 0.5 else [type_, "null"]
            type_, make = branches, lambda inside=inside: None if chance.random() < 0.3 else inside()
        fields.append({"name": name, "type": type_})
        makers[name] = make
        if chance.random() < 0.8 or not columns:
            columns.append(f"{name} {column}")
    chance.shuffle(columns)
    schema = {"type": "record", "name": "row", "namespace": "weft.tests", "fields": fields}
    rows = [{name: make() for name, make in makers.items()} for _ in range(count)]
    return Case(schema, ", ".join(columns), rows)
