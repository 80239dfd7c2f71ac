"""In how many matches each tuple occurs, without making the matches (design, D9).

Guarantees: `occurrences` gives, for matches that are ranges, a number for every tuple that probed and for every row of
every run that was probed, with windows respected. It takes time by the tuples, the runs and the pairs with newer
partners, not by the matches.

An aggregate over a join on one key needs no more. With ``found = occurrences(matches)`` and values ``x``:

- of the input that probed, ``COUNT(*)`` is ``found.probe.sum()``, ``SUM(x)`` is ``(x * found.probe).sum()``, and
  ``MIN(x)`` is that of the tuples with ``found.probe > 0``;
- of the input of factor ``f``, the same holds for every column ``c`` of ``matches.factors[f].columns``, with the values
  of the rows of its ``run`` and with ``found.stored[f][c]``; add up over the columns;
- per group, if the group of a match follows from the tuple with ``x`` (its own columns, or the key, which all tuples of
  a match share), add up by the groups of these tuples. If it follows from the tuple that probed and ``x`` is stored,
  `Product.spans` have what each of them is matched with.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.bucket.compiled import Ints, Longs, compiled
from weft.bucket.memory import zeros
from weft.kernels.probe.factors import FactorisedMatches, Product, RangeColumn, add_at
from weft.kernels.probe.ranges import NO_INTS

__all__ = ["Occurrences", "occurrences"]


@dataclass(frozen=True, slots=True, eq=False)
class Occurrences:
    """In how many matches each tuple that probed occurs, and, by factor and column, each row of the column's run."""

    probe: Longs
    stored: tuple[tuple[Longs, ...], ...]


def occurrences(matches: FactorisedMatches) -> Occurrences:
    """In how many matches each tuple occurs."""
    probe: Longs = zeros(matches.tuples, np.int64)
    columns = [factor.columns for factor in matches.factors]
    steps = [[np.zeros(one.run.bounds.rows + 1, np.int64) for one in factor] for factor in columns]
    newest = [[np.zeros(one.run.bounds.rows, np.int64) for one in factor] for factor in columns]
    for product in matches.products():
        counts = product.multiplicities()
        if product.probe is None:
            probe += counts
        else:
            add_at(probe, product.probe, counts)
        _note_steps(product, steps)
        if product.partner is not None:
            add_at(newest[product.partner.factor][product.partner.column], product.partner.rows, counts)
    stored = [
        tuple(map(_by_row, factor, *both)) for factor, *both in zip(columns, steps, newest, strict=True)
    ]
    return Occurrences(probe, tuple(stored))


def _note_steps(product: Product, steps: list[list[Longs]]) -> None:
    """Add, at the ends of each range, how much oftener its entries occur than those before it."""
    for number, factor in enumerate(product.spans):
        weights = product.multiplicities(without=number) if factor else None
        for place, span in enumerate(factor):
            if weights is not None:
                _add_steps(span.start, span.stop, weights, steps[number][place])


def _by_row(column: RangeColumn, steps: Longs, newest: Longs) -> Longs:
    """How often each row of a run occurs: as an entry inside ranges, and as the newest tuple."""
    permutation = NO_INTS if column.permutation is None else column.permutation
    _add_entries(steps, permutation, newest)
    return newest


@compiled
def _add_steps(start: Ints, stop: Ints, weights: Longs, steps: Longs) -> None:
    for i in range(start.size):
        steps[start[i]] += weights[i]
        steps[stop[i]] -= weights[i]


@compiled
def _add_entries(steps: Longs, permutation: Ints, rows: Longs) -> None:
    """Add to every row how often its entry occurs; rows whose key is NULL have none, and come last."""
    count = np.int64(0)
    for entry in range(permutation.size if permutation.size else rows.size):
        count += steps[entry]
        rows[permutation[entry] if permutation.size else entry] += count
