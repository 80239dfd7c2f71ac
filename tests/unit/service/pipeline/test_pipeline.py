"""Pipeline files: what is right arrives whole, what is wrong is refused with its place."""

from __future__ import annotations

import copy
import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from tests.shares import examples
from tests.unit.service.samples import GOOD, OPTIONS, RUNNABLE, SELECTIVITY
from weft.errors import PipelineError, WeftError
from weft.service.commands.explain import unused_statistics
from weft.service.pipeline import load_pipeline, read_pipeline

EXAMPLES = Path(__file__).parents[4] / "examples"


def test_a_good_file_is_read_whole(tmp_path: Path) -> None:
    """Streams, statistics and queries all arrive."""
    file = tmp_path / "p.yaml"
    file.write_text(GOOD + SELECTIVITY + OPTIONS)
    pipeline = load_pipeline(file)
    session = pipeline.session
    assert session.catalog.names == ("a", "b")
    assert session.catalog.stream("a").lateness.total_seconds() == 5
    assert session.statistics.stream("a").rate == 10
    assert session.statistics.selectivities == {"a.k = b.k": 0.01}
    assert session.statistics.horizon == datetime.timedelta(minutes=10)
    assert session.statistics.origin == "given"
    assert session.options.partitions == 2
    assert session.options.weights.hop == 0
    assert pipeline.plan("q").strategy == "flat"


def test_an_entry_without_a_value_is_absent() -> None:
    """As a commented-out value leaves it."""
    extra = "statistics: {horizon: , selectivity: }\noptions: {strategy: , weights: }\n"
    session = read_pipeline(GOOD.replace("5 seconds", "") + extra, "p.yaml").session
    assert session.options.strategy == "auto"
    assert session.catalog.stream("a").lateness == datetime.timedelta(0)


def test_merged_mappings_may_override() -> None:
    """YAML's own way to share entries is not a name given twice."""
    text = GOOD.replace('b: {schema: "k long, ts', 'b: {<<: *A, schema: "k long, ts').replace(
        "a: {", "a: &A {"
    )
    assert read_pipeline(text, "p.yaml").session.catalog.stream("b").event_time == "ts"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[1, 2", "is not YAML"),
        ("a: 2024-99-99", "cannot read"),
        ("a: !!bool maybe", "cannot read"),
        ("a: !!python/none x", "is not YAML"),
        ("[" * 5000, "nested too deeply"),
        ("- a", "expected names with values"),
        (GOOD.replace("queries:", "querys:"), "did you mean queries?"),
        (GOOD.replace("event_time", "event_tme"), "did you mean event_time?"),
        (GOOD.replace("event_time: ts", "event_time: time"), "no column 'time'"),
        (GOOD.replace("event_time: ts", "event_time: 5"), "streams.a.event_time: 5 is not a text"),
        (GOOD.replace("x string", "x strin"), "did you mean string?"),
        (GOOD.replace("rate: 10", "rate: fast"), "'fast' is not a number"),
        (GOOD.replace("rate: 10", "rate: -1"), "cannot be"),
        (GOOD.replace("rate: 10", "rate: 1.0e+300"), "rate: 1e+300 is too large"),
        (GOOD.replace("rate: 10", f"rate: 0x{'f' * 5000}"), "thousands of digits is too large"),
        (GOOD.replace("rate: 10", "row_bytes: -5"), "unknown entry 'row_bytes'"),
        (GOOD.replace("{k: 100}", "{kk: 100}"), "a has no column 'kk'"),
        (GOOD.replace("{k: 100}", "{k: 100, K: 5}"), "distinct.K: column k is there twice"),
        (GOOD.replace("rate: 10", "heavy: {kk: {1: 0.5}}"), "a has no column 'kk'"),
        (GOOD.replace("rate: 10", "heavy: {k: 0.5}"), "heavy.k: expected values with their shares"),
        (GOOD.replace("rate: 10", "heavy: {k: {'1': 0.5}}"), "heavy.k: '1' is no long"),
        (GOOD.replace("rate: 10", "heavy: {x: {1: 0.5}}"), "heavy.x: 1 is no string"),
        (GOOD.replace("rate: 10", "heavy: {k: {1: much}}"), "heavy.k.1: 'much' is not a number"),
        (GOOD.replace("rate: 10", "heavy: {k: {1: 1.5}}"), "the share 1.5 of 1 in column k"),
        (GOOD.replace("5 seconds", "5 bananas"), "cannot read '5 bananas'"),
        (GOOD.replace("5 seconds", "5"), "streams.a.lateness: 5 is not a text"),
        (GOOD.replace("  b: {", "  on: {statistics: {rate: 1}, "), "streams: True is not a name"),
        (GOOD.replace("  b: {", "  a: {"), "line 5: 'a' is there twice"),
        (GOOD + "  'q': SELECT 1", "line 8: 'q' is there twice"),
        (GOOD + "options: {partitions: 0}", "partitions is 0"),
        (GOOD + "options: {planning_seconds: -1}", "planning_seconds is -1"),
        (GOOD + "options: {most_inputs: 0}", "most_inputs is 0"),
        (GOOD + "options: {partitions: 2.7}", "options.partitions: 2.7 is not a whole number"),
        (GOOD + "options: {partitions: .inf}", "options.partitions: inf is not a whole number"),
        (GOOD + "options: {partitions: true}", "options.partitions: True is not a whole number"),
        (GOOD + "options: {partitions: 99999999999}", "options.partitions: 99999999999 is too large"),
        (GOOD + "options: {partitons: 1}", "did you mean partitions?"),
        (GOOD + "options: {budget: .nan}", "options.budget: nan is not a finite number"),
        (GOOD + "options: {budget: 1e6}", "YAML takes 1e6 for a text"),
        (GOOD + "options: {strategy: 5}", "options.strategy: 5 is not a text"),
        (GOOD + "options: {strategy: [a]}", "options.strategy: ['a'] is not a text"),
        (GOOD + "options: {strategy: leftdeep}", "did you mean left_deep?"),
        (GOOD + "options: {probe_orders: gredy}", "did you mean greedy?"),
        (GOOD + "options: {weights: {hopp: 1}}", "did you mean hop?"),
        (GOOD + "options: {weights: {hop: .inf}}", "options.weights.hop: inf is not a finite number"),
        (GOOD + "options: {weights: {hop: -1}}", "options.weights: weight hop is -1"),
        (GOOD + "statistics: {horizon: 0 s}", "statistics.horizon: a horizon of"),
        (GOOD + "statistics: {selectivity: {'a.k = b.z': 0.1}}", "b has no column z"),
        (GOOD + "statistics: {selectivity: {'a.k = b.k': 7}}", "not between 0 and 1"),
        (GOOD + "statistics: {selectivity: {'a.k = b.k': 1, 'b.k = a.k': 0.5}}", "written differently"),
        ("streams: {}\nqueries: {q: SELECT 1}", "streams: there are none"),
        ("streams: {a: {schema: k long}}", "queries: there are none"),
        ("streams: {a: {schema: k long}}\nqueries: {q: [1]}", "a query is a text"),
        ('streams: {a: {schema: k long}}\nqueries: {q: "\\ud800"}', "lone surrogate"),
        ("streams: {a: }\nqueries: {q: SELECT 1}", "streams.a: a stream needs a schema"),
    ],
)
def test_a_wrong_file_is_refused_with_the_place(text: str, expected: str, tmp_path: Path) -> None:
    """Before anything starts, with the file, the place and what would be right."""
    file = tmp_path / "p.yaml"
    file.write_text(text)
    with pytest.raises(PipelineError) as caught:
        load_pipeline(file)
    assert expected in str(caught.value)
    assert str(file) in str(caught.value)


