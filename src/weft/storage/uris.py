"""Which storage a text names: a path, or the URI of an object store.

Guarantees: what is no such text is refused with an error that says what would be; a URI that carries a password or a
key is refused too, since places are written into logs and checkpoints. A place in an object store has one spelling:
what the libraries of stores would read as another text (percent signs, control characters, spaces around it, a user
before the bucket) is refused, so that whoever compares two places by their texts is right.
"""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import urlsplit

from weft.errors import ConfigError
from weft.storage.paths import local_path

__all__ = ["SCHEMES", "is_object_uri", "join_uri", "normal_place"]

# By the scheme that users write, the one that is meant.
SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfs"}

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CONTAINER = re.compile(r"[A-Za-z0-9$][A-Za-z0-9-]*@[A-Za-z0-9][A-Za-z0-9.-]*")  # and the account
_UNCLEAR = re.compile(r"[\x00-\x1f\x7f%]")


def is_object_uri(place: str | Path) -> bool:
    """Whether a text names a place in an object store.

    >>> is_object_uri("s3a://bucket/ck"), is_object_uri("/data/ck")
    (True, False)
    """
    return str(place).partition("://")[0].lower() in SCHEMES and "://" in str(place)


def normal_place(place: str | Path) -> str:
    """A place in its one spelling: an absolute path, or the URI of an object store without a slash at its end.

    >>> normal_place("s3a://bucket/ck/")
    's3://bucket/ck'
    """
    if is_object_uri(place):
        return _normal_uri(str(place))
    path = local_path(place)
    if path is None:
        raise ConfigError(
            f"{hidden(str(place))} names no storage that Weft knows",
            hint="use a path, or s3://bucket/…, gs://bucket/…, abfs://container@account.dfs.core.windows.net/…",
        )
    return str(path)


def join_uri(uri: str, name: str) -> str:
    """The URI of an entry below another."""
    return f"{uri}/{name}" if name else uri


def hidden(uri: str) -> str:
    """A URI without what may be secret: the part before the host, and all options."""
    parsed = urlsplit(uri)
    user, _, last = parsed.netloc.rpartition("@")
    host = parsed.netloc if parsed.scheme in ("abfs", "abfss") and ":" not in user else last
    return f"{parsed.scheme}://{host}{parsed.path}" if parsed.scheme else parsed.path


def _normal_uri(uri: str) -> str:
    parsed = urlsplit(uri)
    scheme, bucket = SCHEMES[parsed.scheme.lower()], parsed.netloc
    if ":" in bucket or parsed.query or parsed.fragment:
        raise ConfigError(
            f"{hidden(uri)} was given with a password, a port or options",
            hint="name bucket and path alone; credentials and the endpoint belong into the environment",
        )
    if scheme == "abfs" and _CONTAINER.fullmatch(bucket) is None:
        raise ConfigError(
            f"{hidden(uri)} names no container and account",
            hint="as in abfs://container@account.dfs.core.windows.net/path",
        )
    if scheme != "abfs" and _BUCKET.fullmatch(bucket) is None:
        raise ConfigError(f"{hidden(uri)} names no bucket", hint=f"as in {scheme}://bucket/path")
    path = "/".join(part for part in parsed.path.split("/") if part)
    if _UNCLEAR.search(uri) or path != path.rstrip():
        raise ConfigError(
            f"{hidden(uri)!r} has a percent sign, a control character, or a space at its end",
            hint="a place is written as it is, not encoded; use other names",
        )
    if any(part in (".", "..") for part in path.split("/")):
        raise ConfigError(f"{uri} has . or .. in its path", hint="object stores know no such folders")
    return f"{scheme}://{bucket}/{path}".rstrip("/")
