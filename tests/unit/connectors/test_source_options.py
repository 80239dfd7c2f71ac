"""What would be lost: a wrong option found only when the run has started, a demo that differs from run to run."""

from __future__ import annotations

import pickle
from collections import Counter
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.connectors.formats import writers
from weft.connectors.files.source import files
from weft.connectors.frames.source import dataframe, write_arrow_files
from weft.connectors.generate.rate import RateSource, choice, rate, sequence, timestamps, uniform, zipf
from weft.errors import SourceError, WeftError
from weft.logical.schema import Schema
from weft.ports.source import CursorContext, MemoryBlobs, Part


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: files("parkett", "in"), "unknown format 'parkett'\nhint: did you mean parquet?"),
        (lambda: files("csv", "in", schema="k int", delimeter=";"), "did you mean delimiter?"),
        (lambda: files("json", "in", schema="k int", quote="'"), "json has no option 'quote'"),
        (lambda: files("json", "in"), "/in do not tell their types"),
        (lambda: files("parquet", " "), "the path is empty"),
        (lambda: files("parquet", "in", max_files_per_batch=0), "max_files_per_batch is 0"),
        (lambda: files("csv", "in", schema="k int", delimiter=";;"), "csv delimiter is ';;'"),
        (lambda: files("csv", "in", schema="k int", quote="\n"), "csv quote is"),
        (lambda: files("csv", "in", schema="k int", quote=","), "delimiter and quote are both"),
        (lambda: files("csv", "in", schema="k int", encoding="utf-9"), "unknown encoding"),
        (lambda: files("csv", "in", schema="k itn"), "did you mean int?"),
        (lambda: files("parquet", "hdfs://name/in"), "hdfs://name/in is neither a path of this machine nor"),
        (lambda: files("parquet", "in", missing="ignore"), "missing cannot be 'ignore'"),
        (lambda: files("parquet", "in", clean="remove"), "clean cannot be 'remove'"),
        (lambda: files("parquet", "in", clean="archive"), "belong together"),
        (lambda: files("parquet", "in", archive="done"), "belong together"),
        (lambda: files("parquet", "in", unfinished_after=5), "unfinished_after cannot be 5"),
        (lambda: files("parquet", "in", unfinished_after=timedelta(-1)), "unfinished_after is negative"),
        (lambda: rate(0, k=sequence()), "0 rows per second"),
        (lambda: rate(5), "no columns"),
        (lambda: uniform(0), "at least one value"),
        (lambda: choice([]), "at least one value"),
        (lambda: choice({"a": -1.0}), "weights"),
        (lambda: dataframe(SimpleNamespace(isStreaming=False)), "not a streaming DataFrame"),
    ],
)
def test_what_cannot_work_is_refused_at_once(call: Any, message: str) -> None:
    with pytest.raises(WeftError) as caught:
        call()
    assert message in str(caught.value)


def test_the_schema_is_that_of_the_first_sound_file(tmp_path: Path) -> None:
    source = files("parquet", f"file://{tmp_path}")
    with pytest.raises(SourceError, match="no parquet file in"):
        source.resolve()
    (tmp_path / "a.parquet").write_bytes(b"cut off")
    (tmp_path / "_b.parquet").write_bytes(writers.to_parquet([], writers.PLAIN))
    with pytest.raises(SourceError, match="1 could not be read"):
        source.resolve()
    (tmp_path / "c.parquet").write_bytes(writers.to_parquet([]))
    assert source.resolve().schema == writers.SCHEMA
    (tmp_path / "d.arrow").write_bytes(writers.to_arrow_stream([]))
    assert files("arrow", str(tmp_path / "d.arrow")).resolve().schema == writers.SCHEMA


def test_a_type_that_cannot_be_had_is_named(tmp_path: Path) -> None:
    out = pa.table({"pause": pa.array([1], pa.duration("s"))})
    with pa.ipc.new_file(tmp_path / "a.arrow", out.schema) as writer:
        writer.write_table(out)
    with pytest.raises(SourceError, match="column pause has type duration"):
        files("arrow", str(tmp_path)).resolve()


def test_a_source_without_a_schema_cannot_be_read() -> None:
    with pytest.raises(SourceError, match="not known yet"):
        files("parquet", "in").read("views", Part({}))


def frame(**types: str) -> Any:
    """Stands for a streaming DataFrame."""
    fields = [
        SimpleNamespace(name=name, dataType=SimpleNamespace(simpleString=lambda kind=kind: kind))
        for name, kind in types.items()
    ]
    return SimpleNamespace(isStreaming=True, schema=SimpleNamespace(fields=fields))


def test_a_dataframe_brings_its_schema(tmp_path: Path) -> None:
    source = dataframe(frame(k="bigint", m="decimal(10,2)", ts="timestamp"))
    assert source.schema == Schema.parse("k long, m decimal(10,2), ts timestamp")
    sent = pickle.loads(
        pickle.dumps(source)
    )  # to a task, which reads what the DataFrame's rows were written to
    assert sent.frame is None
    rows = pa.record_batch({"k": [1], "m": [Decimal("1.50")], "ts": pa.array([0], pa.timestamp("us", "UTC"))})
    names = list(write_arrow_files(iter([rows.slice(0, 0), rows, rows]), str(tmp_path), "part"))
    assert names == ["part-000.arrow"]
    cursor = files("arrow", str(tmp_path), schema=source.schema).open(
        CursorContext("s", {}, MemoryBlobs(), tmp_path)
    )
    (part,) = cursor.look(0.0).parts
    assert sent.read("s", part).batch.to_pylist() == rows.to_pylist() * 2
    with pytest.raises(SourceError, match="column t has type timestamp_ntz"):
        dataframe(frame(t="timestamp_ntz"))


def demo(seed: int = 0) -> RateSource:
    return rate(
        7,
        seed=seed,
        n=sequence(5, 2),
        user=uniform(10),
        geo=choice({"US": 0.9, "DE": 0.1}),
        vid=zipf(50, 1.2),
        ts=timestamps(jitter="2 seconds"),
    )


@given(start=st.integers(0, 10**12), cuts=st.lists(st.integers(0, 40), max_size=5), seed=st.integers(0, 9))
def test_generated_rows_do_not_depend_on_the_batches(start: int, cuts: list[int], seed: int) -> None:
    source, at, parts = demo(seed), start, []
    for count in cuts:
        parts.append(source.generate(at, count))
        at += count
    whole = source.generate(start, sum(cuts))
    assert pa.Table.from_batches(parts, whole.schema).to_pylist() == whole.to_pylist()
    assert demo(seed).generate(start, 20) == source.generate(start, 20)


def test_generated_rows_are_as_described() -> None:
    batch = demo().generate(0, 20_000)
    assert demo().schema == Schema.parse("n long, user long, geo string, vid long, ts timestamp")
    assert batch["n"].to_pylist()[:3] == [5, 7, 9]
    assert set(batch["user"].to_pylist()) == set(range(10))
    assert Counter(batch["geo"].to_pylist())["US"] == pytest.approx(18_000, rel=0.02)
    often = Counter(batch["vid"].to_pylist())
    assert often[0] / often[1] == pytest.approx(2**1.2, rel=0.1)
    plain = rate(7, ts=timestamps()).generate(0, 20_000)["ts"].to_pylist()
    late = [on_time - jittered for on_time, jittered in zip(plain, batch["ts"].to_pylist(), strict=True)]
    assert timedelta(0) <= min(late) < max(late) <= timedelta(seconds=2)
    assert plain[14] - plain[0] == timedelta(seconds=2)
    assert demo(1).generate(0, 20) != demo(2).generate(0, 20)
