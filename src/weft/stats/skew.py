"""How values of a key are spread over tuples: a few heavy values, each with its share, and many light ones.

Guarantees: shares are parts of the tuples that have a value, since NULL joins nothing. The results of a join on a key
have the product of its inputs' shares, so a value that a fifth of the tuples on both sides have is in most results:
that is why heavy values matter more than their shares suggest. Light values are assumed to be equally frequent, and
those of the input that has the fewest are assumed to occur in all others, as in `Statistics`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from weft.errors import StatisticsError
from weft.logical.expr.expression import Call, Column, Expr
from weft.logical.schema import DataType

__all__ = [
    "Distribution",
    "Heavy",
    "HeavyShares",
    "HeavyValue",
    "agreement",
    "check_heavy",
    "fits",
    "joined_distribution",
    "key_column",
]

HeavyValue = int | str

# The heavy values of a stream's columns, with their shares.
Heavy = Mapping[str, Mapping[HeavyValue, float]]

# By stream and column: values and their shares, the largest first. Pairs and no mapping, since keys are texts in JSON.
HeavyShares = Mapping[str, Mapping[str, tuple[tuple[HeavyValue, float], ...]]]


def check_heavy(heavy: Heavy) -> None:
    """Refuse values that no key has, and shares that cannot be."""
    for name, shares in heavy.items():
        for value, share in shares.items():
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise StatisticsError(
                    f"{value!r} of column {name} cannot be a heavy value", hint="use a whole number or a text"
                )
            if not 0 < share <= 1:
                raise StatisticsError(
                    f"the share {share} of {value!r} in column {name} is not above 0 and at most 1",
                    hint="it is the part of the stream's tuples that have this value",
                )
        if math.fsum(shares.values()) > 1 + 1e-9:
            raise StatisticsError(f"the heavy values of column {name} have more than all tuples together")


def key_column(expr: Expr | None) -> Column | None:
    """The column that a key is, if heavy values are looked for in it: it has whole numbers, cast or not, or texts."""
    if isinstance(expr, Call) and expr.function == "cast" and expr.type.is_integer:
        found = key_column(expr.args[0])
        return found if found is not None and found.type.is_integer else None
    is_key = isinstance(expr, Column) and (expr.type.is_integer or expr.type.name == "string")
    return expr if is_key and isinstance(expr, Column) else None


def fits(value: HeavyValue, type_: DataType) -> bool:
    """Whether a column of a type can have a value."""
    if isinstance(value, str):
        return type_.name == "string"
    return type_.name in _BITS and -(1 << _BITS[type_.name]) <= value < 1 << _BITS[type_.name]


_BITS = {"byte": 7, "short": 15, "int": 31, "long": 63}


@dataclass(frozen=True, slots=True)
class Distribution:
    """The shares of heavy values, and how many light values have the rest."""

    heavy: Mapping[HeavyValue, float] = field(default_factory=dict)
    distinct: float = 1.0

    @property
    def rest(self) -> float:
        """The share of all light values together."""
        return max(0.0, 1.0 - math.fsum(self.heavy.values()))

    def share(self, value: HeavyValue) -> float:
        """The part of tuples that have a value; one that is not heavy is as frequent as any light one."""
        found = self.heavy.get(value)
        return self.rest / max(1.0, self.distinct) if found is None else found


def agreement(parts: Sequence[Distribution]) -> float:
    """The part of all combinations of tuples, one of each, that have one value in common."""
    return math.fsum(_weights(parts).values()) + _light(parts)


def joined_distribution(parts: Sequence[Distribution]) -> Distribution:
    """How the values are spread over the combinations of tuples that have one value in common."""
    if len(parts) == 1:
        return parts[0]
    weights = _weights(parts)
    total = math.fsum(weights.values()) + _light(parts)
    least = min((part.distinct for part in parts), default=1.0)
    return Distribution({value: weight / total for value, weight in weights.items()} if total else {}, least)


def _weights(parts: Sequence[Distribution]) -> dict[HeavyValue, float]:
    values = dict.fromkeys(value for part in parts for value in part.heavy)
    return {value: math.prod(part.share(value) for part in parts) for value in values}


def _light(parts: Sequence[Distribution]) -> float:
    """The part of combinations that agree on a light value: 1 / all distinct counts but the smallest."""
    counts = sorted(max(1.0, part.distinct) for part in parts)
    return math.prod(part.rest for part in parts) / math.prod(counts[1:])
