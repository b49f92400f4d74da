"""The warm worker of a site: fetches the messages that its SuperNode has, answers them, and stays.

Flower starts a process for every message, which imports torch and, worse for a site, runs the program that the
server sends. Its SuperNode also lets somebody else do the work (`--isolation process`); this is that somebody. It
has torch, network and samples loaded once, runs nothing but what is installed at the site, and takes only bytes from
the messages. The names below `flwr.supernode` and `flwr.supercore` are Flower's own affair: a test holds them to the
versions that the extra allows.
"""

# Flower is an extra, which a type checker need not find.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownLambdaType=false

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
from flwr.app import Message
from flwr.common.constant import SubStatus
from flwr.proto.runtime_pb2 import AcquireTaskRequest
from flwr.supercore.constant import TaskType
from flwr.supercore.heartbeat import HeartbeatSender, make_task_heartbeat_fn_http
from flwr.supercore.interceptors import (
    RuntimeTokenHttpInterceptor,
    RuntimeVersionHttpInterceptor,
    SuperExecAuthHttpInterceptor,
)
from flwr.supercore.retry import RetryInvoker, exponential
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedaction.engines.flower.post import unwrap, wrap

_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"
_LOOK = 0.2  # seconds from one look for a message to the next, while another one is being fetched
_GLANCE = 0.05  # seconds from one look at the file to the next


class Worker:
    """Does the work of one SuperNode, which runs on this machine with `--isolation process`."""

    def __init__(
        self,
        address: str,
        secret: bytes,
        answer: Callable[[bytes], bytes],
        call: Path,
        log: Callable[[str], object] = lambda _: None,
        patience: float = 2.0,
    ) -> None:
        """Prepares a worker.

        Args:
            address: of the SuperNode's own interface, on this machine.
            secret: what the SuperNode knows its worker by.
            answer: what makes an answer of a message's bytes.
            call: the file that the SuperNode touches when it has a message.
            log: told of failures.
            patience: seconds after which it asks for a message though it was not called.
        """
        self._address, self._answer, self._call, self._log = address, answer, call, log
        self._patience = patience
        auth = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=frozenset({_ACQUIRE}))
        self._client = self._connect(auth)

    def run(self, until: Callable[[], bool]) -> None:
        """Answers messages until it is told to stop.

        A SuperNode has one message at a time. Whoever gets a new one while still fetching another will never have
        that: Flower forgets to take back a message whose run was ended while it came.
        """
        request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP], agentapp_fab_hashes=[])
        task: _Task | None = None
        told = False
        while not until():
            seen = self._last_call()  # before it asks, so that it misses none
            try:
                acquired = self._client.AcquireTask(request)
                told = False
                if acquired.HasField("task") and acquired.token:
                    if task is not None:
                        task.leave()
                    task = _Task(self._connect(RuntimeTokenHttpInterceptor(acquired.token)))
            except (httpx.HTTPError, RuntimeError) as error:
                if not told:
                    self._log(f"the SuperNode does not answer: {type(error).__name__}: {error}")
                told = True
            if task is None:
                self._rest(seen, until)
            elif task.fetched.wait(_LOOK):
                try:
                    task.finish(self._answer)
                except (httpx.HTTPError, RuntimeError) as error:
                    self._log(f"a message could not be answered: {type(error).__name__}: {error}")
                task = None

    def close(self) -> None:
        """Ends the connection."""
        self._client.close()

    def _rest(self, seen: int, until: Callable[[], bool]) -> None:
        """Waits to be called. To look at a file costs nothing, to ask a SuperNode costs both some milliseconds."""
        end = time.monotonic() + self._patience
        while self._last_call() == seen and time.monotonic() < end and not until():
            time.sleep(_GLANCE)

    def _last_call(self) -> int:
        try:
            return self._call.stat().st_mtime_ns
        except OSError:
            return 0

    def _connect(self, interceptor: Any) -> Any:
        return RuntimeHttpClient.from_server_address(
            server_address=self._address,
            insecure=True,  # it is on this machine
            root_certificates=None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), interceptor],
            # Flower's own would end this process wherever a task is over that somebody still asks about.
            retry_invoker=RetryInvoker(lambda: exponential(max_delay=5), httpx.TransportError, 6, 60.0),
        )


class _Task:
    """One message: it is fetched at once, in a thread of its own, answered, and its answer handed over."""

    def __init__(self, client: Any) -> None:
        self._client, self._input, self._error = client, None, None
        self.fetched = threading.Event()
        self._heart = HeartbeatSender(make_task_heartbeat_fn_http(client))
        self._heart.start()
        threading.Thread(target=self._fetch, daemon=True).start()

    def _fetch(self) -> None:
        try:
            self._input = pull_task_input(self._client)
        except BaseException as error:  # Flower has one for runs that have ended; it is told where somebody waits
            self._error = error
        self.fetched.set()

    def finish(self, answer: Callable[[bytes], bytes]) -> None:
        """Answers what was fetched."""
        context, status, details = None, SubStatus.FAILED, "the site's worker failed"
        try:
            if self._input is None:
                raise RuntimeError(f"it could not be fetched: {self._error}")
            message, context, _, _ = self._input
            reply = Message(wrap(answer(unwrap(message.content))), reply_to=message)
            push_message(self._client, reply, context)
            status, details = SubStatus.COMPLETED, ""
        finally:
            try:
                push_task_output(client=self._client, context=context, sub_status=status, details=details)
            finally:
                self.leave()
                self._client.close()

    def leave(self) -> None:
        """Nobody waits for it any more; Flower notices that its heart has stopped."""
        if self._heart.is_running:
            self._heart.stop()
