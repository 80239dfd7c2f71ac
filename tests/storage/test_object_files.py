"""Objects as the files of streams, and results as objects: exact, whole, and refused early where they cannot be."""

from __future__ import annotations

import io
import random
import uuid
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import weft
from tests.shares import seeds
from weft.connectors.files.parquet_sink import ParquetSink, to_parquet
from weft.connectors.files.source import files
from weft.connectors.sink_descriptions import make_sink, same_place
from weft.errors import ConfigError, SinkError, SourceError
from weft.ports.source import CursorContext, MemoryBlobs
from weft.storage.objects import ObjectStorage

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.int64())])


def parquet(rows: list[tuple[int, int]]) -> bytes:
    """Rows as a Parquet file."""
    out = io.BytesIO()
    keys, values = zip(*rows, strict=True)
    pq.write_table(pa.table({"k": keys, "v": values}, schema=SCHEMA), out)
    return out.getvalue()


def rows_of(sink: ParquetSink) -> Counter[tuple[int, ...]]:
    """What a reader by commits sees."""
    found: Counter[tuple[int, ...]] = Counter()
    for uri in sink.committed_files():
        data = ObjectStorage(str(sink.path)).get(uri.removeprefix(f"{sink.path}/"))
        assert data is not None
        found.update(tuple(row.values()) for row in pq.read_table(io.BytesIO(data)).to_pylist())
    return found


def sink_at(place: str) -> ParquetSink:
    """An open sink."""
    sink = to_parquet(f"{place}/out")
    sink.open(SCHEMA, "owner")
    sink.recover(-1)
    return sink


def table(*rows: tuple[int, int]) -> pa.Table:
    """Rows as a table."""
    return pq.read_table(io.BytesIO(parquet(list(rows))))


@pytest.mark.parametrize("seed", seeds(2))
def test_a_join_over_objects_is_exact(s3: str, tmp_path: Path, seed: int) -> None:
    """A session over s3:// would lose rows or have them twice, also after a restart."""
    chance = random.Random(seed)
    storage, expected = ObjectStorage(s3), Counter[tuple[int, ...]]()
    sides: dict[str, list[tuple[int, int]]] = {"a": [], "b": []}
    for _ in range(3):
        for name, rows in sides.items():
            new = [(chance.randrange(5), chance.randrange(1000)) for _ in range(chance.randrange(1, 12))]
            storage.put(f"in/{name}/{uuid.uuid4().hex}.parquet", parquet(new))
            rows += new
        session = weft.Session(checkpoint=tmp_path / "ck", execution="local")
        for name in sides:
            session.stream(
                name, weft.files("parquet", f"{s3}/in/{name}", max_files_per_batch=chance.randrange(1, 3))
            )
        sink = to_parquet(f"{s3.replace('s3://', 's3a://')}/out")
        session.query("SELECT a.k, a.v, b.v AS w FROM a, b WHERE a.k = b.k", name="q", sink=sink)
        session.run_available()
        expected = Counter((k, v, w) for k, v in sides["a"] for other, w in sides["b"] if k == other)
        assert rows_of(to_parquet(f"{s3}/out")) == expected


def test_objects_that_changed_or_went_are_noticed(s3: str) -> None:
    """A batch that is repeated would silently have other rows."""
    storage = ObjectStorage(s3)
    storage.put("in/x.parquet", parquet([(1, 2)]))
    storage.put("in/_hidden.parquet", b"?")
    storage.put("in/deep/y.parquet", parquet([(3, 4)]))
    source = files("parquet", f"{s3}/in").resolve()
    cursor = source.open(CursorContext("s", {}, MemoryBlobs(), Path()))
    (part,) = cursor.look(0.0).parts
    assert source.read("s", part).batch.to_pydict() == {"k": [1], "v": [2]}
    cursor.take([part])
    assert cursor.look(0.1).parts == ()
    again = source.open(CursorContext("s", cursor.state(), MemoryBlobs(), Path()))
    assert again.look(0.0).parts == ()
    storage.put("in/x.parquet", parquet([(1, 9)]))
    with pytest.raises(SourceError, match="has changed"):
        source.read("s", part)
    storage.delete("in/x.parquet")
    with pytest.raises(SourceError, match="is missing"):
        source.read("s", part)
    skipping = files("parquet", f"{s3}/in", schema="k long, v long", missing="skip")
    assert len(skipping.read("s", part).bad) == 1
    deep = files("parquet", f"{s3}/in", schema="k long, v long", recursive=True)
    assert [path.removeprefix(s3) for path in deep.paths()] == ["/in/deep/y.parquet"]


