"""Flower's own processes: how a SuperLink and a SuperNode are started, and how a run is handed in."""

from __future__ import annotations

import json
import os
import re
import secrets
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from typing import IO
from urllib.error import URLError
from urllib.request import BaseHandler, HTTPSHandler, ProxyHandler, build_opener

from fedaction.engines.flower.gate import SECRET, draw_secret
from fedaction.engines.flower.keys import read_key
from fedaction.engines.flower.node import CALLED, MARK, PARENT
from fedaction.engines.flower.status import CALL, CONTACT
from fedaction.federation.files import read_json, write_atomically, write_json

_CONNECTION = "fedaction"
_NODE = "fedaction.engines.flower.node"
_DATABASE = "superlink.db"
_MADE = "superlink.made"  # in Flower's folder once a SuperLink has answered from its database
_REGISTERED = "registered.json"
_SECRET = "superlink.secret"  # in Flower's folder: what its SuperLink wants to be shown
_IN_USE = "Public key already in use"  # what Flower says of a key that it knows
_PROJECT = """\
[project]
name = "fedaction-run"
version = "1.0.0"
description = "A run of fedaction. Sites run what they have installed, never what is in here."
dependencies = []

[tool.flwr.app]
publisher = "local"

[tool.flwr.app.components]
serverapp = "fedaction_run.server:app"
clientapp = "fedaction_run.client:app"

[tool.flwr.app.config]
folder = ""
attempt = ""
"""
_FILES = {
    "pyproject.toml": _PROJECT,
    "fedaction_run/__init__.py": '"""A run of fedaction."""\n',
    "fedaction_run/server.py": '"""The server."""\n\nfrom {server} import app\n\n__all__ = ["app"]\n',
    "fedaction_run/client.py": (
        '"""A site. `fedaction join` has a worker of its own: this says so to any other SuperNode."""\n\n'
        "from flwr.clientapp import ClientApp\n\napp = ClientApp()\n\n\n"
        "def _refuse(message, context):\n"
        '    raise RuntimeError("this SuperNode was not started by `fedaction join`")\n\n\n'
        "app.train()(_refuse)\napp.evaluate()(_refuse)\napp.query()(_refuse)\n"
    ),
}


def check_flower() -> None:
    """Refuses with a message where Flower is not installed."""
    if find_spec("flwr") is None:
        raise ValueError("Flower is not installed here; `pip install 'fedaction[flower]'` installs it")


def check_ray() -> None:
    """Refuses with a message where Flower's simulation cannot run."""
    check_flower()
    if find_spec("ray") is None:
        raise ValueError("Flower's simulation needs Ray; `pip install 'flwr[simulation]'` installs it")


def flower_environment(home: Path) -> dict[str, str]:
    """What Flower's processes are started with: files in a folder of its own, and nothing that calls home.

    Flower's telemetry and its look for updates are off, unless whoever starts this has the variables set already.
    """
    programs = str(Path(sys.executable).parent)  # Flower starts its own programs by name
    return {
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        **os.environ,
        "FLWR_HOME": str(home.resolve()),
        "PATH": os.pathsep.join([programs, os.environ.get("PATH", "")]),
    }


def free_port() -> int:
    """A port of this machine that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@dataclass(frozen=True)
class ServerKeys:
    """What a server shows sites, and the sites that it knows. Made by `fedaction keys`."""

    folder: Path
    """With ca.crt, server.pem, server.key and, below `sites`, NAME.pub of every site that may join."""

    def check(self) -> None:
        """Refuses a folder in which something is missing."""
        missing = [name for name in ("ca.crt", "server.pem", "server.key") if not (self.folder / name).is_file()]
        if missing:
            raise ValueError(
                f"{self.folder} has no {', '.join(missing)}: `fedaction keys server HOST --out FOLDER` makes it"
            )
        if not self.sites():
            raise ValueError(
                f"{self.folder / 'sites'} has no site's key: put NAME.pub of every site that may join there "
                "(`fedaction keys site NAME` makes it at the site)"
            )

    def sites(self) -> dict[str, Path]:
        """The public keys of sites, by the site's name."""
        return {path.stem: path for path in sorted((self.folder / "sites").glob("*.pub"))}

    def file(self, name: str) -> str:
        """A file's absolute path."""
        return str((self.folder / name).resolve())


