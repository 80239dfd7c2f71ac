"""What would be lost: a result that is in a Delta table of an object store twice or not at all."""

from __future__ import annotations

import json
import os
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import weft
from tests.lakes.killing import killed_run, wanted
from tests.lakes.story import OWNER, SCHEMA, commit, crash_at, expected, live, rows, started
from tests.lakes.test_delta import content
from tests.shares import seeds
from weft.connectors.delta import sink as delta
from weft.connectors.delta.sink import DeltaSink
from weft.connectors.files.places import ObjectPlace
from weft.connectors.sink_descriptions import describe_sink, make_sink, portable_description, same_place
from weft.errors import ConfigError, SinkError, SourceError
from weft.storage.objects import ObjectStorage

deltalake = pytest.importorskip("deltalake", reason='needs pip install "weft[delta]"')


@pytest.mark.parametrize("partition_by", [(), ("c",)])
@pytest.mark.parametrize("seed", seeds(2))
def test_a_crash_at_any_step_leaves_every_row_once(
    s3: str, seed: int, partition_by: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The story of tables in directories, with the steps that there are in a store."""
    steps = [(ObjectPlace, "flush"), (deltalake.DeltaTable, "create_write_transaction")]
    crash = crash_at(monkeypatch, steps)
    given = live(lambda: weft.to_delta(s3, partition_by=partition_by), crash, random.Random(seed))
    assert content(s3) == expected(given)


@pytest.mark.slow
def test_a_session_that_is_killed_adds_every_result_once(s3: str, tmp_path: Path) -> None:
    """The whole way, with `kill -9` at random moments."""
    killed_run(tmp_path, "delta", s3, 2, 5, os.environ)
    assert content(s3) == wanted()


def test_a_slower_driver_cannot_add_a_batch_again(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both see a table without the batch; the store refuses the second transaction, without any lock."""
    one, other = (started(lambda: weft.to_delta(s3), -1) for _ in "ab")
    stale = deltalake.DeltaTable(s3)
    commit(one, 0, [1], random.Random(0))
    monkeypatch.setattr(DeltaSink, "_table", lambda _: stale)
    with pytest.raises(SinkError, match=r"cannot be given batch 0: .*[Cc]oncurrent transaction"):
        commit(other, 0, [1], random.Random(0))
    assert content(s3) == expected([1])


def test_writers_that_commit_at_once_lose_nothing(s3: str) -> None:
    """A commit that is not conditional would replace that of another writer."""
    started(lambda: weft.to_delta(s3), -1)

    def write(writer: int) -> None:
        sink = started(lambda: weft.to_delta(s3), -1, f"checkpoint-{writer}")
        for batch in range(4):
            sink.commit(batch, rows([writer * 100 + batch]))

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(write, range(4)))
    assert content(s3) == expected([writer * 100 + batch for writer in range(4) for batch in range(4)])
    assert deltalake.DeltaTable(s3).version() == 16


@pytest.mark.parametrize("taken", [True, False])
def test_a_transaction_whose_answer_is_lost(s3: str, taken: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the store has taken it, the batch is done; if not, the batch is repeated."""
    sink, real = started(lambda: weft.to_delta(s3), -1), deltalake.DeltaTable.create_write_transaction

    def cut_off(*args: Any, **options: Any) -> None:
        if taken:
            real(*args, **options)
        raise OSError("Generic S3 error\n  ↳ connection reset by http://host/x?X-Amz-Signature=secret")

    with monkeypatch.context() as patched:
        patched.setattr(deltalake.DeltaTable, "create_write_transaction", cut_off)
        if taken:
            sink.commit(0, rows([1]))
        else:
            with pytest.raises(
                SinkError, match=r"Generic S3 error: connection reset by http://host/x\n"
            ) as found:
                sink.commit(0, rows([1]))
            assert "secret" not in str(found.value)
    sink.commit(0, rows([1]))
    started(lambda: weft.to_delta(s3), -1).commit(0, rows([1]))
    assert content(s3) == expected([1])


def test_a_file_that_is_gone_is_named(s3: str) -> None:
    """The table would name a file that nobody can read."""
    sink = started(lambda: weft.to_delta(s3), -1)
    part = sink.write_part(0, 0, rows([1]))
    storage = ObjectStorage(s3)
    (name,) = [one.name for one in storage.entries() if one.name.endswith(".parquet")]
    storage.delete(name)
    with pytest.raises(SinkError, match=f"batch 0 lacks its file {name}"):
        sink.commit_parts(0, [part])


def test_small_files_are_compacted(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost, also when a batch is replayed after that."""
    monkeypatch.setattr(delta, "_FILES_TO_COMPACT", 4)
    sink = started(lambda: weft.to_delta(s3, compact=True), -1)
    for batch in range(5):
        sink.commit(batch, rows([batch]))
    assert len(deltalake.DeltaTable(s3).file_uris()) == 2
    sink.commit(4, rows([4]))
    assert content(s3) == expected([0, 1, 2, 3, 4])


def test_what_cannot_be_used_is_refused_before_the_start(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session would start, and its first batch fail."""
    with pytest.raises(ConfigError, match="no such bucket"):
        weft.to_delta("s3://not-there/t").open(SCHEMA, OWNER)
    ObjectStorage(s3).put("deep/below/mine.txt", b"here")
    with pytest.raises(SinkError, match="not empty, and not a Delta table"):
        weft.to_delta(s3).open(SCHEMA, OWNER)
    weft.to_delta(f"{s3}/t").open(SCHEMA, OWNER)
    with pytest.raises(SinkError, match="is partitioned by"):
        weft.to_delta(f"{s3}/t", partition_by="c").open(SCHEMA, OWNER)
    with pytest.raises(SourceError, match=r"s3://.*/none cannot be opened: .*") as found:
        weft.delta(f"{s3}/none").version()
    assert "<?xml" not in str(found.value)
    with pytest.raises(SourceError, match=r"delta: .* names no storage"):
        weft.delta("hdfs://host/t")
    monkeypatch.setenv("AWS_S3_LOCKING_PROVIDER", "dynamodb")
    with pytest.raises(ConfigError, match="AWS_S3_LOCKING_PROVIDER is set"):
        weft.to_delta(f"{s3}/t").open(SCHEMA, OWNER)


def test_it_is_made_again_as_it_was(s3: str) -> None:
    """After a crash, and in tasks; two spellings of a place are one table."""
    sink = weft.to_delta(s3.replace("s3://", "s3a://") + "/", partition_by=["c"], compact=True)
    before = describe_sink(sink)
    assert before == portable_description(sink)
    assert before is not None
    again = make_sink(json.loads(json.dumps(before)))
    assert again == sink
    assert same_place(again, weft.to_delta(s3))
    sink.open(SCHEMA, OWNER)
    part = again.open_part(0, 7)
    part.write(rows([1, 2, 3]).to_batches()[0])
    lost = again.open_part(0, 7)
    lost.write(rows([9]).to_batches()[0])
    lost.abort()
    sink.commit_parts(0, [part.close()])
    assert content(s3) == expected([1, 2, 3])
