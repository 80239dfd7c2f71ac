"""Functions that users register: what is refused, and what queries say of those that are not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow.compute as pc
import pytest

import weft
from weft.errors import CatalogError, FunctionError, SqlError, StatisticsError, WeftError
from weft.logical.codec import LOGICAL, Codec
from weft.testing import LocalRun


def session() -> weft.Session:
    """Two streams and a function."""
    made = weft.Session()
    made.stream("a", "k long, x double, s string")
    made.stream("b", "k long, x double, s string")
    made.function("similar", similar, returns="boolean")
    return made


def similar(one: Any, other: Any, limit: Any = None) -> Any:
    """Two or three arguments."""
    return pc.less(pc.subtract(one, other), 1 if limit is None else limit)


def by_name(one: Any, *, other: Any) -> Any:
    """What no call by place can give."""
    return pc.equal(one, other)


@pytest.mark.parametrize(
    ("name", "function", "message"),
    [
        (5, similar, "a function's name cannot be 5"),
        ("near", "similar", "function near cannot be 'similar'"),
        ("", similar, "a function cannot be called ''"),
        ("two words", similar, "a function cannot be called 'two words'"),
        ("älter", similar, "a function cannot be called 'älter'"),
        ("LOWER", similar, "a function cannot be called 'LOWER'"),
        ("nvl", similar, "a function cannot be called 'nvl'"),
        ("select", similar, "a function cannot be called 'select'"),
        ("cast", similar, "a function cannot be called 'cast'"),
        ("case", similar, "a function cannot be called 'case'"),
        ("if", similar, "a function cannot be called 'if'"),
        ("not", similar, "a function cannot be called 'not'"),
        ("in", similar, "a function cannot be called 'in'"),
        ("interval", similar, "a function cannot be called 'interval'"),
        ("nothing", lambda: None, "function nothing takes no argument"),
        ("named", by_name, "function named needs other by name"),
    ],
)
def test_what_no_query_could_call_is_refused(name: Any, function: Any, message: str) -> None:
    """An error far from where the mistake is."""
    made = session()
    with pytest.raises(FunctionError) as caught:
        made.function(name, function, returns="boolean")
    assert message in str(caught.value)
    assert "hint: " in str(caught.value)
    assert [one.name for one in made.catalog.functions] == ["similar"]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"returns": "boolen"}, FunctionError, "function near: unknown type 'boolen'"),
        ({"returns": None}, FunctionError, "a function's type cannot be None"),
        ({"returns": "null"}, FunctionError, "function near: function near cannot give nothing but NULL"),
        (
            {"returns": "boolean", "cost": -1.0},
            StatisticsError,
            "function near cannot take -1.0 seconds a row",
        ),
        ({"returns": "boolean", "cost": "1 s"}, StatisticsError, "a cost cannot be '1 s'"),
        (
            {"returns": "boolean", "selectivity": 2},
            StatisticsError,
            "the selectivity 2 of near is not between 0 and 1",
        ),
        ({"returns": "double", "selectivity": 0.5}, StatisticsError, "function near gives a double"),
    ],
)
def test_what_cannot_be_true_of_a_function_is_refused(
    options: dict[str, Any], error: type[WeftError], message: str
) -> None:
    """A plan made by nonsense."""
    made = session()
    with pytest.raises(error) as caught:
        made.function("near", similar, **options)
    assert message in str(caught.value)
    with pytest.raises(SqlError, match="there is no function near"):
        made.parse("SELECT * FROM a, b WHERE near(a.x, b.x)")


def test_a_name_is_taken_once_whatever_its_case() -> None:
    """Which of two functions is called would be a matter of luck."""
    with pytest.raises(CatalogError, match="there is already a function 'similar'"):
        session().function("SIMILAR", similar, returns="boolean")


def test_an_unknown_function_is_answered_with_those_of_users_too() -> None:
    """A slip of the pen, and a list in which the right name is missing."""
    with pytest.raises(SqlError) as caught:
        session().parse("SELECT * FROM a, b WHERE simlar(a.x, b.x)")
    assert str(caught.value).splitlines()[1:] == [
        "1 | SELECT * FROM a, b WHERE simlar(a.x, b.x)",
        "                             ^^^^^^^^^^^^^^^^",
        str(caught.value).splitlines()[-1],
    ]
    assert "did you mean similar?" in str(caught.value)


def test_a_function_that_is_missing_is_one_to_register() -> None:
    """Spark has hundreds of functions; who needs another one would have to give up."""
    made, text = session(), "SELECT soundex(a.s) AS code FROM a"
    with pytest.raises(SqlError, match="there is no function soundex") as caught:
        made.parse(text)
    assert "register a function of your own: session.function" in str(caught.value)
    made.function("soundex", pc.utf8_upper, returns="string")
    made.query(text, name="q", sink=weft.to_memory())
    assert LocalRun(made).batch({"a": [{"k": 1, "x": 1.0, "s": "a"}]})["q"].to_pylist() == [{"code": "A"}]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("similar(a.x)", "similar takes 2 to 3 arguments, not 1: similar(a.x)"),
        ("similar(a.x, b.x, 1, 2)", "similar takes 2 to 3 arguments, not 4"),
        ("similar(a.x, b.y)", "b has no column y"),
        ("score(a.x, b.x)", "WHERE needs a condition, and SCORE(a.x, b.x) is a double"),
        ("score()", "score takes 1 argument or more, not 0"),
    ],
)
def test_a_call_that_cannot_be_is_refused_where_it_stands(call: str, message: str) -> None:
    """A call that fails in a worker."""
    made = session()
    made.function("score", lambda *columns: columns[0], returns="double")
    with pytest.raises(SqlError) as caught:
        made.parse(f"SELECT * FROM a, b WHERE {call} AND a.k = b.k")
    assert message in str(caught.value)
    assert "^" in str(caught.value)


@pytest.mark.parametrize(
    "condition",
    [
        "similar(a.x, b.x)",
        "Similar(b.x, a.x, 2) OR a.k = 1",
        "NOT similar(a.x, b.x)",
        "similar(a.x, 1) = (b.k = 2)",
    ],
)
def test_a_query_reads_back_from_its_text_and_from_json(condition: str) -> None:
    """A checkpoint that cannot be read again; it holds the function's name, and not the function."""
    made = session()
    query = made.parse(f"SELECT similar(a.x, b.x) AS y FROM a, b WHERE {condition}", cross=True)
    assert made.parse(str(query), cross=True) == query
    codec = Codec(LOGICAL)
    assert codec.loads(codec.dumps(query)) == query


