"""A certification authority that lives as long as its test, and the certificates that it issues."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

SAN = ObjectIdentifier("2.5.29.17")
CLIENT = ExtendedKeyUsageOID.CLIENT_AUTH
SERVER = ExtendedKeyUsageOID.SERVER_AUTH


def uri(name: str) -> x509.GeneralName:
    """A URI as an alternative name, checked by nobody."""
    return x509.UniformResourceIdentifier._init_without_validation(name)


def dns(name: str) -> x509.GeneralName:
    """A name of DNS, checked by nobody."""
    return x509.DNSName._init_without_validation(name)


class Authority:
    """An authority whose own certificate is signed by ``above``, or by itself."""

    def __init__(self, name: str, above: Authority | None = None) -> None:
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.above = above
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.revoked: list[int] = []
        signer = above or self
        builder = self._builder(self.name, signer.name, self.key, days=(-1, 2))
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.certificate = builder.sign(signer.key, hashes.SHA256())

    @staticmethod
    def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: tuple[float, float]):
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + timedelta(days=days[0]))
            .not_valid_after(now + timedelta(days=days[1]))
        )

    @property
    def pem(self) -> bytes:
        """Its certificate."""
        return self.certificate.public_bytes(Encoding.PEM)

    def crl(self, days: float = 1) -> bytes:
        """What it has revoked."""
        now = datetime.now(UTC)
        builder = x509.CertificateRevocationListBuilder().issuer_name(self.name)
        builder = builder.last_update(now - timedelta(days=2)).next_update(now + timedelta(days=days))
        for serial in self.revoked:
            revoked = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - timedelta(hours=1))
            builder = builder.add_revoked_certificate(revoked.build())
        return builder.sign(self.key, hashes.SHA256()).public_bytes(Encoding.PEM)

    def issue(
        self,
        file: Path,
        names: Sequence[x509.GeneralName] | bytes = (),
        *,
        days: tuple[float, float] = (-1, 1),
        usage: ObjectIdentifier = CLIENT,
        subject: str = "",
    ) -> int:
        """Write a certificate with its chain and its key; return its serial number. ``names``: alternative names, or
        the bytes of that extension. ``days``: when it begins and ends, from now on."""
        key = ec.generate_private_key(ec.SECP256R1())
        attributes = [x509.NameAttribute(NameOID.COMMON_NAME, subject)] if subject else []
        builder = self._builder(x509.Name(attributes), self.name, key, days)
        builder = builder.add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        if isinstance(names, bytes):
            builder = builder.add_extension(x509.UnrecognizedExtension(SAN, names), critical=False)
        elif names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        made = builder.sign(self.key, hashes.SHA256())
        chain = [made.public_bytes(Encoding.PEM)]
        authority: Authority | None = self
        while authority is not None and authority.above is not None:
            chain.append(authority.pem)
            authority = authority.above
        file.write_bytes(b"".join(chain) + key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return made.serial_number


def client_context(authority: Authority, file: Path | None = None) -> ssl.SSLContext:
    """The context of a client that trusts a server of ``authority``, and shows the certificate of ``file``."""
    context = ssl.create_default_context(cadata=authority.pem.decode())
    if file is not None:
        context.load_cert_chain(file)
    return context