@dataclass(frozen=True)
class SiteKeys:
    """What a site knows the server by, and what it is known by. Made by `fedaction keys`."""

    folder: Path
    """With ca.crt, which the server gives out, and the site's own NAME."""
    name: str

    def check(self) -> None:
        """Refuses a folder in which something is missing."""
        if not (self.folder / "ca.crt").is_file():
            raise ValueError(f"{self.folder} has no ca.crt: the server's owner has it, and may give it to anybody")
        if not (self.folder / self.name).is_file():
            raise ValueError(
                f"{self.folder} has no key {self.name!r}; `fedaction keys site {self.name} --out FOLDER` makes "
                f"it, and the server must be given {self.name}.pub"
            )

    def options(self) -> list[str]:
        """Of flower-supernode."""
        folder = self.folder.resolve()
        return [
            "--root-certificates",
            str(folder / "ca.crt"),
            "--auth-supernode-private-key",
            str(folder / self.name),
        ]


def start_superlink(
    home: Path, host: str, port: int, log: IO[bytes], keys: ServerKeys | None = None
) -> subprocess.Popen[bytes]:
    """Starts a SuperLink whose memory is a file in `home`; without keys any site may join.

    Whoever else is on its network can do nothing there but what sites do, see `gate`.
    """
    command = ["superlink", "--host", host, "--port", str(port)]
    command += ["--database", str(home / _DATABASE), "--disable-runtime-dependency-installation"]
    if keys is None:
        command.append("--insecure")
    else:
        command += ["--ssl-certfile", keys.file("server.pem"), "--ssl-keyfile", keys.file("server.key")]
        command += ["--ssl-ca-certfile", keys.file("ca.crt"), "--enable-supernode-auth"]
    return _start(command, home, log, {SECRET: str(draw_secret(home / _SECRET).resolve())})


def answers(port: int, keys: ServerKeys | None = None) -> bool:
    """Whether a SuperLink on this machine answers."""
    handlers: list[BaseHandler] = [ProxyHandler({})]  # whatever proxy is set, this machine is not behind it
    if keys is not None:
        handlers.append(HTTPSHandler(context=ssl.create_default_context(cafile=keys.file("ca.crt"))))
    scheme = "http" if keys is None else "https"
    try:
        with build_opener(*handlers).open(f"{scheme}://127.0.0.1:{port}/health", timeout=2):
            return True
    except (URLError, OSError, HTTPException):
        return False


