"""Why a site does not reach its server, in words that say what to do. Needs neither torch nor Flower."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

from fedaction.engines.flower.launch import SiteKeys

_PATIENCE = 5.0  # seconds for one try
_SILENCE = 20.0  # seconds without an answer, after which somebody looks why
_WRONG_HOST = (62, 64)  # OpenSSL's numbers: the certificate is for another name, or another address
_NOT_NOW = (9, 10)  # it is not valid yet, or not any more


def find_obstacle(address: str, keys: SiteKeys | None) -> str:
    """What keeps this machine from the server at HOST:PORT; "": nothing does, as far as can be seen from outside."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    try:
        with socket.create_connection((host, int(port)), _PATIENCE) as line:
            return _greet(line, host, keys)
    except socket.gaierror:
        return f"{host} is no name that this machine can look up; check the address"
    except ConnectionRefusedError:
        return (
            f"nothing listens at {address}; `fedaction serve` is not running there now, or with another --port, or "
            "without --host 0.0.0.0, which other machines need"
        )
    except TimeoutError:
        return f"{address} does not answer; is it switched on, and does its firewall let this port through?"
    except OSError as error:
        return f"{address} cannot be reached: {error.strerror or type(error).__name__}"


def _greet(line: socket.socket, host: str, keys: SiteKeys | None) -> str:
    """Speaks as a site would, with encryption or without."""
    try:
        if keys is None:
            line.sendall(f"GET /health HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
            return "" if line.recv(5) == b"HTTP/" else "the server there wants keys; join with --keys, not --insecure"
        context = ssl.create_default_context(cafile=keys.folder / "ca.crt")
        with context.wrap_socket(line, server_hostname=host):
            return ""
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in _WRONG_HOST:
            return (
                f"the server's certificate is not for {host}; use a name that it is for (`fedaction keys show` tells"
                f"), or have one made: fedaction keys server {host}"
            )
        if error.verify_code in _NOT_NOW:
            return "the server's certificate is not valid at this time; check both clocks, or have another one made"
        return (
            "the server's certificate is not signed by the ca.crt that this site has; is it this server's? Compare "
            "fingerprints by telephone: fedaction keys show ca.crt"
        )
    except ssl.SSLError:
        return "the server there speaks without encryption; was it started with --insecure?"
    except ConnectionError:
        return "the server there hung up; one side has keys and the other has not"


def explain_end(address: str, keys: SiteKeys | None) -> str:
    """Why a SuperNode may have ended."""
    obstacle = find_obstacle(address, keys)
    if obstacle or keys is None:
        return obstacle
    return (
        f"the server does not let the key {keys.name!r} in. Where the server has just been started, or this site was "
        f"killed, that ends within a minute; else its owner must put {keys.name}.pub into sites/ of its keys, and "
        "start it again"
    )


class Lookout:
    """Says when a site gets and loses contact with its server, and why."""

    def __init__(
        self,
        mark: Path,
        address: str,
        keys: SiteKeys | None,
        tell: Callable[[str], object],
        warn: Callable[[str], object],
    ) -> None:
        """`mark`: the file that a SuperNode touches when the server has answered."""
        self._mark, self._address, self._keys, self._tell, self._warn = mark, address, keys, tell, warn
        self._begun = self._next = time.time()
        self._there = False
        self._said: str = ""

    def look(self) -> None:
        """To be called often."""
        now = time.time()
        try:
            seen = self._mark.stat().st_mtime
        except OSError:
            seen = 0.0
        answered = seen >= self._begun - 1
        if answered and now - seen < _SILENCE:
            if not self._there:
                self._tell(f"in contact with the server at {self._address}")
            self._there, self._said = True, ""
        elif now - max(seen, self._begun) > _SILENCE and now > self._next:
            self._next = now + _SILENCE
            self._complain(find_obstacle(self._address, self._keys))

    def explain(self, what: str) -> None:
        """A SuperNode has ended."""
        self._complain(explain_end(self._address, self._keys), what)

    def _complain(self, why: str, what: str = "no contact with the server") -> None:
        if why and why != self._said:
            self._there, self._said = False, why
            self._warn(f"{what}: {why}. This site goes on trying.")
