"""Which storage a text names: a path, or the URI of an object store.

Guarantees: what is no such text is refused with an error that says what would be; a URI that carries a password or a
key is refused too, since places are written into logs and checkpoints.
"""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from weft.errors import ConfigError
from weft.paths import local_path

__all__ = ["SCHEMES", "is_object_uri", "join_uri", "normal_place"]

# By the scheme that users write, the one that is meant.
SCHEMES = {"s3": "s3", "s3a": "s3", "gs": "gs", "abfs": "abfs", "abfss": "abfs"}


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
    found = local_path(place)
    if found is None:
        raise ConfigError(
            f"{hidden(str(place))} names no storage that Weft knows",
            hint="use a path, or s3://bucket/…, gs://bucket/…, abfs://container@account.dfs.core.windows.net/…",
        )
    return str(found)


def join_uri(uri: str, name: str) -> str:
    """The URI of an entry below another."""
    return f"{uri}/{name}" if name else uri


def hidden(uri: str) -> str:
    """A URI without what may be secret: the part before the host, and all options."""
    found = urlsplit(uri)
    host = found.netloc.rpartition("@")[2] if ":" in found.netloc.rpartition("@")[0] else found.netloc
    return f"{found.scheme}://{host}{found.path}" if found.scheme else found.path


def _normal_uri(uri: str) -> str:
    found = urlsplit(uri)
    scheme, bucket = SCHEMES[found.scheme.lower()], found.netloc
    if ":" in bucket or found.query or found.fragment:
        raise ConfigError(
            f"{hidden(uri)} was given with a password, a port or options",
            hint="name bucket and path alone; credentials and the endpoint belong into the environment",
        )
    if not bucket:
        raise ConfigError(f"{uri} names no bucket", hint=f"as in {scheme}://bucket/path")
    if scheme == "abfs" and "@" not in bucket:
        raise ConfigError(
            f"{uri} names no account", hint="as in abfs://container@account.dfs.core.windows.net/path"
        )
    path = "/".join(part for part in found.path.split("/") if part)
    if any(part in (".", "..") for part in path.split("/")):
        raise ConfigError(f"{uri} has . or .. in its path", hint="object stores know no such folders")
    return f"{scheme}://{bucket}/{path}".rstrip("/")
