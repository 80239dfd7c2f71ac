"""Wrong things handed to every public function: what comes is an error of Weft's that names them, or nothing at all."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest

import weft
from tests.shares import quick, seeds
from tests.unit.wrong_things import CALLS, WRONG, Call, uncovered
from weft.errors import ConfigError
from weft.logical.arguments import checked


def test_every_public_name_is_among_them() -> None:
    """Whoever adds one adds a call with right arguments to `wrong_things.py`."""
    assert uncovered() == []


@pytest.mark.parametrize("call", CALLS, ids=lambda call: call.name)
def test_wrong_things_are_refused(call: Call) -> None:
    """Each parameter with each wrong thing, the others being right."""
    for parameter in call.parameters():
        for label, wrong in WRONG.items():
            attempt(call, {parameter: wrong}, f"{parameter} = {label}")
    for label, wrong in WRONG.items() if call.more else ():
        attempt(call, {}, f"an item is {label}", more=(wrong,))


@pytest.mark.parametrize("seed", quick(seeds(20), 5))
def test_several_wrong_things_at_once(seed: int) -> None:
    """Two or three parameters of random calls."""
    draw = random.Random(seed)
    for _ in range(50):
        call = draw.choice(CALLS)
        names = call.parameters()
        labels = {name: draw.choice(list(WRONG)) for name in draw.sample(names, min(len(names), 3))}
        attempt(call, {name: WRONG[label] for name, label in labels.items()}, str(labels))


def attempt(call: Call, wrong: dict[str, Any], what: str, **more: Any) -> None:
    """Make a call; it may succeed or be refused."""
    try:
        call.run(wrong, **more)
    except weft.WeftError as error:
        assert str(error)  # noqa: PT017
    except Exception as error:
        raise AssertionError(f"{call.name}: {what}: {type(error).__name__}: {error}") from error


def call(name: str, *args: Any, **kwargs: Any) -> Any:
    """A public function, whatever its types say."""
    return getattr(weft, name)(*args, **kwargs)


def query(*args: Any, **kwargs: Any) -> Any:
    """A query of a session, whatever its types say."""
    return weft.Session().query(*args, **kwargs)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: call("rate", 10, k={"uniform": 3}), "rate: k cannot be {'uniform': 3}"),
        (lambda: query("SELECT 1", sink="out"), "Session.query: sink cannot be 'out'"),
        (lambda: call("files", "csv", "in", schema=5), "files: schema cannot be 5"),
        (lambda: call("files", "csv", "in", schema=["k long"]), r"files: schema cannot be \['k long'\]"),
        (lambda: weft.files("csv", "in", schema={"k": int}), "a column 'k' of type <class 'int'>"),
        (lambda: call("Options", partitions="4"), "Options: partitions cannot be '4'"),
        (lambda: weft.Options(budget=float("nan")), "Options: budget cannot be nan"),
    ],
)
def test_what_is_wrong_is_named_at_the_call(make: Callable[[], Any], message: str) -> None:
    """And not by an `AttributeError` when the session starts."""
    with pytest.raises(weft.WeftError, match=message):
        make()


def test_schemas_as_dictionaries_and_as_spark_has_them() -> None:
    """Both are the schema that a text would be, wherever one may be given."""
    from pyspark.sql.types import DecimalType, LongType, StructField, StructType, TimestampType

    text = "k long, d decimal(10,2), ts timestamp"
    spark = StructType(
        [
            StructField("k", LongType()),
            StructField("d", DecimalType(10, 2)),
            StructField("ts", TimestampType()),
        ]
    )
    names = {"k": "bigint", "d": "decimal(10, 2)", "ts": TimestampType()}
    for given in (spark, names):
        assert str(weft.files("csv", "in", schema=given).schema) == text
        assert str(weft.kafka("h:1", "t", schema=given).schema) == text
        session = weft.Session()
        session.stream("s", given, event_time="ts")
        session.table("t", given)
        assert [str(session.catalog.stream(name).schema) for name in ("s", "t")] == [text, text]


def test_numbers_and_texts() -> None:
    """A whole number is a number, True is none; what follows a star is checked one by one."""

    @checked(ConfigError)
    def take(count: int, *rest: float, name: str | None = None, **more: bool) -> int:
        return count + len(rest) + len(more) + (name is not None)

    assert take(1, 2, 3.5, name="x", a=True) == 5
    free: Any = take
    wrong: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
        ((True,), {}),
        ((1, "2"), {}),
        ((1,), {"name": 3}),
        ((1,), {"a": 1}),
        ((2**63,), {}),
    ]
    for args, kwargs in wrong:
        with pytest.raises(ConfigError, match=r"take: .* cannot be"):
            free(*args, **kwargs)
    with pytest.raises(TypeError, match="missing"):
        free()