def test_the_builder_and_said_selectivities_know_functions() -> None:
    """What works in SQL only."""
    made = session()
    built = weft.select("a.k").from_("a").from_("b").where("similar(a.x, b.x)")
    assert made.parse(built) == made.parse("SELECT a.k FROM a, b WHERE similar(a.x, b.x)")
    made.selectivity("SIMILAR(a.x, b.x)", 0.25)
    assert made.statistics.selectivities == {"SIMILAR(a.x, b.x)": 0.25}


def test_hints_are_what_plans_go_by() -> None:
    """Hints that are taken and forgotten."""
    made = weft.Session()
    made.stream("a", "x double, ts timestamp", event_time="ts")
    made.stream("b", "x double, ts timestamp", event_time="ts")
    made.function("near", similar, returns="boolean", selectivity=0.001, cost=2e-6)
    text = made.query(
        "SELECT a.x FROM a [RANGE 1 SECOND], b [RANGE 1 SECOND] WHERE near(a.x, b.x)", name="q"
    ).explain()
    assert [line.split() for line in text.splitlines() if "near" in line] == [
        ["near", "NEAR(a.x,", "b.x)", "2", "0.001"]
    ]


def test_an_equality_that_is_no_key_is_pointed_out() -> None:
    """A join by equality that compares all pairs, and nobody knows why."""
    made = session()
    made.function("folded", lambda text: pc.utf8_lower(text), returns="string")
    text = "SELECT a.k FROM a [ROWS 5], b [ROWS 5] WHERE "
    note = "note: FOLDED(a.s) = b.s is checked pair by pair"
    assert note in made.query(text + "folded(a.s) = b.s").explain()
    assert note not in made.query(text + "a.s = b.s AND folded(a.s) = 'x'").explain()


def test_builtins_have_any_number_of_arguments_where_they_do_not_say() -> None:
    """A function of compiled code that has no signature."""
    made = session()
    made.function("greatest_of", max, returns="long")
    assert str(made.parse("SELECT greatest_of(a.k, 1, 2) AS m FROM a")) == (
        "SELECT GREATEST_OF(a.k, 1, 2) AS m FROM a"
    )


def test_a_function_is_taken_as_it_is_when_it_is_registered() -> None:
    """Two workers that disagree because one began later."""
    from weft.runtime.wire.functions import callable_functions
    from weft.session.relations import pack_function

    limit = 1

    def large(value: Any) -> Any:
        return pc.greater(value, limit)

    made: Callable[..., Any] = callable_functions({"large": pack_function("large", large, "boolean").data})[
        "large"
    ]
    limit = 100
    assert made(pc.add([5], 0)).to_pylist() == [True]
