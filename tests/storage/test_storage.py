"""What the log relies on, asked of every storage: a disk, memory, an object store."""

from __future__ import annotations

import errno
import os
import pickle
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.shares import examples, seeds
from tests.storage import s3_server
from weft.errors import ConfigError, StateError
from weft.runtime.log.checkpoint import Checkpoint
from weft.storage.objects import ObjectStorage, _store
from weft.storage.storage import LocalDisk, Storage, new_memory, storage_at
from weft.storage.uris import normal_place


@pytest.fixture(
    params=["disk", "memory", pytest.param("s3", marks=[pytest.mark.ci, pytest.mark.xdist_group("s3")])]
)
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    """A new storage of each kind."""
    if request.param == "s3":
        return storage_at(request.getfixturevalue("s3"))
    return storage_at(str(tmp_path / "root") if request.param == "disk" else new_memory())


def test_what_was_put_is_there(storage: Storage) -> None:
    """A log would lose its entries."""
    assert storage.get("a/b.json") is None
    assert storage.open_local("a/b.json") is None
    assert storage.list("a") == []
    storage.put("a/b.json", b"one")
    storage.put("a/b.json", b"two")
    storage.put("a/c/d.json", b"")
    assert storage.get("a/b.json") == b"two"
    assert storage.get("a/c/d.json") == b""
    found = storage.open_local("a/b.json")
    assert found is not None
    assert found.to_pybytes() == b"two"
    assert [name for name in storage.list("a") if name != "c"] == ["b.json"]
    storage.delete("a/b.json")
    storage.delete("a/b.json")
    assert storage.get("a/b.json") is None


def test_the_first_to_put_stays(storage: Storage) -> None:
    """Two drivers would both commit a batch."""
    assert storage.put_if_absent("state/1.json", b"mine")
    assert not storage.put_if_absent("state/1.json", b"yours")
    assert storage.get("state/1.json") == b"mine"
    assert storage.put_if_absent("state/1.json", b"mine"), "a repeated request must find its own entry"
    assert storage.list("state") == ["1.json"]


def test_of_many_at_once_one_puts(storage: Storage) -> None:
    """The same in a race: exactly one of many is told that it was first, and its bytes are there."""
    for turn in range(5):
        with ThreadPoolExecutor(8) as pool:
            each = [f"{turn}-{one}".encode() for one in range(8)]
            won = list(pool.map(lambda data, name=f"lease/{turn}": storage.put_if_absent(name, data), each))
        assert sum(won) == 1
        assert storage.get(f"lease/{turn}") == each[won.index(True)]


def test_of_many_at_once_the_last_stays(storage: Storage) -> None:
    """Two writers of an entry would write into each other's file, or fail."""
    for turn in range(5):
        each = [f"{turn}-{one}".encode() * 1000 for one in range(8)]
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda data, name=f"any/{turn}": storage.put(name, data), each))
        assert storage.get(f"any/{turn}") in each


def test_what_killed_writers_left_is_deleted(tmp_path: Path) -> None:
    """A directory would fill with halves of files, crash by crash."""
    log = Checkpoint.at(tmp_path / "ck")
    log.open({})
    log.close()
    for folder in ("", "lease", "plan", "state", "state/buckets"):
        (tmp_path / "ck" / folder).mkdir(exist_ok=True)
        (tmp_path / "ck" / folder / ".1.json.0123.tmp").write_bytes(b"half of")
    again = Checkpoint.at(tmp_path / "ck")
    again.open({})
    again.clean()
    again.close()
    assert not list((tmp_path / "ck").rglob(".*.tmp"))


def test_a_storage_travels(storage: Storage) -> None:
    """Tasks in other processes could not open the log."""
    if storage.__class__.__name__ != "Memory":
        assert pickle.loads(pickle.dumps(storage)) == storage


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOTSUP])
def test_a_share_without_links_decides_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """On a share that has no hard links, nothing could be committed, or twice."""

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "link", refuse)
    disk = LocalDisk(tmp_path)
    assert disk.put_if_absent("x", b"1")
    assert not disk.put_if_absent("x", b"2")
    assert disk.get("x") == b"1"
    assert os.listdir(tmp_path) == ["x"]


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("s3a://weft/ck/", "s3://weft/ck"),
        ("S3://weft//a//b", "s3://weft/a/b"),
        ("file:///x%20y", "/x y"),
        ("gs://b", "gs://b"),
    ],
)
def test_a_place_has_one_spelling(given: str, meant: str) -> None:
    """Two spellings of one checkpoint would be two checkpoints."""
    assert normal_place(given) == meant


