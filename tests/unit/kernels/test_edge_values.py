"""Functions and operators at the edges of their types: nothing raises, and decimals are exact."""

from __future__ import annotations

from decimal import ROUND_DOWN, ROUND_HALF_UP, Decimal
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.shares import seeds, share_of
from tests.unit.kernels.edges import EXACT, NUMBERS, POOLS, calls_over, table_over, values_over
from tests.unit.kernels.expressions import column, one, values
from weft.kernels.expr.arithmetic import round_half_up
from weft.logical.expr.functions import call

PAIRS = list(product(POOLS, repeat=2))
LENGTHENING = ("lpad", "rpad", "repeat", "space")  # they refuse to make a text of two billion characters


@pytest.mark.parametrize("kind", POOLS)
def test_no_function_of_one_argument_raises(kind: str) -> None:
    """One value at the edge of its type would stop a query."""
    table = table_over((kind,))
    for expr in calls_over((kind,)):
        if expr.function not in LENGTHENING:
            assert len(values_over(expr, table)) == table.num_rows


@pytest.mark.parametrize("seed", seeds(1))
def test_no_function_of_two_arguments_raises(seed: int) -> None:
    """Two values at the edges of their types would stop a query."""
    for kinds in Random(seed).sample(PAIRS, k=min(len(PAIRS), share_of(150))):
        table = table_over(kinds)
        for expr in calls_over(kinds):
            if expr.function not in LENGTHENING:
                assert len(values_over(expr, table)) == table.num_rows


@pytest.mark.parametrize(
    ("function", "expected"), [("ceil", 100_000_000), ("floor", 99_999_999), ("round", 100_000_000)]
)
def test_decimals_near_their_precision_are_rounded(function: str, expected: int) -> None:
    """A price of 99999999.99 would stop the query."""
    assert one(function, ("decimal(10,2)", Decimal("99999999.99"))) == expected


TYPES = (
    (1, 0),
    (2, 2),
    (10, 2),
    (18, 0),
    (20, 20),
    (37, 10),
    (38, 0),
    (38, 3),
    (38, 4),
    (38, 18),
    (38, 37),
    (38, 38),
)


def drawn(random: Random, precision: int, scale: int) -> Decimal:
    """A decimal, often one whose digits are those of a power of two, of five or of ten, or near it."""
    bits, digits = random.randrange(1, 126), random.randrange(precision)
    some = (1 << bits, (1 << bits) - 1, 10**digits, 5 * 10**digits, 10**precision - 1 - random.randrange(3))
    number = random.choice((*some, random.randrange(10 ** (digits + 1))))
    return Decimal(random.choice((-1, 1)) * min(number, 10**precision - 1)).scaleb(-scale, EXACT)


def exact(operator: str, left: Decimal, right: Decimal, precision: int, scale: int) -> Decimal | None:
    """The result of an operator by Python, rounded half up; None where it does not fit or does not exist."""
    if operator in "/%" and not right:
        return None
    match operator:
        case "+":
            found = EXACT.add(left, right)
        case "-":
            found = EXACT.subtract(left, right)
        case "*":
            found = EXACT.multiply(left, right)
        case "/":
            found = EXACT.divide(left, right)
        case _:
            times = EXACT.divide(left, right).to_integral_value(ROUND_DOWN)
            found = EXACT.subtract(left, EXACT.multiply(right, times))
    found = found.quantize(Decimal(1).scaleb(-scale), ROUND_HALF_UP, EXACT)
    return found if found.copy_abs() < 10 ** (precision - scale) else None


