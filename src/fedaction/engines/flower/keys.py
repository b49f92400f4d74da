"""Certificates and keys: what lets sites know the server, and the server its sites.

The server has a certificate, signed by an authority of its own (`ca.crt`), which sites are given to know it by. A
site has a key pair; the server is given the public half. Nothing secret leaves the machine that it was made on.
"""

# cryptography comes with the extra `flower`.
# pyright: reportMissingImports=false, reportUnknownVariableType=false, reportUnknownMemberType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import base64
import datetime
import hashlib
import ipaddress
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedaction.federation.files import write_atomically
from fedaction.federation.outside import describe, read_file

_DAYS = 825  # what clients of TLS accept at most
_HOST = re.compile(r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)(\.(?!-)[A-Za-z0-9-]{1,63}(?<!-))*$")
_MOST_FILE = 1 << 20  # bytes
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")


class KeyFileError(ValueError):
    """A key or certificate that cannot be made or read, and why."""


@dataclass(frozen=True)
class KeyFile:
    """What a file is."""

    what: str
    """In words."""
    names: tuple[str, ...]
    """Hosts that a certificate is for; whom a key is of."""
    fingerprint: str
    """To compare by telephone: both sides see the same."""
    until: datetime.datetime | None = None
    """When a certificate ends."""
    secret: bool = False
    """Whether it must stay where it is."""


def make_server_keys(hosts: Sequence[str], folder: Path) -> dict[str, Path]:
    """An authority and the server's certificate for some hosts; `localhost` and 127.0.0.1 are among them.

    Args:
        hosts: names and addresses by which sites reach the server.
        folder: where to write ca.crt, ca.key, server.pem and server.key; none of them may be there.

    Returns:
        The files by name.
    """
    c = _cryptography()
    wanted = list(dict.fromkeys([*hosts, "localhost", "127.0.0.1"]))
    names = [_san(c, host) for host in wanted]
    paths = {name: folder / name for name in ("ca.crt", "ca.key", "server.pem", "server.key")}
    _refuse_existing(paths)
    now = datetime.datetime.now(datetime.UTC)
    authority, own = (c["ec"].generate_private_key(c["ec"].SECP384R1()) for _ in range(2))
    issuer = _subject(c, "fedaction authority")

    def sign(subject: Any, public: Any, extensions: Sequence[tuple[Any, bool]]) -> Any:
        builder = (
            c["x509"]
            .CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(c["x509"].random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=10))  # clocks differ
            .not_valid_after(now + datetime.timedelta(days=_DAYS))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical)
        return builder.sign(authority, c["hashes"].SHA384())

    x509 = c["x509"]
    root = sign(issuer, authority.public_key(), [(x509.BasicConstraints(ca=True, path_length=0), True)])
    usage = x509.ExtendedKeyUsage([x509.oid.ExtendedKeyUsageOID.SERVER_AUTH])
    leaf = sign(
        _subject(c, wanted[0]),
        own.public_key(),
        [
            (x509.BasicConstraints(ca=False, path_length=None), True),
            (x509.SubjectAlternativeName(names), False),
            (usage, False),
        ],
    )
    pem = c["serialization"].Encoding.PEM
    _write(paths["ca.crt"], root.public_bytes(pem))
    _write(paths["ca.key"], _private(c, authority, "PKCS8"), secret=True)
    _write(paths["server.pem"], leaf.public_bytes(pem))
    _write(paths["server.key"], _private(c, own, "PKCS8"), secret=True)
    return paths


def make_site_key(name: str, folder: Path) -> dict[str, Path]:
    """A site's key pair: NAME, which stays there, and NAME.pub, which the server is given."""
    if not _NAME.match(name):
        raise KeyFileError(f"{name!r} is no name for a site: letters, digits, dots, dashes, at most 64")
    c = _cryptography()
    paths = {"private": folder / name, "public": folder / f"{name}.pub"}
    _refuse_existing(paths)
    key = c["ec"].generate_private_key(c["ec"].SECP384R1())  # the curve that Flower's nodes sign with
    encodings = c["serialization"]
    public = key.public_key().public_bytes(encodings.Encoding.OpenSSH, encodings.PublicFormat.OpenSSH)
    _write(paths["private"], _private(c, key, "OpenSSH"), secret=True)
    _write(paths["public"], public + f" {name}\n".encode())
    return paths


