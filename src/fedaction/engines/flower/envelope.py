"""What a message between a server and a site is wrapped in: who, which run, which question; then parts, as bytes.

Both sides take what comes from the network for hostile: sizes are checked before anything is read, and every field.
The parts are messages of `engines.messages`, which check themselves. Nothing here needs torch.
"""

from __future__ import annotations

import secrets
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

Kind = Literal["hello", "begin", "train", "evaluate", "end", "refused", "fault", "unknown"]
"""The first six are asked, and answered by the same word; or by "fault", or by "unknown": a site that knows nothing
of the run, since it was started anew."""
MOST_TEXT = 2000
"""Characters of what a site says went wrong."""
MOST_PARTS = 4
_MAGIC = b"fedact01"
_SIZE = struct.Struct("<I")
_MOST_HEADER = 16 << 10

Name = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f/\\]+$")]
"""Of a client: any text of up to 100 characters without slashes and control characters."""
Token = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{32}$")]
"""Of a run, or of a question that is asked once."""


class EnvelopeError(ValueError):
    """Bytes that are no envelope, or the wrong one; and why."""


class Front(BaseModel):
    """The front of a message, every field checked."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    kind: Kind
    """What is asked, or answered."""
    run: Token
    """The run that it belongs to."""
    nonce: Token
    """Drawn for one question alone; its answer repeats it."""
    client: Name | Literal[""] = ""
    """Whom it is for, or from; "" in a first question, when the server knows no name yet."""
    basis: int = Field(default=0, ge=0, lt=1 << 53)
    """The job whose LOCAL tensors the client starts from: the last one that was combined; 0: its first ones."""
    oldest: int = Field(default=0, ge=0, lt=1 << 53)
    """Of LOCAL tensors, what jobs before this one have left is not needed again."""
    text: str = Field(default="", max_length=MOST_TEXT)
    """What went wrong; in a question, what the server has to say of the site's last answer."""
    proof: str = Field(default="", max_length=64)
    """In an answer to "hello": what only this site can say, the same throughout a run."""
    data: str = Field(default="", max_length=64)
    """In an answer to "hello": the same as long as the site's samples are; says nothing about them."""
    splits: tuple[Literal["test", "validation"], ...] = Field(default=(), max_length=2, strict=False)
    """In an answer to "hello": what the client can be tested on."""
    installed: str = Field(default="", max_length=64)
    """In an answer to "hello": a digest of what the site was sent once in this run, and still has; "": nothing."""


@dataclass(frozen=True)
class Envelope:
    """A message: its header and its parts."""

    header: Front
    parts: tuple[bytes, ...] = ()

    def seal(self) -> bytes:
        """As bytes: a word, the header's size, the header, the number of parts, their sizes, the parts."""
        front = self.header.model_dump_json(exclude_defaults=True).encode()
        sizes = struct.pack(f"<I{len(self.parts)}Q", len(self.parts), *map(len, self.parts))
        return b"".join((_MAGIC, _SIZE.pack(len(front)), front, sizes, *self.parts))


def open_envelope(content: bytes, limit: int) -> Envelope:
    """Reads what `seal` gave, of at most `limit` bytes; anything else is an EnvelopeError."""
    if len(content) > limit:
        raise EnvelopeError(f"{len(content)} bytes came, but {limit} are the most that were expected")
    start = len(_MAGIC) + _SIZE.size
    if content[: len(_MAGIC)] != _MAGIC or len(content) < start:
        raise EnvelopeError(f"these {len(content)} bytes are no message of this version of fedaction")
    (size,) = _SIZE.unpack_from(content, len(_MAGIC))
    if size > _MOST_HEADER or start + size + _SIZE.size > len(content):
        raise EnvelopeError(f"the header of a message would have {size} bytes")
    try:
        header = Front.model_validate_json(content[start : start + size])
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"])[:100]
        raise EnvelopeError(f"the header of a message is wrong at {where!r}: {first['msg'][:200]}") from None
    at = start + size
    (count,) = _SIZE.unpack_from(content, at)
    at += _SIZE.size
    if count > MOST_PARTS or at + 8 * count > len(content):
        raise EnvelopeError(f"a message would have {count} parts; {MOST_PARTS} are the most")
    sizes: Sequence[int] = struct.unpack_from(f"<{count}Q", content, at)
    at += 8 * count
    if at + sum(sizes) != len(content):
        raise EnvelopeError(f"the parts of a message would have {sum(sizes)} bytes, but {len(content) - at} came")
    parts: list[bytes] = []
    for length in sizes:
        parts.append(content[at : at + length])
        at += length
    return Envelope(header, tuple(parts))


def draw_token() -> str:
    """A word that nobody can guess, for a run or a question. It decides no result."""
    return secrets.token_hex(16)
