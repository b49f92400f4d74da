"""What a SuperLink's port offers, and to whom: to sites what sites need, all else to this machine alone.

Flower has one port for three interfaces. The Fleet API is the sites'; every call of it is signed where sites have
keys. The Control API starts, stops and lists runs, and registers sites; the Runtime API gives out the server app's
work. Flower lets whoever reaches the port use the Control API, so that a stranger may have the server run a program.
It also reads a request whole, however large, before it looks who sent it.
"""

# Flower is an extra, which a type checker need not find.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false, reportPrivateUsage=false

from __future__ import annotations

import hmac
import http.client
import os
import secrets
import shutil
import ssl
import sys
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from pathlib import Path
from typing import Any

SECRET = "FEDACTION_SECRET"
"""The environment variable: a file with what a SuperLink's owner shows it, see `draw_secret`."""
HEADER = "x-fedaction-secret"
MOST_MESSAGE = 4 << 30
"""Bytes that a site may send for one answer."""
_MOST_PIECE = 8 << 20  # Flower's own are of 5 MiB
_MOST_REQUEST = 256 << 10  # any other: the longest one lists the pieces of an answer, 70 bytes for each
_MOST_PIECES = 1000  # of an answer; Flower's database stands still while they are written down
_WAIT = 20_000  # milliseconds that one who wants to write waits for another; after Flower's 5 s a call fails
_LEAST_FREE = 256 << 20  # bytes that sites must leave on the server's disk
_HERE = ("127.0.0.1", "::1", "::ffff:127.0.0.1")
_FLEET, _PIECE = "/v1/fleet/", "/v1/fleet/push-object"
_CONTROL = "/v1/control/"
_OWNERS = _CONTROL, "/v1/runtime/acquire-task"
SUPEREXEC = sys.executable, "-m", "fedaction.engines.flower.node", "superexec"
"""Flower's process that gets runs' work and starts server apps; ours shows the secret."""
_PATIENCE = 60.0  # seconds
_OTHER = "127.0.0.2"  # an address of this machine that is none of `_HERE`

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]


class Gate:
    """Stands before an ASGI application, and lets through what may come in."""

    def __init__(self, app: App, secret: bytes = b"") -> None:
        """`secret`: what must be shown for runs and their work, from this machine too; b"": nothing."""
        self._app, self._secret = app, secret

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection, or the application's start and end."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif refusal := self._refuse(scope):
            status, text = refusal
            head = [(b"content-type", b"text/plain"), (b"connection", b"close")]
            await send({"type": "http.response.start", "status": status, "headers": head})
            await send({"type": "http.response.body", "body": text.encode()})
        else:
            await self._app(scope, receive, send)

    def _refuse(self, scope: Scope) -> tuple[int, str] | None:
        """An HTTP status and why; None: it may come in."""
        path: str = scope["path"]
        heads: dict[bytes, bytes] = dict(scope["headers"])
        here = (scope.get("client") or ("",))[0] in _HERE
        if path.startswith(_FLEET):
            return _bound(heads, _MOST_PIECE if path == _PIECE else _MOST_REQUEST)
        if not here and path != "/health":
            return 403, "only the server's own machine may ask for this"
        if path.startswith(_OWNERS) and not self._is_owner(heads.get(HEADER.encode(), b"")):
            return 401, "only whoever started this SuperLink may ask for this"
        return None if here else _bound(heads, 0)

    def _is_owner(self, shown: bytes) -> bool:
        return not self._secret or hmac.compare_digest(shown, self._secret)


def _bound(heads: dict[bytes, bytes], most: int) -> tuple[int, str] | None:
    """Refuses a request that is larger, or does not say how large it is, before any of it is read."""
    if b"transfer-encoding" in heads:
        return 411, "a request must say how many bytes it has"
    size = heads.get(b"content-length", b"0")
    if not size.isdigit() or len(size) > 15 or int(size) > most:
        return 413, f"a request of this kind may have {most} bytes at most"
    return None


