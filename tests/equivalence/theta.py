"""Random joins by order: bands of one and more dimensions, inequalities, and predicates of any kind.

Numbers are few, so that they meet; NULL, NaN, both infinities, both zeros and the first and the last number of every
type are among them. So bounds are met that have no value, that overflow and that nothing lies between.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from tests.equivalence.streams import SPAN, WINDOWS, Join, edges, random_batches, random_streams
from weft.logical.catalog import Catalog
from weft.logical.schema import Schema, Stream
from weft.sql.bind import parse_query

SCHEMA = Schema.parse(
    "id long, g long, i int, j int, l long, x double, y double, f float, m decimal(12,2), u timestamp, ts timestamp"
)
_REALS = (*(n / 2 for n in range(-4, 16)), -0.0, float("nan"), float("inf"), float("-inf"), None)
_WHOLE = (*range(-3, 12), None)
_CENTS = (*(Decimal(n) / 4 for n in range(-4, 24)), Decimal("9999999999.99"), Decimal("-9999999999.99"), None)
_FAR = (-62_135_596_800_000_000, 253_402_300_799_999_999)  # the first and the last time of four-digit years
_VALUES: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "g": (pa.int64(), (0, 1, 2, None)),
    "i": (pa.int32(), (*_WHOLE, -(1 << 31), (1 << 31) - 1)),
    "j": (pa.int32(), (0, 1, 2, 3, None)),
    "l": (pa.int64(), (*_WHOLE, -(1 << 63), (1 << 63) - 1)),
    "x": (pa.float64(), _REALS),
    "y": (pa.float64(), _REALS),
    "f": (pa.float32(), _REALS),
    "m": (pa.decimal128(12, 2), _CENTS),
    "u": (pa.int64(), (*(n * 1_000_000 for n in range(0, 40, 2)), *_FAR, None)),
}
_LIKE = {"i": "ijl", "j": "ijl", "l": "ijl", "x": "xyf", "y": "xyf", "f": "xyf", "m": "m"}
_NUMBERS = "iilxxyfm"

COUNTED = (
    "[ROWS 1 PER g]",
    "[ROWS 3 PER g]",
    "[ROWS 2 PER j]",
    "[ROWS 2 PER x]",
    "[ROWS 1 PER g, j]",
    "[ROWS 6 PER f]",
)

BANDS = (
    *("{a}.{c} BETWEEN {b}.{d} - {v} AND {b}.{d} + {w}",) * 3,
    *("{a}.{c} {over} {b}.{d} - {v} AND {a}.{c} {under} {b}.{d} + {w}",) * 2,
    "{a}.{c} - {v} {under} {b}.{d} AND {b}.{d} {under} {a}.{c} + {w}",
    "{a}.{c} - {b}.{d} BETWEEN -{v} AND {w}",
    "{a}.{c} BETWEEN {b}.{d} - ABS({b}.{e}) AND {b}.{d} + {b}.{e}",
    "{a}.{c} BETWEEN {b}.{d} AND {b}.{e}",
    "{a}.{c} {over} {b}.{d} - {a}.{e} AND {a}.{c} {under} {b}.{d} + {w}",
)
TIMES = (
    "{a}.u BETWEEN {b}.u - INTERVAL '4' SECOND AND {b}.u + INTERVAL '{w}' SECOND",
    "{a}.u {over} {b}.u AND {a}.u - INTERVAL '6' SECOND {under} {b}.u",
    "{a}.ts {over} {b}.ts - INTERVAL '{v}' SECOND AND {a}.ts {under} {b}.ts + INTERVAL '8' SECOND",
    "{a}.u BETWEEN {b}.ts - INTERVAL '5' SECOND AND {b}.ts",
)
PAIRS = (
    "{a}.{c} {under} {b}.{d} AND {b}.{e} {under} {a}.{h}",
    "{a}.{c} {under} {b}.{d} AND {a}.{h} {under} {b}.{e}",
    "{a}.{c} {under} {b}.{d} AND {a}.{c} {over} {b}.{e}",
)
SINGLES = ("{a}.{c} {under} {b}.{d}", "{a}.{c} + {w} {under} {b}.{d}", "{a}.u {under} {b}.u")
OTHERS = (
    *("{a}.{c} <> {b}.{d}", "ABS({a}.{c} - {b}.{d}) < {w}", "{a}.{c} * 2 + {b}.{d} {under} 7"),
    *("{a}.{c} {under} {b}.{d} OR {a}.g = {b}.g", "NOT ({a}.{c} {under} {b}.{d})"),
    *("GREATEST({a}.{c}, {b}.{d}) {under} 4", "({a}.{c} {under} {b}.{d}) = ({a}.{h} {under} {b}.{e})"),
    *("{a}.{c} BETWEEN {b}.{d} AND {b}.{e} OR {a}.{c} IS NULL", "{a}.i % 3 = {b}.j"),
)
EQUALITIES = ("{a}.g = {b}.g", "{a}.g = {b}.j", "{a}.{c} = {b}.{d}")
TRIPLES = ("{a}.{c} + {b}.{d} {under} {k}.{e}", "{a}.{c} BETWEEN {b}.{d} AND {k}.{e} + {w}")
FILTERS = ("{a}.{c} {under} 6", "{a}.{c} IS NOT NULL", "{a}.g = 1")


def random_theta(
    seed: int,
    *,
    prefix: str = "s",
    windows: Sequence[str] = WINDOWS,
    batches: Sequence[int] = (1, 2, 3, 3, 4, 7),
    late: Sequence[str] = ("join", "drop"),
    mixed: bool = True,
) -> Join:
    """A random join by order over random streams; unless mixed, all of them or none have event times."""
    rng = random.Random(seed)
    streams = random_streams(rng, prefix, late, mixed, SCHEMA, weights=(6, 4, 2, 0))
    catalog = Catalog(tuple(dict.fromkeys(streams)))
    query = parse_query(_text(rng, streams, windows), catalog)
    rows = {2: (12, 30, 45), 3: (8, 14, 20)}.get(len(streams), (6, 10))
    size, disorder = rng.choice(rows), rng.choice((0, 1, 8, SPAN))
    tables = {s.name: _table(rng, rng.randint(size // 2, size), disorder) for s in catalog.streams}
    return Join(query, catalog, tables, random_batches(rng, tables, rng.choice(batches)))


def _text(rng: random.Random, streams: Sequence[Stream], windows: Sequence[str]) -> str:
    names = [f"r{i}" for i in range(len(streams))]
    shape = edges(rng, len(names))[: 3 if len(names) > 3 else 2]  # with more, hardly anything is left
    where = [part for i, j in shape for part in _edge(rng, names[i], names[j], 0.9 / len(names))]
    if len(names) > 2 and rng.random() < 0.3:
        where.append(_filled(rng, rng.choice(TRIPLES), *rng.sample(names, 3)))
    if rng.random() < 0.3:
        where.append(_filled(rng, rng.choice(FILTERS), rng.choice(names), names[0]))
    if rng.random() < 0.4:
        windows = (*windows, *COUNTED)
    inputs = [f"{s.name} {rng.choice(windows)} AS {n}" for s, n in zip(streams, names, strict=True)]
    shown = ", ".join(f"{name}.id AS {name}" for name in names)
    return f"SELECT {shown} FROM {', '.join(inputs)} WHERE {' AND '.join(f'({w})' for w in where)}"


def _edge(rng: random.Random, a: str, b: str, more: float) -> list[str]:
    """What joins two inputs: up to three dimensions, now and then an equality among them."""
    if rng.random() < 0.5:
        a, b = b, a
    forms = [rng.choice(rng.choice((BANDS, BANDS, TIMES, PAIRS, SINGLES, OTHERS)))]
    if rng.random() < more:
        forms += rng.sample(BANDS, rng.randint(1, 2))
    if rng.random() < more / 2:
        forms.append(rng.choice(EQUALITIES))
    rng.shuffle(forms)
    return [_filled(rng, form, a, b) for form in forms]


def _filled(rng: random.Random, form: str, a: str, b: str, k: str = "") -> str:
    """A form with columns that can be compared: mostly of like types, now and then of any."""
    c, h = rng.choice(_NUMBERS), rng.choice(_NUMBERS)
    near = _LIKE[c] if rng.random() < 0.75 else _NUMBERS
    whole = c in "ijl" or "INTERVAL" in form
    widths = (0, 1, 2, 3, 5) if whole else (0, 1, 2.5, 0.25, 4)
    names = {"a": a, "b": b, "k": k, "c": c, "d": rng.choice(near), "e": rng.choice(near), "h": h}
    signs = {"under": rng.choice(("<", "<=")), "over": rng.choice((">", ">="))}
    return form.format(**names, **signs, v=rng.choice(widths), w=rng.choice(widths))


def _table(rng: random.Random, rows: int, disorder: int) -> pa.Table:
    """Tuples in order of arrival; event times rise, up to so many seconds of disorder."""
    common = rng.choice(
        (0.0, 0.7)
    )  # some streams have few odd values, so that queries of many bands find something
    columns: dict[str, Any] = {"id": pa.array(range(rows), pa.int64())}
    for name, (kind, values) in _VALUES.items():
        drawn = [rng.choice(values[:8] if rng.random() < common else values) for _ in range(rows)]
        columns[name] = pa.array(drawn, kind, from_pandas=False)
    columns["u"] = columns["u"].cast(pa.timestamp("us", "UTC"))
    times = [
        round(t + rng.uniform(-disorder, disorder)) for t in sorted(rng.uniform(0, SPAN) for _ in range(rows))
    ]
    missing = np.array([rng.random() < 0.03 for _ in times], np.bool_)
    columns["ts"] = pa.array(np.array(times, np.int64) * 1_000_000, mask=missing).cast(
        pa.timestamp("us", "UTC")
    )
    return pa.table(columns).select(list(SCHEMA.names))
