"""Schemas by their numbers, as a schema registry knows them.

Guarantees: a schema is asked for once per process, for a number never changes its meaning. A description holds only
references to secrets; they are followed when a request is made, and neither an error nor a redirection carries them
anywhere else. A registry that is away is asked again for as long as the caller's patience lasts; a number that it does
not know is no error of this module but an answer (`None`). Decision 36 says why it is asked by plain HTTP.
"""

from __future__ import annotations

import base64
import json
import ssl
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any, NoReturn
from urllib.error import HTTPError, URLError
from urllib.parse import quote, urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

from weft.connectors.kafka.options import is_reference, resolve_secret
from weft.errors import WeftError, nearest

__all__ = [
    "RegisteredSchema",
    "RegistryOptions",
    "SchemaRegistry",
    "registry_options",
    "schema_text",
]

_OPTIONS = ("registry_user", "registry_password", "registry_token", "registry_ca")
_SECRETS = ("registry_password", "registry_token")
_TYPE = "application/vnd.schemaregistry.v1+json"
_ANSWER = 10.0  # seconds that an answer may take
_AGAIN = 0.3  # seconds between two attempts
_UNKNOWN = (40401, 40402, 40403)  # subject, version, schema
_FORGET = 5.0  # seconds after which an unknown number is asked for again


@dataclass(frozen=True, slots=True)
class RegistryOptions:
    """Where a registry is, and how to be let in; secrets are references."""

    url: str
    given: tuple[tuple[str, str], ...] = ()

    def secrets(self, error: type[WeftError]) -> dict[str, str]:
        """The secrets themselves, to be handed on at once and kept by nobody."""
        return {name: resolve_secret(name, value, error) for name, value in self.given if name in _SECRETS}


@dataclass(frozen=True, slots=True)
class RegisteredSchema:
    """A schema of the kind AVRO, JSON or PROTOBUF, with the texts of those that it refers to."""

    number: int
    kind: str
    text: str
    references: tuple[str, ...] = ()


def registry_options(
    function: str, url: str | None, options: dict[str, Any], error: type[WeftError]
) -> RegistryOptions | None:
    """Take what concerns the registry from the options that a user gave to a function, and check it."""
    registry_given = {name: options.pop(name) for name in list(options) if name.startswith("registry_")}
    unknown = next((name for name in registry_given if name not in _OPTIONS), None)
    if unknown is not None:
        raise error(f"{function}: there is no option {unknown!r}", hint=nearest(unknown, _OPTIONS))
    if url is None:
        if registry_given:
            raise error(
                f"{function}: {min(registry_given)} is given, but no registry",
                hint='as in registry="http://localhost:8081"',
            )
        return None
    parts = urlsplit(url) if isinstance(url, str) else urlsplit("")
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise error(f"{function}: registry is no address", hint='as in registry="http://localhost:8081"')
    if "@" in parts.netloc:
        hint = 'give registry_user="…" and registry_password="env:NAME" or "file:PATH"'
        raise error(f"{function}: user and password must not stand in the registry's address", hint=hint)
    for name in _SECRETS:
        if name in registry_given and not is_reference(registry_given[name]):
            hint = f'give "env:NAME" or "file:PATH": where {name} is found when it is needed'
            raise error(f"{function}: {name} is a secret and must not stand in a program", hint=hint)
    if ("registry_user" in registry_given) != ("registry_password" in registry_given) or len(
        registry_given.keys() & _USERS
    ) > 2:
        raise error(
            f"{function}: a registry wants a user with a password, or a token",
            hint="give registry_user and registry_password, or registry_token alone",
        )
    return RegistryOptions(
        url.rstrip("/"), tuple(sorted((name, str(option)) for name, option in registry_given.items()))
    )


def schema_text(function: str, schema: str | Path | None, error: type[WeftError]) -> str | None:
    """The text of a schema that was given itself, or as the file that has it."""
    if schema is None or (isinstance(schema, str) and schema.lstrip()[:1] in ("{", "[", '"')):
        return schema
    try:
        return Path(schema).read_text(encoding="utf-8")
    except (OSError, ValueError) as failure:
        told = failure.strerror if isinstance(failure, OSError) else "it is no text"
        raise error(
            f"{function}: avro_schema: {str(schema)[:200]} cannot be read: {told}",
            hint="give the text of a schema, which is JSON, or the file that has it",
        ) from None


_USERS = frozenset(("registry_user", "registry_password", "registry_token"))


