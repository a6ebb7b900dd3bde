"""A certificate for a domain, made when a test needs it: nobody keeps a key."""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.client import HTTPResponse
from ipaddress import ip_address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


def _named(domain: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(domain))
    except ValueError:
        return x509.DNSName(domain)


@dataclass(frozen=True)
class SelfSigned:
    """A certificate that vouches for itself, and its key, in PEM."""

    certificate: bytes
    key: bytes

    @classmethod
    def of(cls, domain: str) -> SelfSigned:
        """For this domain or address, for an hour."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, domain)])
        now = datetime.now(UTC)
        made = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(minutes=5))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.SubjectAlternativeName([_named(domain)]), critical=False)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(key, hashes.SHA256())
        )
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        return cls(made.public_bytes(Encoding.PEM), private)

    @contextmanager
    def connected(self, port: int, domain: str) -> Iterator[ssl.SSLSocket]:
        """A connection to 127.0.0.1, to somebody who is the domain by this certificate.

        Raises:
            SSLCertVerificationError: they aren't.
        """
        context = ssl.create_default_context(cadata=self.certificate.decode())
        with (
            socket.create_connection(("127.0.0.1", port), timeout=30) as plain,
            context.wrap_socket(plain, server_hostname=domain) as secure,
        ):
            yield secure

    def ask(
        self,
        port: int,
        domain: str,
        method: str = "GET",
        path: str = "/",
        data: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> tuple[int, str]:
        """Status and text of an answer over HTTPS; `data` is sent as JSON."""
        body = b"" if data is None else json.dumps(data).encode()
        given = {"Host": domain, "Connection": "close", "Content-Length": str(len(body)), **(headers or {})}
        head = "".join(f"{name}: {value}\r\n" for name, value in given.items())
        with self.connected(port, domain) as connection:
            connection.sendall(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body)
            answer = HTTPResponse(connection, method=method)
            answer.begin()
            return answer.status, answer.read().decode()
