"""Answers as the SuperLink has them: fetched piece by piece, each answer by itself, no more of it than it may have.

Flower's own `pull_messages` fetches all that came whole, waits up to two hours for pieces that a site has announced
and not sent, and fails altogether, with every answer that it was about to give, where one is not what it should be.
"""

# Flower is an extra, which a type checker need not find.
# pyright: reportMissingImports=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportUnknownParameterType=false

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from flwr.app import Array, Message
from flwr.proto.message_pb2 import ConfirmMessageReceivedRequest, PullObjectRequest
from flwr.proto.runtime_pb2 import PullAppMessagesRequest
from flwr.supercore.inflatable.inflatable_object import (
    get_object_body,
    get_object_head_values_from_object_content,
    iterate_object_tree,
)
from flwr.supercore.inflatable.inflatable_utils import inflate_object_from_contents

from fedaction.engines.flower.requests import Spoiled

_FEW, _SMALL_PIECE = 16, 1 << 20  # pieces that any answer may have, and bytes for each of which it may have one more
_SLACK = 64 << 10  # bytes of Flower's own in an answer


@dataclass
class _Half:
    """An answer whose pieces are being fetched."""

    id: str
    """Flower's, of the answer."""
    source: int
    """The node that sent it, as the SuperLink has seen."""
    missing: list[str]
    """Its pieces that are not here."""
    most: int
    """Bytes that it may have."""
    pieces: dict[str, bytes] = field(default_factory=dict[str, bytes])
    size: int = 0

    def check(self) -> None:
        """Refuses one of more pieces or bytes than it may have."""
        if len(self.pieces) + len(self.missing) > _FEW + self.most // _SMALL_PIECE:
            raise ValueError(f"it would come in {len(self.pieces) + len(self.missing)} pieces")
        if self.size > self.most + _SLACK:
            raise ValueError(f"more than the {self.most} bytes that are the most that were expected")


class Inbox:
    """Fetches the answers to messages of one run."""

    def __init__(self, grid: Any) -> None:
        """`grid`: as Flower gives it to a server app."""
        self._grid = grid
        self._halves: dict[str, _Half] = {}  # by the question

    def take(self, most: Mapping[str, int]) -> list[tuple[str, int, Message | Spoiled]]:
        """What has come whole, or is spoiled: the question's id, the node that answered, the answer.

        `most`: of the questions that somebody waits for, how many bytes their answers may have.
        """
        if not hasattr(self._grid, "_runtime_client"):  # Flower's simulation, where all sites are this machine's
            came = self._grid.pull_messages([*most])
            return [(reply.metadata.reply_to_message_id, reply.metadata.src_node_id, reply) for reply in came]
        client = self._grid._runtime_client  # pyright: ignore[reportPrivateUsage]
        for question in self._halves.keys() - most.keys():
            self._let_go(client, self._halves.pop(question))  # nobody waits for it any more
        if asked := [question for question in most if question not in self._halves]:
            said = _ask(client.PullMessages, PullAppMessagesRequest(message_ids=asked))
            for message, tree in zip(said.messages_list, said.message_object_trees, strict=True) if said else ():
                about, pieces = message.metadata, [part.object_id for part in iterate_object_tree(tree)]
                if about.reply_to_message_id in most:
                    half = _Half(about.message_id, about.src_node_id, pieces, most[about.reply_to_message_id])
                    self._halves[about.reply_to_message_id] = half
        whole: list[tuple[str, int, Message | Spoiled]] = []
        for question, half in [*self._halves.items()]:
            answer = self._go_on(client, half)
            if answer is not None:
                del self._halves[question]
                whole.append((question, half.source, answer))
        return whole

    def _go_on(self, client: Any, half: _Half) -> Message | Spoiled | None:
        """Fetches what is there of an answer; the answer once that is all."""
        try:
            half.check()
            while half.missing:
                request = PullObjectRequest(
                    node=self._grid.node, run_id=self._grid.run.run_id, object_id=half.missing[-1]
                )
                piece = _ask(client.PullObject, request)
                if piece is None:
                    return None
                if not piece.object_found:
                    raise ValueError("a piece of it never came")
                if not piece.object_available:
                    return None
                half.pieces[half.missing.pop()] = piece.object_content
                half.size += len(piece.object_content)
                half.check()
        except ValueError as error:
            self._let_go(client, half)
            return Spoiled(str(error)[:200])
        self._let_go(client, half)
        return read_answer(half.id, half.pieces, half.most)

    def _let_go(self, client: Any, half: _Half) -> None:
        """The SuperLink need not keep an answer any longer."""
        request = ConfirmMessageReceivedRequest(
            node=self._grid.node, run_id=self._grid.run.run_id, message_object_id=half.id
        )
        _ask(client.ConfirmMessageReceived, request)


def _ask(call: Callable[[Any], Any], request: Any) -> Any:
    """What the SuperLink says; None where it fails at this moment, as when its database is busy for long."""
    try:
        return call(request)
    except httpx.HTTPStatusError as error:
        if error.response.status_code < 500:
            raise
        return None


def read_answer(id: str, pieces: dict[str, bytes], most: int) -> Message | Spoiled:
    """A message of its pieces, which may be anything, and may unfold to `most` bytes."""
    try:
        if (size := sum(map(len, pieces.values())) + _repeat(pieces)) > most + _SLACK:
            return Spoiled(f"it would unfold to {size} bytes, but {most} are the most that were expected")
        message = inflate_object_from_contents(id, pieces)
    except Exception as error:  # whatever Flower trips over; there is no list
        return Spoiled(f"its pieces are no message of Flower's ({type(error).__name__}: {str(error)[:100]})")
    if not isinstance(message, Message):
        return Spoiled(f"it is no message of Flower's but a {type(message).__name__}")
    return message


def _repeat(pieces: Mapping[str, bytes]) -> int:
    """Bytes that arrays have since they name a piece again and again: 2 bytes may stand for 8 MiB."""
    more = 0
    for content in pieces.values():
        kind, parts, _ = get_object_head_values_from_object_content(content)
        if kind == Array.__name__:
            named = json.loads(get_object_body(content, Array))["arraychunk_ids"]
            more += sum(len(pieces[parts[at]]) for at in named) - sum(len(pieces[part]) for part in {*parts})
    return more