def test_every_example_plans() -> None:
    """Examples that do not work teach the wrong thing."""
    for file in sorted(EXAMPLES.glob("*.yaml")):
        pipeline = load_pipeline(file)
        for name in pipeline.queries:
            assert pipeline.plan(name).graph.hops > 0


def test_an_error_in_a_query_names_the_query() -> None:
    """Of a file's many."""
    pipeline = read_pipeline(GOOD.replace("a.k = b.k", "a.kk = b.k"), "p.yaml")
    for ask in (pipeline.plan, pipeline.parse):
        with pytest.raises(PipelineError, match=r"p\.yaml, queries\.q: a has no column kk"):
            ask("q")


@pytest.mark.parametrize(
    ("where", "selectivity", "distinct"),
    [
        ("a.k = b.k", "b.k = a.k", "k"),
        ("a.k = b.k AND NOT (a.x = 'u' OR a.x LIKE 'v%')", "a.x like 'v%'", "x"),
        ("a.k = b.k AND a.x IN ('u', 'v')", "a.x IN ('u', 'v')", "x"),
    ],
)
def test_statistics_that_a_query_uses_are_not_reported(where: str, selectivity: str, distinct: str) -> None:
    """In whatever spelling, and within AND, OR and NOT."""
    text = GOOD.replace("WHERE a.k = b.k", f"WHERE {where}").replace("{k: 100}", f"{{{distinct}: 100}}")
    given_ = f'statistics: {{selectivity: {{"{selectivity}": 0.5}}}}'
    assert unused_statistics(read_pipeline(text + given_, "p.yaml")) == []


def test_statistics_for_nothing_are_reported() -> None:
    """A figure that changes no plan is most likely a mistake."""
    text = GOOD.replace("{k: 100}", "{k: 100, x: 7}, heavy: {k: {42: 0.2}, x: {on_call: 0.1}}")
    text += "statistics: {selectivity: {'a.k = b.k': 0.5, 'b.k < a.k': 0.1}}"
    assert unused_statistics(read_pipeline(text, "p.yaml")) == [
        "p.yaml, statistics.selectivity: no query uses the predicate b.k < a.k",
        "p.yaml, streams.a.statistics.distinct: no query compares x for equality",
        "p.yaml, streams.a.statistics.heavy: no query compares x for equality",
    ]


# Fuzzing: one node or name of a good document is replaced by anything YAML can say.

