"""An object store that delays, fails, breaks off and repeats requests: storage and joins stay what they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.equivalence.test_spark import Case, make_case, metrics_of, run, wrong
from tests.shares import numbers, share_of
from tests.storage.s3_front import KINDS, Front, Trouble
from weft.connectors.files.parquet_sink import ParquetSink, to_parquet
from weft.kernels.expr.arrow import result_schema
from weft.runtime.log.checkpoint import Checkpoint
from weft.runtime.loop.driver_order import POLICIES
from weft.storage.objects import ObjectStorage
from weft.storage.storage import storage_at


@pytest.mark.parametrize("kind", KINDS)
def test_a_storage_keeps_its_word(front: Front, s3: str, kind: str) -> None:
    """A request that broke off would end a session, or be taken for one that others had answered before."""
    front.begin(KINDS.index(kind), Trouble(60, (kind,), 0.02))
    storage = ObjectStorage(s3)
    storage.check()
    for number in range(share_of(1)):
        data = f"mine {number}".encode() * 100
        assert storage.put_if_absent(f"first/{number}", data)
        assert not storage.put_if_absent(f"first/{number}", b"yours")
        storage.put(f"any/{number}", data)
        assert storage.get(f"any/{number}") == storage.get(f"first/{number}") == data
        assert storage.list("any") == [str(number)]
        assert len(storage.entries()) == 2
        assert storage.copy(f"any/{number}", f"copy/{number}")
        assert not storage.copy(f"none/{number}", f"copy/{number}")
        assert storage.read_version(f"copy/{number}") is not None
        assert storage.read_version("none") is None
        for name in (f"copy/{number}", f"any/{number}", f"first/{number}"):
            storage.delete(name)
        assert storage.entries() == []
    assert front.counts[kind], "there was no trouble"


class Fetched:
    """The sink of a case, as those who compare results read it."""

    def __init__(self, case: Case, sink: ParquetSink) -> None:
        self.sink, self._schema = sink, result_schema(case.join.query)

    def results(self) -> pa.Table:
        """What a reader by commits sees."""
        storage = ObjectStorage(str(self.sink.path))
        names = [uri.removeprefix(f"{self.sink.path}/") for uri in self.sink.committed_files()]
        tables = [pq.ParquetFile(BytesIO(storage.get(name) or b"")).read() for name in names]
        return pa.concat_tables([self._schema.empty_table(), *tables])


def on_store(case: Case, root: Path, place: str) -> Case:
    """A case with its input and its sink in an object store."""
    storage, sources = ObjectStorage(place), {}
    for name, source in case.sources.items():
        for file in sorted((root / "in" / name).iterdir()):
            storage.put(f"in/{name}/{file.name}", file.read_bytes())
        sources[name] = replace(source, path=f"{place}/in/{name}")
    return replace(case, sources=sources, sink=to_parquet(f"{place}/out/{case.name}"))


def check(cases: Sequence[Case], place: str, partitions: int, policy: str) -> None:
    """Run cases in this process, with their state in the store, and compare with the definition."""
    loop = run(None, cases, Checkpoint(storage_at(f"{place}/ck")), partitions, policy, "local")
    for case in cases:
        metrics = metrics_of(case, loop)
        assert len(metrics) >= len(case.join.batches)
        assert not wrong(replace(case, sink=Fetched(case, case.sink)), metrics)


@pytest.mark.parametrize("block", range(share_of(1)))
def test_random_joins_answer_like_the_definition(front: Front, s3: str, tmp_path: Path, block: int) -> None:
    """State, input or results would be lost or doubled where a request is: everything is in the store here."""
    partitions, policy = 1 + block % 3, list(POLICIES)[block % len(POLICIES)]
    cases = [
        on_store(make_case(number, partitions, tmp_path / str(number)), tmp_path / str(number), s3)
        for number in numbers(2, block)
    ]
    front.begin(block, Trouble(percent=8, delay=0.05))
    check(cases, s3, partitions, policy)
    assert sum(front.counts.values()) >= 5, front.counts
