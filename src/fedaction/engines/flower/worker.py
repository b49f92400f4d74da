"""The warm worker of a site: fetches the messages that its SuperNode has, answers them, and stays.

Flower starts a process for every message, which imports torch and, worse for a site, runs the program that the
server sends. Its SuperNode also lets somebody else do the work (`--isolation process`); this is that somebody. It
has torch, network and samples loaded once, runs nothing but what is installed at the site, and takes only bytes from
the messages. The names below `flwr.supernode` and `flwr.supercore` are Flower's own affair: a test holds them to the
versions that the extra allows.
"""

# Flower is an extra, which a type checker need not find.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import time
from collections.abc import Callable
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
from flwr.supercore.retry import make_simple_http_retry_invoker
from flwr.supercore.runtime import RuntimeHttpClient
from flwr.supernode.runtime.run_clientapp import pull_task_input, push_message, push_task_output

from fedaction.engines.flower.post import unwrap, wrap

_ACQUIRE = "/flwr.proto.Runtime/AcquireTask"


class Worker:
    """Does the work of one SuperNode, which runs on this machine with `--isolation process`."""

    def __init__(
        self,
        address: str,
        secret: bytes,
        answer: Callable[[bytes], bytes],
        log: Callable[[str], object] = lambda _: None,
        poll: float = 0.2,
    ) -> None:
        """Prepares a worker.

        Args:
            address: of the SuperNode's own interface, on this machine.
            secret: what the SuperNode knows its worker by.
            answer: what makes an answer of a message's bytes.
            log: told of failures.
            poll: seconds from one look for a message to the next.
        """
        self._address, self._answer, self._log, self._poll = address, answer, log, poll
        auth = SuperExecAuthHttpInterceptor(master_secret=secret, protected_methods=frozenset({_ACQUIRE}))
        self._client = self._connect(auth)

    def run(self, until: Callable[[], bool]) -> None:
        """Answers messages until it is told to stop."""
        request = AcquireTaskRequest(supported_task_types=[TaskType.CLIENT_APP], agentapp_fab_hashes=[])
        while not until():
            try:
                acquired = self._client.AcquireTask(request)
                if acquired.HasField("task") and acquired.token:
                    self._work(acquired.token)
                    continue
            except (httpx.HTTPError, RuntimeError) as error:
                self._log(f"the SuperNode does not answer: {type(error).__name__}: {error}")
            time.sleep(self._poll)

    def close(self) -> None:
        """Ends the connection."""
        self._client.close()

    def _connect(self, interceptor: Any) -> Any:
        return RuntimeHttpClient.from_server_address(
            server_address=self._address,
            insecure=True,  # it is on this machine
            root_certificates=None,
            interceptors=[RuntimeVersionHttpInterceptor(component_name="flwr-clientapp"), interceptor],
            retry_invoker=make_simple_http_retry_invoker(),
        )

    def _work(self, token: str) -> None:
        """One message: fetch it, answer it, hand the answer over."""
        client, context = self._connect(RuntimeTokenHttpInterceptor(token)), None
        status, details = SubStatus.FAILED, "the site's worker failed"
        heart = HeartbeatSender(make_task_heartbeat_fn_http(client))
        heart.start()
        try:
            message, context, _, _ = pull_task_input(client)
            reply = Message(wrap(self._answer(unwrap(message.content))), reply_to=message)
            push_message(client, reply, context)
            status, details = SubStatus.COMPLETED, ""
        finally:
            push_task_output(client=client, context=context, sub_status=status, details=details)
            if heart.is_running:
                heart.stop()
            client.close()
