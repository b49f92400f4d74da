"""Certificates and keys: what a TLS server and a node's signature make of them, and what is refused."""

import socket
import ssl
import subprocess
import threading

import pytest
from typer.testing import CliRunner

pytest.importorskip("cryptography", reason="keys need the package cryptography, which comes with flwr")

from fedaction.cli import app
from fedaction.engines.flower.keys import (
    KeyFileError,
    fingerprint_pem,
    make_server_keys,
    make_site_key,
    read_key,
)


def greet(folder, host):
    """A TLS connection to a server with these keys, by somebody who has ca.crt and asks for a host."""
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "server.pem", folder / "server.key")
    listener = socket.create_server(("127.0.0.1", 0))

    def answer():
        connection, _ = listener.accept()
        try:
            with server.wrap_socket(connection, server_side=True) as own:
                own.sendall(b"hello")
        except OSError:
            pass

    thread = threading.Thread(target=answer)
    thread.start()
    client = ssl.create_default_context(cafile=folder / "ca.crt")
    try:
        with client.wrap_socket(socket.create_connection(listener.getsockname()), server_hostname=host) as own:
            return own.recv(5)
    finally:
        thread.join()
        listener.close()


def test_sites_know_the_server_by_its_authority_and_nobody_else(tmp_path):
    make_server_keys(["server.clinic.org", "10.0.0.5"], tmp_path / "ours")
    make_server_keys(["server.clinic.org"], tmp_path / "theirs")
    for host in ("server.clinic.org", "10.0.0.5", "localhost", "127.0.0.1"):
        assert greet(tmp_path / "ours", host) == b"hello"
    with pytest.raises(ssl.SSLCertVerificationError):
        greet(tmp_path / "ours", "other.org")
    (tmp_path / "ours" / "ca.crt").write_bytes((tmp_path / "theirs" / "ca.crt").read_bytes())
    with pytest.raises(ssl.SSLCertVerificationError):
        greet(tmp_path / "ours", "localhost")


def test_what_is_secret_is_readable_by_its_owner_alone(tmp_path):
    paths = {**make_server_keys(["a.org"], tmp_path), **make_site_key("clinic", tmp_path)}
    for name, path in paths.items():
        about = read_key(path)
        assert about.secret == (name in ("ca.key", "server.key", "private")) == (path.stat().st_mode & 0o777 == 0o600)
    assert read_key(paths["private"]).fingerprint == read_key(paths["public"]).fingerprint
    assert read_key(paths["public"]).names == ("clinic",) and "a.org" in read_key(paths["server.pem"]).names
    assert {path.name for path in tmp_path.iterdir()} == {
        "ca.crt",
        "ca.key",
        "server.pem",
        "server.key",
        "clinic",
        "clinic.pub",
    }


def test_a_sites_key_is_one_that_ssh_reads(tmp_path):
    paths = make_site_key("clinic", tmp_path)
    try:
        shown = subprocess.run(
            ["ssh-keygen", "-y", "-f", paths["private"]], capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        pytest.skip("ssh-keygen is not installed")
    assert shown.stdout.split()[:2] == paths["public"].read_text().split()[:2] and "nistp384" in shown.stdout


def test_what_cannot_be_done_is_said(tmp_path):
    for host in ("https://a.org", "a.org:443", "", "-a", "x" * 300):
        with pytest.raises(KeyFileError, match="no host"):
            make_server_keys([host], tmp_path)
    for name in ("../clinic", "", "a b"):
        with pytest.raises(KeyFileError, match="no name for a site"):
            make_site_key(name, tmp_path)
    assert not any(tmp_path.iterdir())
    make_site_key("clinic", tmp_path)
    with pytest.raises(KeyFileError, match="is there already"):
        make_site_key("clinic", tmp_path)
    (tmp_path / "noise").write_bytes(bytes(range(256)))
    for path in (tmp_path / "noise", tmp_path / "absent"):
        with pytest.raises(KeyFileError):
            read_key(path)


def test_the_command(tmp_path):
    run = CliRunner().invoke
    made = run(app, ["keys", "server", "server.clinic.org", "--out", str(tmp_path)])
    assert made.exit_code == 0 and "give this one to every site" in made.stdout
    made = run(app, ["keys", "site", "clinic", "--out", str(tmp_path)])
    assert made.exit_code == 0 and "give this one to the server" in made.stdout
    shown = run(app, ["keys", "show", str(tmp_path / "ca.crt"), str(tmp_path / "clinic.pub")])
    assert shown.exit_code == 0 and "authority" in shown.stdout and "clinic" in shown.stdout
    again = run(app, ["keys", "site", "clinic", "--out", str(tmp_path)])
    assert again.exit_code == 2 and "is there already" in again.stderr


def test_a_key_has_one_fingerprint_in_every_form(tmp_path):
    from cryptography.hazmat.primitives import serialization

    path = make_site_key("clinic", tmp_path)["public"]
    key = serialization.load_ssh_public_key(path.read_bytes())
    pem = key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    assert fingerprint_pem(pem) == read_key(path).fingerprint  # as a SuperLink has it, and as a file
    for blob in (
        b"",
        pem[:40],
        pem.replace(b"\n", b"", 1),
        pem.replace(b"PUBLIC", b"SECRET"),
        b"\n".join([pem, pem]),
    ):
        assert fingerprint_pem(blob) == ""
