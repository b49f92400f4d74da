"""What is asked of clients: requests and failures, what carries them, and how long a server waits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from fedaction.data.client import ClientInfo
from fedaction.engines.flower.envelope import Kind

MOST_HELLO = 4 << 20
"""Bytes of an answer to "hello" or "begin"."""


@dataclass(frozen=True)
class Bounce:
    """A message that was not answered by a site, but by what carries messages."""

    reason: str
    """Why."""
    lost: bool
    """Whether the node is gone; otherwise its work failed, and may be tried again."""


class Post(Protocol):
    """What carries messages to nodes and back. No call blocks."""

    def nodes(self) -> set[int]:
        """Those that are thought to be there."""
        ...

    def key(self, node: int) -> str:
        """The fingerprint of a node's key; "": it has none, or is not known."""
        ...

    def send(self, messages: Sequence[tuple[int, Kind, bytes]]) -> list[str | None]:
        """Sends messages to nodes; their ids, or None where one was not taken."""
        ...

    def collect(self, ids: Sequence[str]) -> list[tuple[str, bytes | Bounce]]:
        """The answers that have come to some messages, by the message's id. Each comes once."""
        ...


@dataclass(frozen=True)
class Patience:
    """How long a server waits, in seconds."""

    answer: float = 3600.0
    """For an answer to a job; then the client has failed in this round."""
    absence: float = 120.0
    """For a site that has vanished to come back; then the same. Flower itself notices after up to 60 s."""
    poll: float = 0.2
    """From one look for answers to the next."""
    look: float = 1.0
    """From one look for nodes to the next."""
    retry: float = 2.0
    """Before a site whose work failed outright is asked again."""
    tries: int = 3
    """How often it is asked."""


@dataclass(frozen=True)
class Joined:
    """A client that has joined a run."""

    info: ClientInfo
    """What the server knows of it."""
    proof: str
    """What only its site can say."""
    data: str
    """Stands for its samples; the same as long as they are."""
    splits: tuple[str, ...]
    """What it can be tested on."""


@dataclass(frozen=True)
class Request:
    """A question to one client."""

    client: str
    kind: Kind
    parts: tuple[bytes, ...] = ()
    basis: int = 0
    oldest: int = 0
    limit: int = MOST_HELLO
    """Bytes of an answer; more are not read."""


@dataclass(frozen=True)
class Failure:
    """A question without a usable answer, and why."""

    text: str


class NobodyLeftError(RuntimeError):
    """No client of a run is there any more."""
