"""What the ends of a stage of resident tasks know of each other: a key and, where they encrypt, a certificate.

Guarantees: credentials are new for every stage, and reach its tasks with the stage's function, over Spark's channel.
All ends of a stage have the same certificate and its private key, and trust that certificate and no other: an end that
does not have it is refused by TLS, whoever signed what it shows, before any data is sent. Names of hosts do not matter,
since whoever has the private key is an end of the stage. Only the driver needs the package `cryptography`, which makes
the certificate.
"""

from __future__ import annotations

import hmac
import os
import secrets
import ssl
import tempfile
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from importlib.util import find_spec

__all__ = ["NAME", "Credentials", "can_encrypt"]

NAME = "weft-stage"  # the name in every certificate, which Flight's clients compare
_BEFORE, _AFTER = timedelta(days=2), timedelta(days=3650)  # for clocks that go wrong, and stages that stay


def can_encrypt() -> bool:
    """Whether there is the package that makes certificates, which the driver alone needs."""
    return find_spec("cryptography") is not None


@dataclass(frozen=True, slots=True)
class Credentials:
    """The key of a stage and, if its ends encrypt what they send, a certificate with its private key, both as PEM."""

    key: bytes = field(repr=False)
    certificate: bytes = b""
    private_key: bytes = field(default=b"", repr=False)

    @classmethod
    def create(cls, *, encrypted: bool = False) -> Credentials:
        """New ones for a stage."""
        return cls(secrets.token_bytes(32), *(_new_certificate() if encrypted else ()))

    @property
    def stage(self) -> str:
        """The name of the stage, which does not reveal the key."""
        return hmac.new(self.key, b"stage", "sha256").hexdigest()[:16]

    @property
    def token(self) -> str:
        """What who fetches a parcel shows, which does not reveal the key."""
        return hmac.new(self.key, b"parcels", "sha256").hexdigest()

    @property
    def encrypts(self) -> bool:
        """Whether the ends of the stage encrypt what they send."""
        return bool(self.certificate)

    def tls(self, *, server: bool) -> ssl.SSLContext:
        """How this end of a connection shows the certificate, and demands it of the other."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=self.certificate.decode())
        handle, path = tempfile.mkstemp(prefix="weft-")  # for this user alone; OpenSSL reads it from a file
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(self.private_key + self.certificate)
            context.load_cert_chain(path)
        finally:
            os.unlink(path)
        return context


def _new_certificate() -> tuple[bytes, bytes]:
    """A certificate that signs itself, and its private key."""
    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, NAME)])
    now = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - _BEFORE)
        .not_valid_after(now + _AFTER)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .sign(key, SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return certificate.public_bytes(Encoding.PEM), private
