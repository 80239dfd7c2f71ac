"""Pipeline files that say how to run: sources, sinks and settings arrive whole or are refused with their place."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.service.samples import GOOD, OUTER, RUNNABLE
from weft.connectors.files.parquet_sink import ParquetSink
from weft.connectors.files.source import FilesSource, files
from weft.connectors.generate.rate import RateSource, choice, rate, sequence, timestamps, uniform, zipf
from weft.connectors.memory.console import ConsoleSink
from weft.connectors.memory.sink import MemorySink
from weft.errors import PipelineError
from weft.logical.query.limits import Limits
from weft.optimizer.adaptation import Adaptation
from weft.service.commands.explain import unused_statistics
from weft.service.commands.run import check_runnable
from weft.service.demo import PIPELINE
from weft.service.pipeline import Pipeline, load_pipeline, read_pipeline


def runnable(root: Path, **given: Any) -> Pipeline:
    """The good file, with its directory."""
    return read_pipeline(RUNNABLE, "p.yaml", root=root, **given)


def test_sources_are_what_python_would_make_of_them(tmp_path: Path) -> None:
    """The file is another spelling of weft.files and weft.rate."""
    sources = runnable(tmp_path).sources
    assert sources["a"] == files(
        "csv",
        str(tmp_path / "in/a"),
        schema="k long, ts timestamp",
        max_files_per_batch=2,
        glob="*.csv",
        recursive=True,
        delimiter=";",
        quote="'",
        encoding="latin-1",
        null="-",
    )
    start = timestamps(jitter="2 seconds").__class__
    made = sources["b"]
    assert isinstance(made, RateSource)
    wanted = rate(
        2000,
        seed=7,
        id=sequence(5, 2),
        k=uniform(100),
        usr=zipf(50, 1.1),
        geo=choice({"US": 0.3, "GER": 0.7}),
        lang=choice(["ENG", "GER"]),
        ts=dict(made.columns)["ts"],
    )
    assert made == wanted
    assert isinstance(dict(made.columns)["ts"], start)
    assert made.generate(0, 1)["ts"][0].as_py().strftime("%Y-%m-%d %H:%M") in (
        "2024-02-01 12:00",
        "2024-02-01 11:59",
    )


@pytest.mark.parametrize(("said", "ahead"), [("none", None), ("3 hours", timedelta(hours=3))])
def test_a_stream_says_how_far_ahead_of_the_clock_records_may_be(
    tmp_path: Path, said: str, ahead: timedelta | None
) -> None:
    """A time, or none for replays of simulated time."""
    text = RUNNABLE.replace("idle_after: 10 seconds", f"ahead: {said}")
    found = read_pipeline(text, "p.yaml", root=tmp_path)
    assert found.session.catalog.stream("a").ahead == ahead
    assert found.session.catalog.stream("b").ahead == timedelta(days=1)


def test_streams_and_statistics_follow_from_sources(tmp_path: Path) -> None:
    """Generated columns need no schema, and their rate is known."""
    session = runnable(tmp_path).session
    a, b = session.catalog.stream("a"), session.catalog.stream("b")
    assert (a.late, a.idle_after) == ("join", timedelta(seconds=10))
    assert str(b.schema) == "id long, k long, usr long, geo string, lang string, ts timestamp"
    assert session.statistics.stream("b").rate == 2000
    assert session.statistics.stream("b").distinct == {"k": 100}


def test_sinks_are_by_query(tmp_path: Path) -> None:
    """A query without one is planned only, or shown when it runs."""
    pipeline = runnable(tmp_path)
    assert pipeline.sinks["q"] == ParquetSink(tmp_path / "out/q", "zstd")
    assert isinstance(pipeline.sinks["r"], MemorySink)
    assert isinstance(pipeline.sinks["s"], ConsoleSink)
    assert list(pipeline.sinks) == ["q", "r", "s"]
    assert list(pipeline.queries) == ["q", "r", "s", "t"]
    assert all(pipeline.plan(name).graph.hops for name in pipeline.queries)
    assert unused_statistics(pipeline) == []


def test_patience_ends_as_the_file_says(tmp_path: Path) -> None:
    """Rows without a partner would never leave, or a query that should wait for the end of its input would not."""
    pipeline = read_pipeline(OUTER, "p.yaml", root=tmp_path)
    windows = {
        name: [str(i.window) for i in pipeline.plan(name).query.inputs] for name in ("patient", "hasty")
    }
    assert windows == {"patient": ["UNBOUNDED"] * 2, "hasty": ["RANGE 10 MINUTES"] * 2}


def test_the_limit_of_a_key_is_the_session_s(tmp_path: Path) -> None:
    """It would be read and then forgotten."""
    assert runnable(tmp_path).session._settings.key_limit == 1000
    assert runnable(tmp_path).session._settings.limits == Limits(words=1000)


def test_how_plans_follow_the_data_is_the_session_s() -> None:
    """It would be read and then forgotten."""
    rest = "streams: {a: {schema: k long}}\nqueries: {q: SELECT a.k FROM a}\n"
    settings = read_pipeline(rest, "p.yaml").session._settings
    assert (settings.adapt, settings.adaptation) == ("auto", Adaptation())
    wishes = (
        "{epoch_batches: 4, epoch_seconds: 0, threshold: 0.2, horizon: 10 minutes, migrate: side by side}"
    )
    settings = read_pipeline(f"adapt: always\nadaptation: {wishes}\n{rest}", "p.yaml").session._settings
    assert settings.adapt == "always"
    assert settings.adaptation == Adaptation(
        epoch_batches=4,
        epoch_seconds=0,
        threshold=0.2,
        horizon=timedelta(minutes=10),
        migrate="side by side",
    )
    for off in ("off", "'off'"):  # the first of which is false to YAML
        assert read_pipeline(f"adapt: {off}\n{rest}", "p.yaml").session._settings.adapt == "off"


def test_the_command_line_wins(tmp_path: Path) -> None:
    """What is given where the command is typed is meant more than what a file says."""
    pipeline = runnable(tmp_path)
    assert (pipeline.checkpoint, pipeline.master) == (tmp_path / "ck", "local[2]")
    pipeline = runnable(tmp_path, checkpoint=tmp_path / "other", master=None)
    assert (pipeline.checkpoint, pipeline.master) == (tmp_path / "other", "local[2]")
    assert runnable(tmp_path, master="local[1]").master == "local[1]"


def test_paths_begin_where_the_file_is(tmp_path: Path) -> None:
    """Wherever the command is typed; a URI of a file is one that begins at the root."""
    file = tmp_path / "p.yaml"
    file.write_text(RUNNABLE.replace("path: in/a", "path: file:///in/a, clean: archive, archive: done"))
    pipeline = load_pipeline(file)
    source = pipeline.sources["a"]
    assert isinstance(source, FilesSource)
    assert (source.path, source.rules.archive) == ("/in/a", str(tmp_path / "done"))
    assert pipeline.checkpoint == tmp_path / "ck"


def test_a_schema_is_inferred_from_files(tmp_path: Path) -> None:
    """Parquet knows its columns."""
    (tmp_path / "in").mkdir()
    pq.write_table(pa.table({"k": [1], "x": ["a"]}), tmp_path / "in" / "0.parquet")
    file = tmp_path / "p.yaml"
    file.write_text("streams: {a: {source: {files: parquet, path: in}}}\nqueries: {q: SELECT a.x FROM a}\n")
    assert str(load_pipeline(file).session.catalog.stream("a").schema) == "k long, x string"


def test_the_demo_plans() -> None:
    """And says nothing for nothing."""
    pipeline = load_pipeline(PIPELINE)
    assert [pipeline.plan(name).name for name in pipeline.queries] == ["preferences", "trolls", "angry"]
    assert unused_statistics(pipeline) == []


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("files: csv", "fles: csv", "streams.a.source: a source is one of files, rate"),
        ("files: csv", "files: csv, rate: 5", "streams.a.source: a source is one of files, rate"),
        ("files: csv", "files: cvs", "did you mean csv?"),
        ("files: csv", "files: 5", "streams.a.source.files: 5 is not a text"),
        ("files: csv", "files: parquet", "parquet has no option"),
        ("path: in/a, ", "", "streams.a.source: files need a path"),
        ("path: in/a", "path: ' '", "streams.a.source.path: ' ' is not a path"),
        ("path: in/a", "path: 5", "streams.a.source.path: 5 is not a text"),
        ("glob:", "globb:", "did you mean glob?"),
        ("path: in/a", "path: hdfs://host/a", "hdfs://host/a is neither a path"),
        ("path: in/a", "path: in/a, missing: never", "missing cannot be 'never'"),
        ("max_files_per_batch: 2", "max_files_per_batch: 0", "max_files_per_batch is 0"),
        ("max_files_per_batch: 2", "max_files_per_batch: two", "'two' is not a whole number"),
        ("recursive: true", "recursive: 1", "1 is neither true nor false"),
        ('delimiter: ";"', 'delimiter: ";;"', "must be one ASCII character"),
        ("encoding: latin-1", "encoding: latin-99", "unknown encoding"),
        ("    schema: k long, ts timestamp\n", "", "do not tell their types"),
        ("schema: k long,", "schema: k lnog,", "streams.a.schema: "),
        ("late: join", "late: maybe", "streams.a.late: there is no way with late tuples 'maybe'"),
        ("idle_after: 10 seconds", "idle_after: 10 bananas", "streams.a.idle_after: cannot read"),
        ("idle_after: 10 seconds", "idle_after: 0 seconds", "streams.a: "),
        ("idle_after: 10 seconds", "ahead: soon", "streams.a.ahead: cannot read"),
        ("rate: 2000", "rate: 0", "streams.b.source: rate: 0 rows per second"),
        ("rate: 2000", "rate: fast", "streams.b.source.rate: 'fast' is not a whole number"),
        ("seed: 7", "seed: 7.5", "streams.b.source.seed: 7.5 is not a whole number"),
        ("seed: 7", "sed: 7", "did you mean seed?"),
        ("k: {uniform: 100}", "k: {uniform: 0}", "columns.k.uniform: uniform(0)"),
        ("k: {uniform: 100}", "k: {unifrom: 100}", "did you mean uniform?"),
        ("k: {uniform: 100}", "k: uniform", "columns.k: there is no kind of column 'uniform'"),
        ("k: {uniform: 100}", "k: {uniform: 5, zipf: 7}", "columns.k: a column is of one kind"),
        ("k: {uniform: 100}", "k: [1]", "columns.k: expected names with values"),
        ("k: {uniform: 100}", "'k k': {uniform: 5}", "streams.b"),
        ("count: 50, ", "", "columns.usr.zipf: zipf needs a count"),
        ("count: 50", "count: 2000000000", "columns.usr.zipf.count: 2000000000 is too large"),
        ("exponent: 1.1", "exponent: -3", "columns.usr.zipf.exponent: -3 is not between 0 and 10"),
        ("[ENG, GER]", "[ENG, no]", "columns.lang.choice[1]: False is not a text"),
        ("[ENG, GER]", "[]", "columns.lang.choice: choice needs at least one value"),
        ("[ENG, GER]", "ENG", "'ENG' is not a list of texts"),
        ("{US: 0.3, GER: 0.7}", "{US: -1}", "columns.geo.choice: choice: the weights"),
        ("start: 5, step: 2", "begin: 5", "columns.id.sequence: unknown entry 'begin'"),
        ("2024-02-01 12:00:00", "noon", "columns.ts.timestamps.start: 'noon' is not a time"),
        ("jitter: 2 seconds", "jitter: 2", "columns.ts.timestamps.jitter: 2 is not a text"),
        (
            "    source:\n      rate",
            "    schema: k long\n    source:\n      rate",
            "columns that are generated are",
        ),
        ("sql:", "sequel:", "queries.q: unknown entry 'sequel'"),
        ("sink: memory", "sink: memry", "did you mean memory?"),
        ("sink: memory", "sink: parquet", "queries.r.sink: parquet needs more than its name"),
        ("sink: memory", "sink: {memory: 5}", "queries.r.sink.memory: memory has no options"),
        ("sink: memory", "sink: {}", "queries.r.sink: results go to one sink"),
        ("{console: 3}", "{console: 3, parquet: out}", "queries.s.sink: results go to one sink"),
        ("{console: 3}", "{console: 3, compression: zstd}", "sink.compression: console has no compression"),
        ("{console: 3}", "{console: 0}", "queries.s.sink.console: to_console: cannot show 0 rows"),
        ("zstd", "zst", "did you mean zstd?"),
        (
            "parquet: out/q",
            "parquet: hdfs://host/out",
            "queries.q.sink: to_parquet: hdfs://host/out is not a path",
        ),
        ("checkpoint: ck", "checkpoint: 5", "checkpoint: 5 is not a text"),
        (
            "checkpoint: ck",
            "checkpoint: hdfs://b/ck",
            "checkpoint: hdfs://b/ck names no storage that Weft knows",
        ),
        ("master: local[2]", "master: ''", "master: the master is empty"),
        ("driver: round_robin", "driver: robin", "did you mean round_robin?"),
        ("{records: 10, fraction: 0.5}", "-1", "dead_letter_limit: a limit of -1 bad records"),
        ("fraction: 0.5", "fraction: 5", "dead_letter_limit: a limit of 5.0 bad records"),
        ("fraction: 0.5", "part: 5", "dead_letter_limit: unknown entry 'part'"),
        ("{records: 10, fraction: 0.5}", "{}", "dead_letter_limit: the limit is empty"),
        ("{words: 1000}", "{words: many}", "limits.words: 'many' is not a whole number"),
        ("{words: 1000}", "{words: 0}", "limits: a limit of 0 words makes no sense"),
        ("{words: 1000}", "{word: 1}", "limits: unknown entry 'word'"),
        ("key_limit: 1000", "key_limit: many", "key_limit: 'many' is not a whole number"),
        ("key_limit: 1000", "key_limit: 0", "key_limit: with a limit of 0 results, no key has any"),
        ("after: 10 minutes", "after: soon", "queries.r.emit_unmatched_after: cannot read 'soon'"),
        ("after: 10 minutes", "after: 10", "queries.r.emit_unmatched_after: 10 is not a text"),
    ],
)
def test_a_mistake_is_refused_with_its_place(old: str, new: str, expected: str, tmp_path: Path) -> None:
    """Before anything starts."""
    assert old in RUNNABLE
    with pytest.raises(PipelineError) as caught:
        read_pipeline(RUNNABLE.replace(old, new), "p.yaml", root=tmp_path)
    assert expected in str(caught.value)
    assert "p.yaml, " in str(caught.value)


def test_a_query_that_is_a_section_needs_its_text() -> None:
    """The error shows both ways to write one."""
    with pytest.raises(PipelineError, match=r"queries\.r: the query has no text\n.*sql: SELECT"):
        read_pipeline(GOOD + "  r: {sink: memory}\n", "p.yaml")


def test_what_cannot_run_is_refused_before_spark(tmp_path: Path) -> None:
    """A checkpoint, sources and their directories."""
    with pytest.raises(
        PipelineError, match=r"p\.yaml, checkpoint: a run needs a place(.|\n)*--checkpoint DIR"
    ):
        check_runnable(read_pipeline(RUNNABLE.replace("checkpoint: ck\n", ""), "p.yaml"))
    with pytest.raises(PipelineError, match=r"streams\.a: a stream without a source can be planned, not run"):
        check_runnable(read_pipeline(GOOD + "checkpoint: ck\n", "p.yaml"))
    with pytest.raises(PipelineError, match=r"streams\.a\.source\.path: there is no directory .*in/a"):
        check_runnable(runnable(tmp_path))
    (tmp_path / "in" / "a").mkdir(parents=True)
    check_runnable(runnable(tmp_path))


def test_tables_need_no_stream_to_be_run(tmp_path: Path) -> None:
    """What a table is read from is the table's own matter."""
    (tmp_path / "in").mkdir()
    text = """
streams: {s: {schema: "k long, ts timestamp", event_time: ts, source: {files: json, path: in}}}
tables: {d: {schema: "k long, n string", source: {files: json, path: dim}}}
queries: {q: "SELECT s.k, d.n FROM s, d WHERE s.k = d.k"}
checkpoint: ck
"""
    check_runnable(read_pipeline(text, "p.yaml", root=tmp_path))
