"""An object store as a storage: S3 and what speaks like it, Google Cloud Storage, Azure.

Guarantees: an entry is one object, put by one request; one that is put if absent is put by a conditional request
(`If-None-Match: *`), so the store itself decides who is first. Requests are repeated while the store does not answer,
for a minute at most; each can be, since repeating it changes nothing.
Credentials and the endpoint are the environment's; no value, log or error has them. Needs `weft[objects]`.
"""

from __future__ import annotations

import os
import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from weft.errors import ConfigError, StateError
from weft.storage.cache import CacheCounts, DiskCache, default_cache
from weft.storage.uris import join_uri

__all__ = [
    "ObjectStatus",
    "ObjectStorage",
    "delta_options",
    "delta_reason",
    "host_cache",
    "take_cache_counts",
]

_PATIENCE = timedelta(seconds=60)  # for which a request is repeated
_PROBED = timedelta(
    seconds=8
)  # the same where somebody waits: is there a store at all, and is it there again?
_TIMEOUT = timedelta(seconds=20)  # of one request
_CONNECTED = timedelta(seconds=5)  # within which a connection is made
_TRIES = {_PATIENCE: 10, _PROBED: 4}  # how often the library repeats a request, besides the first time
_BROKEN_OFF = "HTTP error"  # in errors of connections, as the library words them

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class ObjectStatus:
    """What a store says of an object; ``name`` is relative, ``tag`` another for other content."""

    name: str
    size: int
    tag: str
    modified: datetime