class _NoRedirection(HTTPRedirectHandler):
    """Follows no redirection: a password is for the address that the user gave."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


_known: dict[tuple[str, int], RegisteredSchema] = {}
_unknown: dict[tuple[str, int], float] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class SchemaRegistry:
    """A registry that is asked. Its errors are of the class ``error`` and name ``function``."""

    options: RegistryOptions
    function: str
    error: type[WeftError]
    patience: float = 60.0

    def schema(self, number: int) -> RegisteredSchema | None:
        """The schema of a number; None if the registry does not know it."""
        key = (self.options.url, number)
        with _lock:
            if key in _known or time.monotonic() < _unknown.get(key, 0.0):
                return _known.get(key)
        answer = self._ask(f"/schemas/ids/{number}")
        schema = None if answer is None else self._registered(number, answer)
        with _lock:
            if schema is None:
                _unknown[key] = time.monotonic() + _FORGET
            else:
                _known[key] = schema
        return schema

    def latest(self, subject: str) -> RegisteredSchema | None:
        """The newest schema of a subject; None if there is no such subject."""
        return self._version(subject, "latest")

    def versions(self, subject: str) -> list[RegisteredSchema]:
        """All schemas of a subject, the oldest first."""
        numbers = self._ask(f"/subjects/{quote(subject, safe='')}/versions") or []
        versions = (self._version(subject, number) for number in numbers)
        return [version for version in versions if version is not None]

    def register(self, subject: str, kind: str, text: str, *, create: bool = True) -> int:
        """The number of a schema of a subject, which is registered if it is not; or, without ``create``, an error."""
        body = {"schema": text} if kind == "AVRO" else {"schema": text, "schemaType": kind}
        path = f"/subjects/{quote(subject, safe='')}" + ("/versions" if create else "")
        answer = self._ask(path, body)
        if answer is None:
            raise self.error(
                f"{self.function}: the registry at {self.options.url} has no such schema for subject {subject}",
                hint="register it, or leave register=False out",
            )
        return int(answer["id"])

    def _version(self, subject: str, version: object) -> RegisteredSchema | None:
        answer = self._ask(f"/subjects/{quote(subject, safe='')}/versions/{version}")
        return None if answer is None else self._registered(int(answer["id"]), answer)

    def _registered(self, number: int, answer: Mapping[str, Any]) -> RegisteredSchema:
        texts = list[str]()
        for reference in answer.get("references") or ():
            other = self._version(reference["subject"], reference["version"])
            if other is None:
                self._refuse(f"schema {number} refers to {reference['subject']}, which it does not know")
            texts += [text for text in (*other.references, other.text) if text not in texts]
        return RegisteredSchema(number, answer.get("schemaType") or "AVRO", answer["schema"], tuple(texts))

    def _ask(self, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """The answer to a request, from JSON; None if what is asked for is not known."""
        until = time.monotonic() + self.patience
        while True:
            try:
                return self._asked_once(path, body)
            except (URLError, HTTPException, OSError) as failure:
                if _is_lasting(failure) or time.monotonic() > until:
                    self._refuse(
                        _told(failure), isinstance(failure, HTTPError) and failure.code in (401, 403)
                    )
            time.sleep(_AGAIN)

    def _asked_once(self, path: str, body: Mapping[str, Any] | None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(self.options.url + path, data, {"Accept": f"{_TYPE}, application/json"})
        if data is not None:
            request.add_header("Content-Type", _TYPE)
        for name, value in self._authorization():
            request.add_unredirected_header(name, value)
        try:
            with build_opener(_NoRedirection, *self._transport()).open(request, timeout=_ANSWER) as answer:
                return json.loads(answer.read())
        except HTTPError as failure:
            if failure.code == 404 and _code(failure) in _UNKNOWN:
                return None
            raise
        except ValueError:
            self._refuse("its answer is no JSON: is that the address of a schema registry?")

    def _authorization(self) -> list[tuple[str, str]]:
        secrets, options = self.options.secrets(self.error), dict(self.options.given)
        if "registry_token" in secrets:
            return [("Authorization", f"Bearer {secrets['registry_token']}")]
        if "registry_user" in options:
            pair = f"{options['registry_user']}:{secrets['registry_password']}"
            return [("Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}")]
        return []

    def _transport(self) -> list[Any]:
        ca = dict(self.options.given).get("registry_ca")
        if ca is None:
            return []
        try:
            return [HTTPSHandler(context=ssl.create_default_context(cafile=ca))]
        except OSError as failure:
            self._refuse(f"registry_ca: {ca} cannot be used: {failure.strerror or failure}")

    def _refuse(self, told: str, who: bool = False) -> NoReturn:
        for secret in self.options.secrets(self.error).values():
            told = told.replace(secret, "…") if secret else told
        hint = "are registry_user and registry_password, or registry_token, right?" if who else None
        raise self.error(
            f"{self.function}: the schema registry at {self.options.url}: {told}",
            hint=hint or "is it running, and is the address right?",
        ) from None


def _is_lasting(failure: Exception) -> bool:
    """Whether asking again would not help."""
    if isinstance(failure, HTTPError):
        return failure.code < 500 and failure.code != 429
    return isinstance(getattr(failure, "reason", failure), ssl.SSLError)


def _code(failure: HTTPError) -> int:
    """The registry's own number of an error; the text is kept in the error."""
    text = failure.read(2000).decode(errors="replace")
    failure.msg = failure.msg if not text else _message(text) or failure.msg
    try:
        return int(json.loads(text)["error_code"])
    except (ValueError, TypeError, KeyError):
        return 0


def _message(text: str) -> str:
    try:
        message = json.loads(text)["message"]
    except (ValueError, TypeError, KeyError):
        return ""
    return " ".join(str(message).split())[:400]


def _told(failure: Exception) -> str:
    if isinstance(failure, HTTPError):
        if failure.code != 404:
            _code(failure)
        return f"it answers {failure.code} ({failure.msg})"
    return str(getattr(failure, "reason", failure)) or type(failure).__name__
