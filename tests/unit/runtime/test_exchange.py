"""What a task sends to itself stays in its memory, and arrives as what it sends to others does."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from weft.runtime.wire import exchange
from weft.runtime.wire.exchange import FILE, KEPT, Exchange, KeptBatches, PackedBatches, Sender, SentParcel


def rows(count: int = 20_000) -> pa.RecordBatch:
    """A batch that is too large for a message."""
    return pa.RecordBatch.from_pydict({"n": list(range(count)), "text": [f"text {n}" for n in range(count)]})


def through_message(sent: PackedBatches) -> PackedBatches:
    """What a receiver has of it."""
    message = SentParcel("edge", Sender(0, 1), sent, (1,)).to_message(1)
    return SentParcel.from_message(message).packed


def test_own_batches_are_kept_and_arrive_once(tmp_path: Path) -> None:
    """They are written to no file, and their memory is free when they have arrived."""
    batch, kept = rows(), KeptBatches()
    here = Exchange(str(tmp_path), kept=kept)
    own, other = here.pack(batch, own=True), here.pack(batch)
    assert (own.how, other.how) == (KEPT, FILE)
    assert len(list(tmp_path.iterdir())) == 1
    for packed in (own, other):
        assert here.unpack(through_message(packed))[0].equals(batch)
    assert kept.bytes == 0
    with pytest.raises(KeyError):
        here.unpack(own)


def test_what_is_kept_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A task that sends itself more than there is room for would else run out of memory."""
    batch = rows()
    monkeypatch.setattr(exchange, "MOST_KEPT", int(2.5 * batch.nbytes))
    here = Exchange(str(tmp_path), kept=KeptBatches())
    packed = [here.pack(batch, own=True) for _ in range(4)]
    assert [one.how for one in packed] == [KEPT, KEPT, FILE, FILE]
    assert all(here.unpack(one)[0].equals(batch) for one in packed)
    assert here.pack(batch, own=True).how == KEPT


def test_nothing_is_kept_where_tasks_do_not_stay(tmp_path: Path) -> None:
    """Another process may run the next hop."""
    assert Exchange(str(tmp_path)).pack(rows(), own=True).how == FILE