@dataclass(frozen=True, slots=True)
class ObjectStorage:
    """The objects below a URI, as `weft.storage.uris.normal_place` spells it.

    A store that does not answer is given up after a minute, or, if it is asked by somebody ``hurried``, after seconds.
    """

    uri: str
    hurried: bool = field(default=False, compare=False)

    def put(self, name: str, data: bytes, *, flush: bool = True) -> None:  # noqa: ARG002
        """Put an object; when this returns, the store has it, whatever happens to this machine."""
        with self._naming(name, "written"):
            self._repeat(lambda: _library().put(self._store, name, data, use_multipart=False))

    def put_if_absent(self, name: str, data: bytes, *, flush: bool = True) -> bool:  # noqa: ARG002
        """Put an object if there is none; one with the same bytes was put by an attempt whose answer was lost."""
        with self._naming(name, "written"):
            return self._repeat(lambda: self._put_first(name, data))

    def _put_first(self, name: str, data: bytes) -> bool:
        """Put an object if there is none; the store also turns down one of two that are put at the same time."""
        for pause in _pauses():
            try:
                _library().put(self._store, name, data, mode="create", use_multipart=False)
            except _library().exceptions.AlreadyExistsError:
                there = self.get(name)
                if there is not None:
                    return there == data
                time.sleep(pause)  # nobody has put it: there was a conflict (409), and now there may be none
            else:
                return True
        raise TimeoutError("its puts are in conflict with others, and no object appears")

    def put_file(self, name: str, path: Path) -> None:
        """Put an object with the content of a file, in parts if it is large; it is there when all of it is."""
        with self._naming(name, "written"):
            self._repeat(lambda: _library().put(self._store, name, path))

    def exists(self, name: str) -> bool:
        """Whether there is such an object."""
        with self._naming(name, "read"):
            try:
                self._repeat(lambda: _library().head(self._store, name))
            except FileNotFoundError:
                return False
        return True

    def get(self, name: str) -> bytes | None:
        """The content of an object."""
        content = self._fetch(name)
        return None if content is None else content.to_pybytes()

    def open_local(self, name: str) -> pa.Buffer | None:
        """The content of an object that never changes, from the cache of this host if it is there."""
        cache, entry = host_cache(), self.locate(name)
        content = cache.find(entry)
        if content is None:
            content = self._fetch(name)
            if content is not None:
                cache.keep(entry, content)
        return content

    def _fetch(self, name: str) -> pa.Buffer | None:
        with self._naming(name, "read"):
            try:
                return pa.py_buffer(self._repeat(lambda: _library().get(self._store, name).bytes()))
            except FileNotFoundError:
                return None

    def list(self, folder: str) -> list[str]:
        """The objects right below a prefix."""
        return list(self.sizes(folder))

    def sizes(self, folder: str) -> dict[str, int]:
        """The objects right below a prefix and their sizes."""
        with self._naming(folder, "listed"):
            listed = self._repeat(
                lambda: _library().list_with_delimiter(self._store, folder or None)["objects"]
            )
            return {
                entry["path"].rpartition("/")[2]: entry["size"]
                for entry in sorted(listed, key=lambda entry: entry["path"])
            }

    def entries(self) -> Sequence[ObjectStatus]:
        """All objects below the URI, however deep."""
        with self._naming("", "listed"):
            listed = self._repeat(lambda: [entry for page in _library().list(self._store) for entry in page])
            return [
                ObjectStatus(entry["path"], entry["size"], entry["e_tag"] or "", entry["last_modified"])
                for entry in listed
            ]

    def is_empty(self) -> bool:
        """Whether there is no object below the URI, however deep."""
        with self._naming("", "listed"):
            return self._repeat(
                lambda: not any(len(page) for page in islice(_library().list(self._store), 1))
            )

    def read_version(self, name: str) -> tuple[bytes, str] | None:
        """The content of an object with its tag, which is another for other content; None if there is none."""

        def read() -> tuple[bytes, str]:
            answer = _library().get(self._store, name)
            return answer.bytes().to_bytes(), answer.meta["e_tag"] or ""

        with self._naming(name, "read"):
            try:
                return self._repeat(read)
            except FileNotFoundError:
                return None

    def copy(self, name: str, target: str) -> bool:
        """Have the store copy an object, in place of one that is there; False if there is nothing to copy."""
        with self._naming(name, "copied"):
            try:
                self._repeat(lambda: _library().copy(self._store, name, target))
            except FileNotFoundError:
                return False
        return True

    def delete(self, name: str) -> None:
        """Delete an object."""
        with self._naming(name, "deleted"):
            try:
                self._repeat(lambda: _library().delete(self._store, name))
            except FileNotFoundError:
                return

    def path(self, name: str) -> None:  # noqa: ARG002
        """None, since an object is in no file."""
        return

    def locate(self, name: str) -> str:
        """The URI of an object."""
        return join_uri(self.uri, name)

    def check(self) -> None:
        """Refuse a store that is not there, cannot be used, or does not keep what is put if absent; quick to say so."""
        store, library = _store(self.uri, _PROBED), _library()
        try:
            _repeated(lambda: library.list_with_delimiter(store, "weft-probe"), _PROBED)
        except Exception as error:
            raise self._refusal(error) from None

    def _refusal(self, error: Exception) -> ConfigError:
        """What is wrong with the store, in words that say what to do."""
        text = str(error)
        if re.search(r"NoSuchBucket|ContainerNotFound|\b404 Not Found", text):
            return ConfigError(f"{self.uri}: there is no such bucket", hint="make it, or name another")
        if _lacks_credentials(text):
            return ConfigError(f"{self.uri}: there are no credentials for it", hint=_CREDENTIALS)
        denied = (_library().exceptions.PermissionDeniedError, _library().exceptions.UnauthenticatedError)
        if isinstance(error, denied) or re.search(r"\b(401 Unauthorized|403 Forbidden)", text):
            return ConfigError(f"{self.uri}: the store denies access", hint=_CREDENTIALS)
        return ConfigError(f"{self.uri} cannot be reached: {_reason(error)}", hint="is its endpoint right?")

    @property
    def _store(self) -> Any:
        return _store(self.uri, self._patience)

    @property
    def _patience(self) -> timedelta:
        return _PROBED if self.hurried else _PATIENCE

    def _repeat(self, request: Callable[[], _T]) -> _T:
        return _repeated(request, self._patience)

    @contextmanager
    def _naming(self, name: str, what: str) -> Iterator[None]:
        """Turn errors of the store into errors that name the object."""
        try:
            yield
        except (_library().exceptions.BaseError, OSError) as error:
            raise StateError(
                f"{self.locate(name)} cannot be {what}: {_reason(error)}",
                hint="see whether the store answers and allows it; a session started again goes on where it was",
            ) from error


_CREDENTIALS = (
    "set what its tools use too: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION, "
    "GOOGLE_APPLICATION_CREDENTIALS, or AZURE_STORAGE_ACCOUNT_KEY"
)


