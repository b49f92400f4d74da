"""All sites of a federation in a process of their own: they have the data, and speak in messages alone.

Started as `python -m tests.server.sites`. Both sides write frames: eight bytes that say how long, then a message.
An empty frame ends a federation; another may follow, until the input ends.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from typing import BinaryIO

import torch

from fedaction.engines.base import SimulatedEngine
from fedaction.engines.messages import Message, pack, unpack
from fedaction.evaluation.site import Question
from fedaction.federation.state import Job
from fedaction.runs.assembly import Assembly
from fedaction.runs.recipe import parse_recipe
from fedaction.runs.study import load_clients


def write_frame(stream: BinaryIO, content: bytes) -> None:
    stream.write(len(content).to_bytes(8, "little") + content)
    stream.flush()


def read_frame(stream: BinaryIO) -> bytes:
    size = int.from_bytes(stream.read(8), "little")
    return stream.read(size)


def read_jobs(stream: BinaryIO) -> Iterator[Job]:
    while content := read_frame(stream):
        yield unpack(Job, content)


def answer(engine: SimulatedEngine, message: Message, inward: BinaryIO, outward: BinaryIO) -> None:
    """Does what a message asks for. A list ends with an empty frame."""
    if message.kind == "train":
        replies: Iterable[bytes] = (pack(update) for update in engine.train(list(read_jobs(inward))))
    elif message.kind == "evaluate":
        question = unpack(Question, read_frame(inward))
        replies = (pack(report) for report in engine.evaluate(list(read_jobs(inward)), question))
    else:
        {"commit": engine.commit, "drop": engine.drop}[message.kind](message.values["clients"])
        return
    for reply in replies:
        write_frame(outward, reply)
    write_frame(outward, b"")


def main() -> None:
    torch.set_num_threads(1)
    while content := read_frame(sys.stdin.buffer):
        carry_out(Message.unpack(content), sys.stdin.buffer, sys.stdout.buffer)


def carry_out(message: Message, inward: BinaryIO, outward: BinaryIO) -> None:
    """One federation, whose recipe the message is."""
    recipe = parse_recipe(message.values)
    assembly = Assembly.of(recipe, load_clients(recipe))
    for info in assembly.method.clients.values():
        write_frame(outward, pack(info))
    write_frame(outward, b"")
    write_frame(outward, Message("tested", {"clients": assembly.tested}).pack())
    engine = assembly.engine()
    while content := read_frame(inward):
        answer(engine, Message.unpack(content), inward, outward)


if __name__ == "__main__":
    main()
