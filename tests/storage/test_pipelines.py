"""Pipeline files whose streams, results and state are in an object store: run, served, and refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.storage.test_sessions import joined
from tests.unit.service.api.running import running_hub, served, wait_for
from weft.connectors.files.parquet_sink import ParquetSink
from weft.errors import PipelineError
from weft.runtime.observe.inspect import inspect
from weft.runtime.state.open_segments import _BY_STORAGE
from weft.service.api.metrics import Metrics
from weft.service.client import Client
from weft.service.commands import run
from weft.service.commands.run import RunOptions, run_pipeline
from weft.service.hub.hub import SessionHub
from weft.service.hub.refusals import ForbiddenError
from weft.service.hub.values import NewQuery, NewStream
from weft.service.page.history import newest_letters
from weft.service.pipeline import load_pipeline
from weft.storage.objects import ObjectStorage

PIPELINE = """
streams:
  a: {schema: "k long, v long", source: {files: csv, path: "S3/in/a"}}
  b: {schema: "k long, v long", source: {files: csv, path: "S3/in/b"}}
queries:
  q: {sql: "SELECT a.k, a.v, b.v AS w FROM a, b WHERE a.k = b.k", sink: {parquet: "S3/out/q"}}
options: {partitions: 2}
checkpoint: S3/ck
execution: local
adapt: "off"
allow:
  sources: [{files: csv, path: "S3/in/*"}]
  sinks: [{parquet: "S3/out/*"}, {delta: "S3/lake/**"}]
"""


def put(place: str, stream: str, number: int, *rows: tuple[int, int]) -> None:
    """Put an object with rows of a stream."""
    lines = "".join(f"{k},{v}\n" for k, v in rows)
    ObjectStorage(f"{place}/in/{stream}").put(f"{number:04}.csv", f"k,v\n{lines}".encode())


def results(place: str) -> list[tuple[int, ...]]:
    """What a Parquet sink has committed."""
    found = []
    for uri in ParquetSink(place).committed_files():
        content = ObjectStorage(place).get(uri.removeprefix(f"{place}/"))
        found += pq.read_table(pa.BufferReader(content or b""), partitioning=None).to_pylist()
    return sorted(tuple(row.values()) for row in found)


def test_a_run_is_exact_over_restarts(s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`weft run` keeps its state where the file says, and the next run goes on from there."""
    monkeypatch.setattr(run, "prepare", lambda *_: None)
    file, sides = tmp_path / "p.yaml", dict[str, list[tuple[int, int]]](a=[], b=[])
    file.write_text(PIPELINE.replace("S3", s3))
    for number in range(2):
        for stream, rows in sides.items():
            rows += (new := [(number, 10 * number + len(rows)), (7, len(rows))])
            put(s3, stream, number, *new)
        run_pipeline(load_pipeline(file), RunOptions(available_now=True))
        assert results(f"{s3}/out/q") == sorted(joined(sides).elements())
    assert inspect(f"{s3}/ck").last_batch >= 1
    assert [one.name for one in tmp_path.iterdir() if one.name != "cache"] == ["p.yaml"]


def test_a_service_reads_and_keeps_all_in_the_store(s3: str, tmp_path: Path) -> None:
    """Streams and sinks of requests, dead letters and state; and after a restart, what requests had added."""
    text, sql = PIPELINE.replace("S3", s3), "SELECT c.k, a.v FROM a, c WHERE a.k = c.k"
    put(s3, "a", 0, (1, 10), (2, 20))
    ObjectStorage(f"{s3}/in/b").put("0000.csv", b"k,v\n1,5\nnot a number,6\n")
    with running_hub(tmp_path, text) as hub:
        wait_for(lambda: results(f"{s3}/out/q") == [(1, 10, 5)])
        wait_for(lambda: len(hub.dead_letters()) == 1)
        hub.add_stream(NewStream("c", {"files": "csv", "path": f"{s3}/in/c/"}, schema="k long, v long"))
        asked = {"parquet": f"{s3}/out/c".replace("s3:", "s3a:")}
        hub.create(NewQuery(sql, "more", sink=asked))
        put(s3, "c", 0, (2, 0))
        wait_for(lambda: results(f"{s3}/out/c") == [(2, 20)])
        for place in (f"{s3}/ck/x", f"{s3}/other", f"{s3}/out/../ck", f"{s3}/out/%63", "s3://else/out/c"):
            with pytest.raises(ForbiddenError):
                hub.create(NewQuery(sql, "wrong", sink={"parquet": place}))
        _check_letters(hub, s3)
    _BY_STORAGE.clear()  # as a new process would
    with running_hub(tmp_path, text) as again:
        put(s3, "c", 1, (1, 0))
        wait_for(lambda: results(f"{s3}/out/c") == [(1, 10), (2, 20)])
        assert again.state()["directory"] == "ck"
        wait_for(
            lambda: again.seen().totals.cache.misses > 0
        )  # it is told of a batch after its results are there
        counted = again.seen().totals.cache
        text = Metrics(again).text()
        assert f'weft_cache_lookups_total{{result="miss"}} {counted.misses}' in text
        assert f"weft_cache_fetched_bytes_total {counted.fetched}" in text
        assert again.stream("c").declared == "api"
    assert not (tmp_path / "ck").exists()


def _check_letters(hub: SessionHub, s3: str) -> None:
    """The bad record is shown by the page, the interface and the hub."""
    (info,) = hub.dead_letters()
    assert info.records == 1
    assert hub.dead_letters() == (info,)
    with served(hub) as (url, _):
        content = Client(url, token="").dead_letter(info.batch)
    assert b"not a number" in content
    assert len(content) == info.bytes
    batches, letters = newest_letters(f"{s3}/ck/dead_letters")
    assert (batches, [record.source for _, record in letters]) == (1, ["b"])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("checkpoint: s3://not-there/ck", "checkpoint: s3://not-there/ck: there is no such bucket"),
        ('parquet: "s3://not-there/out"', "queries.q.sink: s3://not-there/out: there is no such bucket"),
        ('path: "s3://not-there/in"', "streams.a.source.path: s3://not-there/in: there is no such bucket"),
    ],
)
def test_a_store_that_is_not_there_is_named_before_the_start(
    s3: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, wrong: str, message: str
) -> None:
    """Spark would be started for nothing."""
    monkeypatch.setattr(run, "prepare", lambda *_: pytest.fail("Spark was started"))
    name, _, _ = wrong.partition(": ")
    right = {"checkpoint": "checkpoint: S3/ck", "parquet": 'parquet: "S3/out/q"', "path": 'path: "S3/in/a"'}[
        name
    ]
    file = tmp_path / "p.yaml"
    file.write_text(PIPELINE.replace(right, wrong, 1).replace("S3", s3))
    with pytest.raises(PipelineError) as found:
        run_pipeline(load_pipeline(file), RunOptions(available_now=True))
    assert message in str(found.value)