def read_key(path: Path) -> KeyFile:
    """What a file of these is; anything else is a KeyFileError."""
    c = _cryptography()
    try:
        blob = read_file(path, _MOST_FILE, KeyFileError)
    except OSError as error:
        raise KeyFileError(f"{path} cannot be read: {error}") from None
    serialization, hashes, x509 = c["serialization"], c["hashes"], c["x509"]
    try:
        if b"BEGIN CERTIFICATE" in blob:
            certificate = x509.load_pem_x509_certificate(blob)
            constraints = certificate.extensions.get_extension_for_class(x509.BasicConstraints).value
            names: tuple[str, ...] = ()
            if not constraints.ca:
                found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
                names = tuple(str(item.value) for item in found)
            what = (
                "an authority's certificate, to be given to sites" if constraints.ca else "the server's certificate"
            )
            print_of = certificate.fingerprint(hashes.SHA256()).hex()
            return KeyFile(what, names, print_of, certificate.not_valid_after_utc)
        secret = b"PRIVATE KEY" in blob
        if b"OPENSSH PRIVATE KEY" in blob:
            public = serialization.load_ssh_private_key(blob, None).public_key()
        elif secret:
            public = serialization.load_pem_private_key(blob, None).public_key()
        else:
            public = serialization.load_ssh_public_key(blob)
        raw = public.public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
        digest = hashes.Hash(hashes.SHA256())
        digest.update(raw)
        what = "a private key, which stays on its machine" if secret else "a site's public key, for the server"
        words = blob.split()
        own = (words[2].decode("utf-8", "replace"),) if not secret and len(words) > 2 else ()
        return KeyFile(what, own, digest.finalize().hex(), secret=secret)
    except KeyFileError:
        raise
    except Exception as error:  # cryptography raises many kinds
        raise KeyFileError(f"{path} is neither a certificate nor a key that can be read: {describe(error)}") from None


def fingerprint_pem(blob: bytes) -> str:
    """The fingerprint of a public key in PEM, the same as `read_key` has of its file; "": these bytes are none."""
    lines = blob.strip().splitlines()
    if len(lines) < 3 or lines[0] != b"-----BEGIN PUBLIC KEY-----" or lines[-1] != b"-----END PUBLIC KEY-----":
        return ""
    try:
        return hashlib.sha256(base64.b64decode(b"".join(lines[1:-1]), validate=True)).hexdigest()
    except ValueError:
        return ""


def _cryptography() -> Mapping[str, Any]:
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.hazmat.primitives.asymmetric import ec
    except ImportError:
        raise ImportError("keys need the package cryptography: pip install 'fedaction[flower]'") from None
    return {"x509": x509, "hashes": hashes, "serialization": serialization, "ec": ec}


def _san(c: Mapping[str, Any], host: str) -> Any:
    try:
        return c["x509"].IPAddress(ipaddress.ip_address(host))
    except ValueError:
        if not _HOST.match(host) or len(host) > 253:
            raise KeyFileError(
                f"{host!r} is no host: give names and addresses such as server.clinic.org or 10.0.0.5, without a port"
            ) from None
        return c["x509"].DNSName(host)


def _subject(c: Mapping[str, Any], name: str) -> Any:
    x509 = c["x509"]
    return x509.Name([x509.NameAttribute(x509.oid.NameOID.COMMON_NAME, name[:64])])


def _private(c: Mapping[str, Any], key: Any, form: str) -> bytes:
    s = c["serialization"]
    return key.private_bytes(s.Encoding.PEM, getattr(s.PrivateFormat, form), s.NoEncryption())


def _refuse_existing(paths: Mapping[str, Path]) -> None:
    there = [str(path) for path in paths.values() if path.exists()]
    if there:
        raise KeyFileError(f"{', '.join(there)} is there already: choose another folder, or move it away first")


def _write(path: Path, blob: bytes, secret: bool = False) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not secret:
        write_atomically(path, blob)
        return
    # Its owner's alone from the first moment, and never in the place of another.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(blob)
        file.flush()
        os.fsync(file.fileno())
