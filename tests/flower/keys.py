"""Certificates and keys for tests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PLAIN = serialization.NoEncryption()


class Keys:
    """A certificate authority, a certificate for the SuperLink, and keys of SuperNodes."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True)
        self.folder = folder
        self.authority = folder / "ca.crt"
        self.certificate = folder / "server.pem"
        self.key = folder / "server.key"
        root = ec.generate_private_key(ec.SECP384R1())
        name = _name("test authority")
        ca = _certificate(name, name, root.public_key(), authority=True).sign(root, hashes.SHA256())
        self.authority.write_bytes(ca.public_bytes(serialization.Encoding.PEM))
        server_key = ec.generate_private_key(ec.SECP384R1())
        leaf = _certificate(_name("localhost"), name, server_key.public_key(), authority=False)
        signed = leaf.sign(root, hashes.SHA256())
        self.certificate.write_bytes(signed.public_bytes(serialization.Encoding.PEM))
        self.key.write_bytes(
            server_key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, PLAIN
            )
        )

    def node(self, name: str) -> tuple[Path, Path]:
        """Make a private and a public key for a SuperNode, like ``ssh-keygen -t ecdsa -b 384``."""
        key = ec.generate_private_key(ec.SECP384R1())
        private, public = self.folder / name, self.folder / f"{name}.pub"
        private.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, PLAIN
            )
        )
        public.write_bytes(
            key.public_key().public_bytes(
                serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH
            )
        )
        return private, public


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, authority: bool
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    names = [x509.DNSName("localhost"), x509.IPAddress(ip_address("127.0.0.1"))]
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
    )