class AnswerGate:
    """Flower's two steps that take in an answer, bounded: for sites whose signatures it has checked.

    Flower itself takes an answer in any node's name, a message to another site as if from the server, and any number
    of bytes.
    """

    def __init__(self, handlers: Any, folder: Path, refuse: Callable[[int, str], Exception]) -> None:
        """Prepares them.

        Args:
            handlers: Flower's module with both.
            folder: where answers are kept; some room is left on its disk.
            refuse: makes the error of an HTTP status and a text.
        """
        self._announce, self._take = handlers.push_messages, handlers.push_object
        self._folder, self._refuse = folder, refuse
        self._lock = threading.Lock()
        self._parts: dict[tuple[int, str], bytes] = {}  # what an announced answer consists of, by node and answer
        self._answers: dict[str, tuple[int, str]] = {}  # the node and the answer of each session
        self._sizes: dict[tuple[int, str], int] = {}  # bytes so far

    def push_messages(self, request: Any, state: Any) -> Any:
        """An answer is announced: it must be one, the node's own, and stay as it was announced first."""
        node = int(request.node.node_id)
        if len(request.messages_list) != 1 or len(request.message_object_trees) != 1:
            raise self._refuse(400, "one answer at a time")
        said = request.messages_list[0].metadata
        if not said.reply_to_message_id or said.src_node_id != node:
            raise self._refuse(403, "a site may send answers alone, and only its own")
        if _count(request.message_object_trees[0]) > _MOST_PIECES:
            raise self._refuse(413, f"an answer may have {_MOST_PIECES} pieces at most")
        answer = node, str(said.message_id)
        parts = request.message_object_trees[0].SerializeToString(deterministic=True)
        with self._lock:
            if self._parts.get(answer, parts) != parts:
                raise self._refuse(403, "this answer was announced with other parts")
        response = self._announce(request=request, state=state)
        if response.objects_to_push:  # else it was not taken, or is here already
            with self._lock:
                self._parts[answer] = parts
                self._answers[str(response.session_id)] = answer
        return response

    def push_object(self, request: Any, state: Any) -> Any:
        """A part of an answer comes."""
        with self._lock:
            answer = self._answers.get(str(request.session_id))
            if answer is None or answer[0] != int(request.node.node_id):
                raise self._refuse(403, "this belongs to no answer that was announced")
            size = self._sizes.get(answer, 0) + len(request.object_content)
            if size > MOST_MESSAGE:
                raise self._refuse(413, f"an answer may have {MOST_MESSAGE} bytes at most")
            self._sizes[answer] = size
        if shutil.disk_usage(self._folder).free < _LEAST_FREE + len(request.object_content):
            raise self._refuse(507, "the server's disk is full")
        return self._take(request=request, state=state)


def _count(tree: Any) -> int:
    """The pieces of an answer."""
    waiting, count = [tree], 0
    while waiting:
        count += 1
        waiting.extend(waiting.pop().children)
    return count


def guard_superlink(folder: Path, secret: Path | None = None) -> None:
    """Has a SuperLink that this process is about to be stand behind a gate; see above.

    Args:
        folder: where it keeps what sites send.
        secret: the file with what must be shown to start runs and to get their work.
    """
    import importlib

    from fastapi import HTTPException
    from flwr.supercore import sql_mixin
    from flwr.superlink.servicer.fleet import fleet_handlers

    for name in ("FLWR_INTERNAL_GRPC_CONTROL_API", "FLWR_INTERNAL_GRPC_FLEET_API"):
        os.environ.pop(name, None)  # the same interfaces on ports of their own, with no gate
    superlink: Any = importlib.import_module("flwr.superlink.cli.flower_superlink")  # the package has its function
    shown = b"" if secret is None else secret.read_bytes()
    superlink.uvicorn = _Gated(superlink.uvicorn, shown)
    fleet = AnswerGate(fleet_handlers, folder, HTTPException)
    fleet_handlers.push_messages, fleet_handlers.push_object = fleet.push_messages, fleet.push_object
    sql_mixin.SQLITE_PRAGMAS = (*sql_mixin.SQLITE_PRAGMAS, ("busy_timeout", _WAIT))
    make_command = superlink._get_superexec_command
    superlink._get_superexec_command = lambda **named: [*SUPEREXEC, *make_command(**named)[1:]]


class _Gated:
    """Stands for the module `uvicorn` where only `run` is used."""

    def __init__(self, module: Any, secret: bytes) -> None:
        self._module, self._secret = module, secret

    def run(self, app: App, **named: Any) -> None:
        """What a proxy says of where a request is from is not believed."""
        self._module.run(app=Gate(app, self._secret), proxy_headers=False, **named)


def show_secret(secret: bytes) -> None:
    """Has Flower's client in this process show a SuperLink its secret."""
    from flwr.supercore.protobuf.client import ProtobufClient

    send = ProtobufClient._send

    def show(self: Any, context: Any, **named: Any) -> Any:
        context.request.headers[HEADER] = secret.decode()
        return send(self, context, **named)

    ProtobufClient._send = show


def draw_secret(path: Path) -> Path:
    """A file with a word that nobody can guess, its owner's alone from the first moment."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(secrets.token_hex(32).encode())
    return path


def is_open(port: int, encrypted: bool) -> bool:
    """Whether a SuperLink on this machine lets others than this machine's 127.0.0.1 use its Control API.

    It is asked from another address of this machine, which only a SuperLink that listens everywhere answers. Where
    there is no such address (it takes Linux), nobody can tell: False.
    """
    source: Any = (_OTHER, 0)
    if encrypted:
        context = ssl.create_default_context()
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE  # it is asked for nothing but a refusal
        line: Any = http.client.HTTPSConnection(
            _OTHER, port, timeout=_PATIENCE, source_address=source, context=context
        )
    else:
        line = http.client.HTTPConnection(_OTHER, port, timeout=_PATIENCE, source_address=source)
    try:
        line.connect()
    except OSError:
        return False
    try:
        line.request("POST", f"{_CONTROL}list-runs", b"", {"content-type": "application/protobuf"})
        return line.getresponse().status not in (401, 403)
    except (OSError, http.client.HTTPException):
        return True  # only a clear refusal is one
    finally:
        line.close()
