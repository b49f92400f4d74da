"""Who takes part in a run, as a message says it: every site is told of all others, since networks depend on them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

from fedaction.data.client import ClientInfo
from fedaction.engines.messages import MessageError, pack, unpack

_MOST_MEMBERS = 100_000


def pack_members(members: Sequence[ClientInfo]) -> bytes:
    """Descriptions of clients as a part of a message: a JSON list of what `pack` gives, in hexadecimal."""
    return json.dumps([_pack_member(member) for member in members]).encode()


@lru_cache(maxsize=4096)
def _pack_member(member: ClientInfo) -> str:
    """One description. Every site is told of every other: a thousand of them would pack each a thousand times."""
    return pack(member).hex()


def read_members(content: bytes) -> list[ClientInfo]:
    """Reads what `pack_members` gave; anything else is a MessageError."""
    try:
        texts: Any = json.loads(content)
        if not isinstance(texts, list) or len(texts) > _MOST_MEMBERS:  # pyright: ignore[reportUnknownArgumentType]
            raise MessageError("what should be a list of clients is none")
        members = [unpack(ClientInfo, bytes.fromhex(text)) for text in texts]  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    except (ValueError, TypeError, RecursionError) as error:
        raise MessageError(f"what should be a list of clients cannot be read: {str(error)[:200]}") from None
    if len({member.id for member in members}) != len(members):
        raise MessageError("two clients of a run have one name")
    return members


def hide(info: ClientInfo) -> ClientInfo:
    """What one client is told of another: what a method builds networks from, not how much it has."""
    return replace(info, samples=1)


def describe(info: ClientInfo) -> str:
    """A client in a few words."""
    layout = f", {info.layout.name}" if info.layout is not None else ""
    return f"{info.group}{layout}, {info.samples} training samples of {len(info.classes)} classes"