def test_a_batch_is_seen_as_a_whole(s3: str) -> None:
    """A reader by commits would see half a batch, or one of an attempt that was lost."""
    sink = sink_at(s3)
    sink.begin(0)
    lost = sink.write_part(0, 0, table((7, 7)))
    one, two = sink.write_part(0, 0, table((1, 1))), sink.write_part(0, 1, table((2, 2)))
    assert sink.committed_files() == []
    sink.commit_parts(0, [one, two])
    assert rows_of(sink) == Counter([(1, 1), (2, 2)])
    assert lost not in str(ObjectStorage(str(sink.path)).entries())
    sink.begin(0)
    sink.commit_parts(0, [sink.write_part(0, 0, table((1, 1))), sink.write_part(0, 1, table((2, 2)))])
    assert rows_of(sink) == Counter([(1, 1), (2, 2)]), "a batch that is repeated is there once"


def test_an_interrupted_commit_is_repeated(s3: str) -> None:
    """Files of a commit that a crash interrupted would stay beside those of its repetition."""
    sink = sink_at(s3)
    name = sink.write_part(0, 0, table((1, 1)))
    storage = ObjectStorage(str(sink.path))
    storage.copy(f"_weft/pending/0/{name}", f"batch=0/{name}")
    assert sink.committed_files() == []
    sink.recover(-1)
    sink.commit(0, table((1, 1)))
    assert rows_of(sink) == Counter([(1, 1)])
    assert len(storage.list("batch=0")) == 1


def test_a_session_that_is_late_deletes_nothing(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session paused in its commit would delete what its follower has committed, or the parts of its tasks."""
    late, follower, copy = sink_at(s3), sink_at(s3), ObjectStorage.copy
    mine = late.write_part(0, 0, table((1, 1)))

    def pause(storage: ObjectStorage, name: str, target: str) -> bool:
        monkeypatch.setattr(ObjectStorage, "copy", copy)
        follower.begin(0)
        follower.commit_parts(0, [follower.write_part(0, 0, table((1, 1)))])
        return storage.copy(name, target)

    monkeypatch.setattr(ObjectStorage, "copy", pause)
    late.commit_parts(0, [mine])
    assert rows_of(late) == Counter([(1, 1)])
    assert len(ObjectStorage(str(late.path)).list("batch=0")) == 1
    theirs = follower.write_part(1, 0, table((2, 2)))
    late.begin(1)
    follower.commit_parts(1, [theirs])
    assert rows_of(late) == Counter([(1, 1), (2, 2)])


def test_a_place_that_is_deleted_while_a_session_runs_is_noticed(s3: str) -> None:
    """Results would go on as if nothing were missing; without them is gone on only if somebody says so."""
    sink = sink_at(s3)
    sink.commit(0, table((1, 1)))
    sink.commit(1, table((2, 2)))
    storage = ObjectStorage(str(sink.path))
    before = {entry.name: storage.get(entry.name) or b"" for entry in storage.entries()}
    for name in before:
        storage.delete(name)
    for _ in range(2):  # it is tried again
        with pytest.raises(SinkError, match="is gone, with the results of earlier batches") as caught:
            sink.commit(2, table((3, 3)))
    assert sink.committed_files() == []
    for name, content in before.items():
        storage.put(name, content)
    sink.commit(2, table((3, 3)))
    assert rows_of(sink) == Counter([(1, 1), (2, 2), (3, 3)])
    for entry in storage.entries():
        storage.delete(entry.name)
    named, _, told = (caught.value.hint or "").partition("put the object ")[2].partition(": ")
    storage.put(named.removeprefix(f"{sink.path}/").replace("/1.json", "/2.json"), told.encode())
    sink.commit(3, table((4, 4)))
    assert rows_of(sink) == Counter([(4, 4)])


def test_what_cannot_be_written_is_refused_before_the_start(s3: str) -> None:
    """A run would fail at its first commit, or write into another's results."""
    sink_at(s3)
    other = to_parquet(f"{s3}/out")
    with pytest.raises(SinkError, match="another checkpoint"):
        other.open(SCHEMA, "another")
    with pytest.raises(ConfigError, match="no such bucket"):
        to_parquet("s3://not-there/out").open(SCHEMA, "owner")
    with pytest.raises(SinkError, match="lacks its file"):
        sink_at(f"{s3}/second").commit_parts(0, ["gone.parquet"])
    ahead = sink_at(f"{s3}/third")
    ahead.commit(3, table((1, 1)))
    with pytest.raises(SinkError, match="the checkpoint ends with 0"):
        ahead.recover(0)
    with pytest.raises(SourceError, match="cannot be cleaned up"):
        files("parquet", f"{s3}/in", clean="delete")
    with pytest.raises(ConfigError, match="no such bucket"):
        files("json", "s3://not-there/in", schema="k long").open(
            CursorContext("s", {}, MemoryBlobs(), Path())
        )


def test_a_sink_is_made_again(s3: str) -> None:
    """Tasks and restarts could not write to it."""
    sink = to_parquet(f"{s3}/out", compression="zstd").in_order()
    assert make_sink(sink.describe()) == sink
    assert same_place(sink, to_parquet(f"{s3.replace('s3:', 's3a:')}/out/"))
    assert not same_place(sink, to_parquet(f"{s3}/other"))