Path_ = tuple[Any, ...]
DOCUMENT = yaml.safe_load(GOOD + SELECTIVITY + OPTIONS)
TO_RUN = yaml.safe_load(RUNNABLE.replace("null:", "'null':"))


def places(value: object, path: Path_ = ()) -> Iterator[Path_]:
    """The way to every value of a document."""
    yield path
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from places(inner, (*path, name))


def replaced(document: Any, path: Path_, new: object, as_name: bool) -> Any:
    """A copy of the document with another value, or another name, at one place."""
    if not path:
        return new
    found = copy.deepcopy(document)
    inside = found
    for name in path[:-1]:
        inside = inside[name]
    if as_name and not isinstance(new, dict | list):
        inside[new] = inside.pop(path[-1])
    else:
        inside[path[-1]] = new
    return found


scalars = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.sampled_from([0, 1, -1, 3, 2**31 - 1, 2**63, 10**400]),
    st.floats(),
    st.sampled_from([0.0, -0.0, 0.5, 1e15, 5e-324]),
    st.text(max_size=8),
    st.sampled_from(["a", "b", "k", "ts", "auto", "exhaustive", "1 hour", "99999999 days", "a.k = b.k"]),
    st.sampled_from(["SELECT * FROM a", "SELECT a.k FROM a, b WHERE a.k < b.k", "k long", "a.k", "1 = 1"]),
    st.dates(),
    st.datetimes(),
    st.binary(max_size=4),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(scalars.filter(lambda s: s == s), inner, max_size=3)
    ),
    max_leaves=5,
)


@given(st.sampled_from(list(places(DOCUMENT))), values, st.booleans())
@example(("streams", "b"), True, True)
@example(("options", "partitions"), float("inf"), False)
@examples(135)
def test_whatever_a_file_says_it_is_planned_or_refused(path: Path_, new: object, as_name: bool) -> None:
    """A stack trace would leave the user to guess which line of the file is wrong."""
    check(replaced(DOCUMENT, path, new, as_name))


@given(st.sampled_from(list(places(TO_RUN))), values, st.booleans())
@examples(50)
def test_whatever_a_file_says_of_running_it_is_read_or_refused(
    path: Path_, new: object, as_name: bool
) -> None:
    """Sources, sinks and settings too."""
    check(replaced(TO_RUN, path, new, as_name))


def check(document: object) -> None:
    """Whether a document is planned, or refused by name."""
    text = yaml.safe_dump(document, allow_unicode=True)
    try:
        pipeline = read_pipeline(text, "p.yaml")
        plans = [pipeline.plan(name) for name in pipeline.queries]
        unused_statistics(pipeline)
    except WeftError as error:
        assert "p.yaml" in str(error)  # noqa: PT017 - either outcome is fine, but not any error
    else:
        assert all(plan.explain() and plan.diagram() and plan.graph.to_json() for plan in plans)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("execution: residents", "did you mean resident"),
        ("memory: much", "memory cannot be 'much'"),
        ("memory: 1 MB", "no task gets anywhere"),
        ("result_limit: 0", "no query has any"),
        ("query_limit: 0", "none runs"),
        ("latency: soon", "x.yaml, latency: .*cannot read 'soon' as a duration.*\n.*500 ms"),
        ("latency: 0 ms", "x.yaml, latency: latency cannot be '0 ms'"),
        ("every: 5", "x.yaml, every"),
        ("too_slow: halt", "x.yaml, too_slow: there is no way with queries that are too slow 'halt'"),
        ("latency: 1 s\nevery: 2 s", "no result can be expected within 1 s"),
        ("adapt: of", "x.yaml, adapt: there is no way to adapt 'of'.*\n.*did you mean off"),
        ("adapt: 3", "x.yaml, adapt"),
        ("adaptation: often", "x.yaml, adaptation"),
        ("adaptation: {treshold: 0.1}", "x.yaml, adaptation.*treshold.*\n.*did you mean threshold"),
        ("adaptation: {threshold: 2}", "x.yaml, adaptation: .*a threshold of 2"),
        ("adaptation: {threshold: much}", "x.yaml, adaptation.threshold"),
        ("adaptation: {epoch_batches: 1.5}", "x.yaml, adaptation.epoch_batches"),
        ("adaptation: {horizon: 10}", "x.yaml, adaptation.horizon"),
        ("adaptation: {migrate: lazily}", "x.yaml, adaptation.migrate: there is no way to migrate 'lazily'"),
    ],
)
def test_settings_of_a_run_are_checked_before_it_starts(line: str, message: str) -> None:
    """With the place in the file."""
    text = f"{line}\nstreams: {{a: {{schema: k long}}}}\nqueries: {{q: SELECT a.k FROM a}}\n"
    with pytest.raises(WeftError, match=message):
        read_pipeline(text, "x.yaml")
    read_pipeline(
        "latency: 1 s\nevery: 200 ms\nexecution: jobs\nmemory: 1 GB\nresult_limit: 5\n"
        + text[text.index("streams") :],
        "x.yaml",
    )
