"""What is asked of clients: requests and failures, what carries them, and how long a server waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from fedaction.data.client import ClientInfo
from fedaction.engines.flower.envelope import Envelope, EnvelopeError, Kind, open_envelope

MOST_HELLO = 4 << 20
"""Bytes of an answer to "hello" or "begin"."""


@dataclass(frozen=True)
class Bounce:
    """A message that was not answered by a site, but by what carries messages."""

    reason: str
    """Why."""
    lost: bool
    """Whether the node is gone; otherwise its work failed, and may be tried again."""


@dataclass(frozen=True)
class Spoiled:
    """A site's answer that cannot be had, or is not even what carries messages would carry."""

    reason: str
    """Why."""


Content = bytes | Bounce | Spoiled
"""What has come to a message."""


def read_content(content: bytes | Spoiled, limit: int) -> Envelope:
    """An answer of at most `limit` bytes; an EnvelopeError where it is none."""
    if isinstance(content, Spoiled):
        raise EnvelopeError(content.reason)
    return open_envelope(content, limit)


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

    def collect(self, most: Mapping[str, int]) -> list[tuple[str, Content]]:
        """The answers that have come to some messages, by the message's id. Each comes once.

        `most`: how many bytes the answer to each may have; of a larger one no more need be fetched.
        """
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
    """Bytes of an answer; of more, one piece at most is fetched."""


@dataclass(frozen=True)
class Failure:
    """A question without a usable answer, and why."""

    text: str


class NobodyLeftError(RuntimeError):
    """No client of a run is there any more."""