@pytest.mark.parametrize("seed", seeds(30))
def test_a_store_reads_a_place_as_it_is_written(seed: int) -> None:
    """Of two texts that differ, a store's library could make one place: what is compared would not be what is used."""
    obstore = pytest.importorskip("obstore.store", reason='needs pip install "weft[objects]"')
    chance = random.Random(seed)
    for _ in range(50):
        signs = [chance.choice("ab/.% \t\n:;@?#*[]~\\ü+&=2fFeE$") for _ in range(chance.randrange(12))]
        try:
            place = normal_place(f"{chance.choice(('s3', 's3a', 'S3'))}://bucket/{''.join(signs)}")
        except ConfigError:
            continue
        found = obstore.from_url(place, region="x", access_key_id="x", secret_access_key="x")
        assert normal_place(place) == place
        assert place == f"s3://{found.config['bucket']}/{found.prefix or ''}".rstrip("/")


@pytest.mark.parametrize(
    "wrong",
    [
        *("s3://", "ftp://host/x", "s3://b/../c", "abfs://c/x", "s3://key:secret@b/c", "s3://b/c?sig=secret"),
        *(
            "s3://secret@b/c",
            "s3://b/%63",
            "s3://b/a%2fc",
            "s3://b/c ",
            "s3://b/c /",
            "s3://b/a\tb",
            "s3://b/c#x",
        ),
        *("s3://b:9/c", "s3://%62/c", "s3:///c", "gs://b/a%00"),
    ],
)
def test_a_wrong_uri_is_refused_without_its_secret(wrong: str) -> None:
    """A typing error would be found late, or a key be written to a log."""
    with pytest.raises(ConfigError) as found:
        normal_place(wrong)
    assert "secret" not in str(found.value)
    assert found.value.hint


def test_a_store_that_cannot_be_used_is_refused(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run would start and fail in its first batch."""
    ObjectStorage(s3).check()
    with pytest.raises(ConfigError, match="no such bucket"):
        ObjectStorage("s3://not-there/ck").check()
    with pytest.raises(StateError, match="s3://not-there/ck/x cannot be written"):
        ObjectStorage("s3://not-there/ck").put("x", b"1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    _store.cache_clear()
    with pytest.raises(ConfigError, match="cannot be reached"):
        ObjectStorage(s3).check()


@examples(200)
@given(
    milliseconds=st.floats(0.1, 9_000, allow_nan=False),
    bucket=st.sampled_from(["weft", "weft-token", "metadata", "credentials", "b401", "403"]),
    name=st.sampled_from(["ck", "403", "401/token", "metadata/ck"]),
)
def test_neither_names_nor_times_are_taken_for_reasons(milliseconds: float, bucket: str, name: str) -> None:
    """A store that does not answer in 403 ms, or a bucket of tokens, would be said to deny access."""
    request = f"GET http://127.0.0.1:9/{bucket}?list-type=2&prefix={name} in {milliseconds}ms"
    text = (
        f"Generic S3 error: Error performing {request}, after 2 retries - HTTP error: error sending request"
    )
    refusal = ObjectStorage(f"s3://{bucket}/{name}")._refusal(RuntimeError(text))
    assert "cannot be reached" in str(refusal)


def test_missing_credentials_are_named(s3: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user would see a time-out of an address that nobody knows."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    _store.cache_clear()
    with pytest.raises(ConfigError, match="no credentials") as found:
        ObjectStorage(s3).check()
    assert "AWS_ACCESS_KEY_ID" in str(found.value.hint)


def test_the_test_server_is_on_loopback(s3_url: str) -> None:
    """Tests would reach for the world."""
    assert s3_url.startswith("http://127.0.0.1:")
    assert s3_server.environment(s3_url)["AWS_ENDPOINT_URL"] == s3_url