# What a library asks of the machine it runs on if it was given no credentials: AWS, Google Cloud, Azure.
_CREDENTIAL_REQUEST = re.compile(r"/latest/(?:api/token|meta-data)|/computeMetadata/|/metadata/identity/")


def _lacks_credentials(text: str) -> bool:
    """Whether an error is about credentials that the library looked for; the names of places say nothing of that."""
    said = re.sub(r"\S+://\S+", "", text.split("\n")[0])
    return bool(_CREDENTIAL_REQUEST.search(text) or re.search("redential|token", said))


def _reason(error: Exception) -> str:
    """The first line of an error, without the options of URLs, which may hold signatures."""
    return re.sub(r"\?\S+", "", str(error).split("\n")[0])


def _repeated(request: Callable[[], _T], patience: timedelta) -> _T:
    """Repeat a request whose connection broke off; the library repeats only those that it knows to be harmless."""
    until = time.monotonic() + patience.total_seconds()
    for pause in _pauses():
        try:
            return request()
        except _library().exceptions.GenericError as error:
            if not _is_broken_off(str(error)) or time.monotonic() + pause > until:
                raise
        time.sleep(pause)
    return request()


def _is_broken_off(text: str) -> bool:
    """Whether a connection broke off, and the library has not repeated the request as often as it may."""
    tried = re.search(r"after (\d+) retries, max_retries: (\d+)", text)
    return _BROKEN_OFF in text and (tried is None or tried[1] != tried[2])


def _pauses() -> Iterator[float]:
    """Seconds to wait before something is tried again: ever longer, and not the same for all who wait."""
    for longest in (0.1, 0.2, 0.4, 0.8, 1.6, *[3.0] * 20):
        yield longest * random.uniform(0.5, 1.0)


def _library() -> Any:
    try:
        import obstore
        import obstore.exceptions
        import obstore.store
    except ImportError as error:
        raise ConfigError(
            f"object stores need obstore, which cannot be imported: {error}",
            hint='pip install "weft[objects]"',
        ) from error
    return obstore


@lru_cache(maxsize=32)
def _store(uri: str, patience: timedelta) -> Any:
    """The store of a URI, one for each process; credentials come from the environment."""
    options = {
        "timeout": min(_TIMEOUT, patience),
        "connect_timeout": _CONNECTED,
        **({"allow_http": True} if _is_plain() else {}),
    }
    retries = {"max_retries": _TRIES[patience], "retry_timeout": patience}
    try:
        return _library().store.from_url(uri, client_options=options, retry_config=retries)
    except _library().exceptions.BaseError as error:
        raise ConfigError(f"{uri} cannot be used: {_reason(error)}", hint=_CREDENTIALS) from None


def _is_plain() -> bool:
    """Whether the endpoint that the environment names speaks HTTP without encryption."""
    names = ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3")
    return any(os.environ.get(name, "").startswith("http://") for name in names)


def delta_options(*, hurried: bool = False) -> dict[str, str]:
    """How delta-rs is to use a store: as patient as `ObjectStorage`, and with conditional puts: it needs no lock.

    It reads credentials and the endpoint from the environment itself.
    """
    patience = _PROBED if hurried else _PATIENCE
    return {
        "timeout": f"{min(_TIMEOUT, patience).seconds}s",
        "connect_timeout": f"{_CONNECTED.seconds}s",
        "max_retries": str(_TRIES[patience]),
        "retry_timeout": f"{patience.seconds}s",
        "aws_conditional_put": "etag",
        **({"allow_http": "true"} if _is_plain() else {}),
    }


def delta_reason(error: object) -> str:
    """What an error of delta-rs says, as one line; causes are on lines of their own, then comes a store's answer."""
    plain = re.sub(r"\x1b\[\d+m|↳|\?\S+", "", str(error).partition("<?xml")[0])
    return ": ".join(line.strip() for line in plain.splitlines()[:5] if line.strip())


@lru_cache(maxsize=1)
def host_cache() -> DiskCache:
    """The cache of this host, as this process uses it."""
    return default_cache()


def take_cache_counts() -> CacheCounts:
    """What this process has counted of its cache since it was asked last; nothing if it has opened none."""
    return host_cache().counter.take() if host_cache.cache_info().currsize else CacheCounts()