@pytest.mark.parametrize("seed", seeds(4))
def test_decimal_arithmetic_is_exact(seed: int) -> None:
    """A sum of money would be off; Arrow's own quotients are, for some numbers."""
    random = Random(seed)
    for _ in range(25):
        (p, s), (q, t) = random.choices(TYPES, k=2)
        kinds = (f"decimal({p},{s})", f"decimal({q},{t})")
        lefts, rights = [drawn(random, p, s) for _ in range(40)], [drawn(random, q, t) for _ in range(40)]
        for operator in "+-*/%":
            expr = call(operator, column(kinds[0]), column(kinds[1], "y"))
            found = values(expr, x=(kinds[0], lefts), y=(kinds[1], rights))
            digits = expr.type.precision, expr.type.scale
            expected = [exact(operator, *pair, *digits) for pair in zip(lefts, rights, strict=True)]
            assert found == expected, (operator, kinds)


def test_a_quotient_that_arrow_gets_wrong() -> None:
    """Arrow gives 18.446744068757791456."""
    quotient = one("/", ("decimal(20,0)", Decimal(2**63 - 1)), ("decimal(18,0)", Decimal(5 * 10**17)))
    assert quotient == Decimal("18.446744073709551614")


@pytest.mark.parametrize("seed", seeds(1))
def test_doubles_are_rounded_by_the_digits_that_they_print_as(seed: int) -> None:
    """Spark rounds 4.4245 at the 15th place to itself, and not to 4.424500000000001."""
    random = Random(seed)
    for places in (-20, -5, -1, 0, 1, 2, 5, 10, 15, 20, 22, 25):
        numbers = [float(f"{random.randrange(10**17)}e{random.randrange(-30, 10)}") for _ in range(150)]
        numbers += [float(f"{random.randrange(10**5)}5e{-places - 1}") for _ in range(50)]
        found = round_half_up(np.array(numbers), places).tolist()
        scaled = (Decimal(repr(number)).scaleb(places, EXACT) for number in numbers)
        whole = (number.to_integral_value(ROUND_HALF_UP) for number in scaled)
        assert found == [float(number.scaleb(-places, EXACT)) for number in whole]


@pytest.mark.parametrize("kind", [kind for kind in NUMBERS if "decimal" in kind])
def test_a_decimal_is_the_double_nearest_to_it(kind: str) -> None:
    """A decimal of 0.5 would not equal 0.5."""
    table = table_over((kind,))
    found = values_over(
        call("sqrt", call("*", column(kind, "c0"), column("double", "c1"))), _beside_one(table)
    )
    expected = [None if x is None else abs(float(x)) ** 0.5 for x in table.column("c0").to_pylist()]
    assert [None if y is None or y != y else y for y in found if y == y] == [
        y for x, y in zip(table.column("c0").to_pylist(), expected, strict=True) if x is None or x >= 0
    ]


def _beside_one(table: Any) -> Any:
    return table.append_column("c1", pa.array([1.0] * table.num_rows))


@pytest.mark.parametrize(
    ("function", "text", "expected"),
    [
        ("upper", "straße ﬁn ŉ", "STRASSE FIN ʼN"),
        ("upper", "plain", "PLAIN"),
        ("lower", "İstanbul", "i̇stanbul"),
        ("lower", "ΟΔΥΣΣΕΥΣ ΣΑΣ Σ", "οδυσσευς σας σ"),
        ("lower", "ÄB", "äb"),
    ],
)
def test_letters_are_mapped_as_unicode_says_in_full(function: str, text: str, expected: str) -> None:
    """Spark finds a partner for STRASSE, and Weft would not."""
    assert one(function, ("string", text)) == expected
    assert values(call(function, column("string")), x=("string", [None, text, "", text])) == [
        None,
        expected,
        "",
        expected,
    ]


def test_every_character_is_mapped_as_python_maps_it() -> None:
    """Letters whose capitals are several letters would be missing in the table of them; Python knows the same ones."""
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    several = [one for one in every if len(one.upper()) > 1 or len(one.lower()) > 1]
    for function, wanted in (
        ("upper", [s.upper() for s in several]),
        ("lower", [s.lower() for s in several]),
    ):
        assert values(call(function, column("string")), x=("string", several)) == wanted
