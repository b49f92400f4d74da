"""Flower carries the messages: `Post` over its grid, from the server app."""

# Flower is an extra, which a type checker need not find.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import Array, ArrayRecord, Message, MessageType, RecordDict

from fedaction.engines.flower.envelope import Kind
from fedaction.engines.flower.inbox import Inbox
from fedaction.engines.flower.keys import fingerprint_pem
from fedaction.engines.flower.requests import Bounce, Content, Spoiled

RECORD = "fedaction"
"""The name of the one record, and of the one array in it, that a message has."""
_TYPES: dict[str, str] = {"train": MessageType.TRAIN, "evaluate": MessageType.EVALUATE}
_LOST = (3, 4, 5)  # a message, its answer or its node is not there any more


def wrap(content: bytes) -> RecordDict:
    """Bytes as what a Flower message holds: an array, which Flower sends in pieces however large it is."""
    array = Array(dtype="uint8", shape=(len(content),), stype="fedaction.bytes", data=content)
    return RecordDict({RECORD: ArrayRecord({RECORD: array})})


def unwrap(content: Any) -> bytes:
    """The bytes of a Flower message's content; b"", which is no message, where it holds something else."""
    try:
        data = content.array_records[RECORD][RECORD].data
    except (KeyError, AttributeError, TypeError):
        return b""
    return data if isinstance(data, bytes) else b""


class FlowerPost:
    """A `Post` over the grid that Flower gives a server app."""

    def __init__(self, grid: Any, lifetime: float = 12 * 3600.0) -> None:
        """`lifetime`: seconds after which Flower drops a message that nobody fetched."""
        self._grid, self._lifetime, self._inbox = grid, lifetime, Inbox(grid)
        self._sent: dict[str, int] = {}
        self._started: dict[int, str] = {}
        self._keys: dict[int, bytes] = {}

    def nodes(self) -> set[int]:
        """See `Post.nodes`.

        A node that was started again since the last look is left out once: what it had been asked went with it, and
        one that has a key keeps its number.
        """
        there = {int(node.node_id): node for node in self._grid.get_nodes()}
        self._keys = {number: bytes(node.public_key) for number, node in there.items()}
        started = {number: str(node.last_activated_at) for number, node in there.items()}
        same = {node for node, moment in started.items() if self._started.get(node, moment) == moment}
        self._started = started
        return same

    def key(self, node: int) -> str:
        """See `Post.key`. The SuperLink has seen that a node signs with it."""
        return fingerprint_pem(self._keys.get(node, b""))

    def send(self, messages: Sequence[tuple[int, Kind, bytes]]) -> list[str | None]:
        """See `Post.send`."""
        made = [
            Message(
                wrap(content),
                dst_node_id=node,
                message_type=_TYPES.get(kind, MessageType.QUERY),
                ttl=self._lifetime,
            )
            for node, kind, content in messages
        ]
        ids: list[str | None] = [id or None for id in self._grid.push_messages(made)]
        ids += [None] * (len(made) - len(ids))  # none at all, where Flower found them too large together
        for id, (node, _, _) in zip(ids, messages, strict=True):
            if id is not None:
                self._sent[id] = node
        return ids

    def collect(self, most: Mapping[str, int]) -> list[tuple[str, Content]]:
        """See `Post.collect`."""
        if not most:
            return []
        came: list[tuple[str, Content]] = []
        for id, source, reply in self._inbox.take(most):
            node = self._sent.pop(id, None)
            if node is None:
                continue
            if isinstance(reply, Spoiled):
                came.append((id, reply))
            elif reply.has_error():  # the SuperLink's own, or the site's
                reason = f"Flower's error {reply.error.code}: {str(reply.error.reason)[:200]}"
                came.append((id, Bounce(reason, reply.error.code in _LOST and source != node)))
            elif source != node:
                came.append((id, Spoiled("another node answered")))
            else:
                came.append((id, unwrap(reply.content)))
        return came