def wait_for_superlink(
    process: subprocess.Popen[bytes], port: int, seconds: float = 180.0, keys: ServerKeys | None = None
) -> None:
    """Waits until a SuperLink on this machine answers; a ValueError where it ended, or does not."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if process.poll() is not None:
            raise ValueError(f"the SuperLink ended at once, with status {process.returncode}; its log says why")
        if answers(port, keys):
            return
        time.sleep(0.2)
    raise ValueError(f"the SuperLink did not answer within {seconds:g} s")


def open_superlink(
    home: Path, host: str, port: int, log: IO[bytes], keys: ServerKeys | None = None, tries: int = 4
) -> subprocess.Popen[bytes]:
    """Starts a SuperLink and waits until it answers; one that was there before may need seconds to leave its port.

    One that was killed while it made its database has left one that no other can open: it is made anew.
    """
    for left in reversed(range(tries)):
        if not (home / _MADE).exists():
            for path in (home / _REGISTERED, *home.glob(f"{_DATABASE}*")):  # which keys it knew is in it
                path.unlink(missing_ok=True)
        process = start_superlink(home, host, port, log, keys)
        try:
            wait_for_superlink(process, port, keys=keys)
            (home / _MADE).touch()
            return process
        except ValueError:
            stop(process)
            if not left:
                raise
            time.sleep(5)
    raise AssertionError("unreachable")


def run_files(module: str, server: str = "", client: str = "") -> dict[str, str]:
    """The files that Flower wants of an app: with the server app of a module, or with programs in place of ours."""
    given = {"fedaction_run/server.py": server, "fedaction_run/client.py": client}
    return {name: given.get(name) or text.replace("{server}", module) for name, text in _FILES.items()}


def connect(home: Path, port: int, keys: ServerKeys | None = None) -> None:
    """Writes down, for Flower's command, how this machine's SuperLink is reached."""
    settings = f'[superlink]\ndefault = "{_CONNECTION}"\n\n[superlink.{_CONNECTION}]\naddress = "127.0.0.1:{port}"\n'
    settings += "insecure = true\n" if keys is None else f"root-certificates = {json.dumps(keys.file('ca.crt'))}\n"
    write_atomically(home / "config.toml", settings.encode())


def register(home: Path, keys: ServerKeys, *, again: bool = False) -> dict[str, str]:
    """Makes the sites' keys known to a SuperLink that `connect` was called for; whose each is, by its fingerprint.

    Args:
        home: Flower's own folder, where it is written down which keys a SuperLink knows already.
        keys: the server's.
        again: whether to make all of them known, whatever is written down.
    """
    path = home / _REGISTERED
    known: list[str] = read_json(path) if path.exists() and not again else []
    owners: dict[str, str] = {}
    for name, site in keys.sites().items():
        fingerprint = read_key(site).fingerprint
        owners[fingerprint] = name
        if fingerprint in known:
            continue
        words = ("supernode", "register", str(site.resolve()), _CONNECTION, "--name", name, "--format", "json")
        said = json.loads(_flwr(home, *words))
        reason = str(said.get("error-message", said))
        if not said.get("success") and _IN_USE not in reason:
            raise ValueError(f"{site} is not taken for a site's key: {reason}")
        known.append(fingerprint)
        write_json(path, known)
    return owners


def submit(
    home: Path, port: int, folder: Path, files: Mapping[str, str], attempt: str = "", keys: ServerKeys | None = None
) -> str:
    """Hands a run in: the SuperLink starts the server app. Returns the number that Flower gives it.

    Args:
        home: Flower's own folder.
        port: of the SuperLink.
        folder: the run's directory, which the server app is told of.
        files: the app's, see `run_files`.
        attempt: what this server app's news are told from another's by: letters and digits.
        keys: the server's, where it has some.
    """
    app = home / "app"
    for name, text in files.items():
        write_atomically(app / name, text.encode())
    connect(home, port, keys)
    values = f'folder="{folder.resolve().as_posix()}" attempt="{attempt}"'
    said = _flwr(home, "run", str(app), _CONNECTION, "-c", values)
    number = re.search(r"run (\d+)", said)
    return number[1] if number else ""


def withdraw(home: Path, number: str) -> None:
    """Tells the SuperLink that a run whose server app is gone is over: by itself it would not notice."""
    with suppress(ValueError, subprocess.TimeoutExpired):
        _flwr(home, "stop", number, _CONNECTION)


def _flwr(home: Path, *command: str) -> str:
    """What Flower's command says; a ValueError where it fails."""
    secret, environment = home / _SECRET, flower_environment(home)
    if secret.exists():
        environment[SECRET] = str(secret.resolve())
    done = subprocess.run(
        [sys.executable, "-m", _NODE, "flwr", *command],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    if done.returncode:
        raise ValueError(f"`flwr {command[0]}` failed: {done.stdout.strip()} {done.stderr.strip()}")
    return done.stdout


def start_supernode(
    home: Path,
    superlink: str,
    port: int,
    secret: Path,
    log: IO[bytes],
    options: Sequence[str] = (),
    keys: SiteKeys | None = None,
) -> subprocess.Popen[bytes]:
    """Starts a SuperNode whose work is done by a worker of ours; without keys it takes anybody for the server.

    Args:
        home: Flower's own folder at this site, below the site's.
        superlink: HOST:PORT.
        port: of this machine, where the worker fetches messages.
        secret: a file with what the worker is known by; written here.
        log: what it says goes there.
        options: more of flower-supernode's.
        keys: the site's, where it has some.
    """
    if not secret.exists():
        write_atomically(secret, secrets.token_hex(32).encode())
        secret.chmod(0o600)
    command = ["supernode", *(["--insecure"] if keys is None else keys.options()), "--superlink", superlink]
    command += ["--host", "127.0.0.1", "--port", str(port), "--isolation", "process"]
    command += ["--superexec-auth-secret-file", str(secret), *options]
    return _start(command, home, log, {MARK: str(home.parent / CONTACT), CALLED: str(home.parent / CALL)})


def stop(process: subprocess.Popen[bytes], seconds: float = 15.0) -> None:
    """Ends a process that was started here, at first politely."""
    if process.poll() is None:
        process.terminate()
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _start(
    command: list[str], home: Path, log: IO[bytes], more: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    home.mkdir(parents=True, exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-m", _NODE, *command],
        env={**flower_environment(home), PARENT: str(os.getpid()), **(more or {})},
        stdout=log,
        stderr=subprocess.STDOUT,
        stdin=subprocess.DEVNULL,
    )
