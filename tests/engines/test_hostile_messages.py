"""Bytes of any kind, given to what reads messages: they are a message, or a MessageError; nothing else happens."""

import json
import tracemalloc
from collections import Counter
from collections.abc import Iterator

import pytest
import torch

from fedaction.data.client import ClientInfo
from fedaction.data.layout import layout
from fedaction.engines.messages import Message, MessageError, largest_answer, pack, unpack
from fedaction.evaluation.site import Evaluation, Neighbours, Question
from fedaction.federation.seeds import numpy_generator
from fedaction.federation.state import Job, Update
from fedaction.guard.validate import validate
from fedaction.methods.start import initial_state
from fedaction.server.federation import Federation, Ledger
from fedaction.server.state import FederationState
from tests.conftest import make_method, mixed_clients
from tests.fuzz.mutate import change, change_message

TREE = {"conv.weight": torch.arange(6.0).view(2, 3), "norm.running_var": torch.ones(3), "n": torch.tensor(4)}
WHOLE = {
    Job: Job("site", "skeleton", 2, 3, TREE, 5, 1),
    Update: Update("site", "skeleton", 2, TREE, 12.0, {"loss": 0.5, "ce": 0.25}, "", 5),
    Question: Question(("confusion", "samples"), 2, "validation", Neighbours(3, "euclidean", 0.1)),
    Evaluation: Evaluation("site", {"accuracy": 0.5}, {"confusion": {"classes": ["a"], "matrix": [[3]]}}, 3),
    ClientInfo: ClientInfo("site", "skeleton", 7, ("a", "b"), (1, 12, 15, 3), layout("openni_15")),
}


def broken(count: int, seed: int) -> Iterator[tuple[type, bytes]]:
    whole = [(kind, pack(thing)) for kind, thing in WHOLE.items()]
    for number in range(count):
        random = numpy_generator(seed, "broken", number)
        kind, content = whole[number % len(whole)]
        yield kind, change(content, random) if number % 20 else random.bytes(int(random.integers(0, 300)))


def read_all(count: int, seed: int) -> Counter[str]:
    seen = Counter[str]()
    for kind, content in broken(count, seed):
        try:
            unpack(kind, content)
            seen["read"] += 1
        except MessageError as error:
            assert len(str(error)) < 1000 and str(error).isascii()
            seen["refused"] += 1
    return seen


def test_whatever_the_bytes_are_they_are_a_message_or_a_message_error():
    seen = read_all(4000, 1)
    assert seen["refused"] > 2000 and seen["read"] > 50, seen  # both ways are taken


@pytest.mark.slow
def test_whatever_the_bytes_are_for_longer():
    assert read_all(300_000, 2).total() == 300_000


def test_whatever_can_be_read_is_used_or_refused_and_the_round_goes_on():
    clients = mixed_clients()
    method = make_method("fedavg", clients)
    said: list[str] = []
    federation = Federation(method, [client.info for client in clients.values()], (validate,), said.append)
    state = FederationState(0, initial_state(method, 0))
    job = federation.job(state.server, "client-1", 1)
    whole = pack(Update("client-1", "skeleton", 0, job.payload, 21.0, {"loss": 0.5}, "", 1))
    ledger, used, refused = Ledger(federation, state), 0, 0
    for number in range(1500):
        try:
            update = unpack(Update, change_message(whole, numpy_generator(3, "update", number)), largest_answer(job))
        except MessageError:
            continue
        if ledger.receive(update, job, state.server, 1):
            used, ledger = used + 1, Ledger(federation, state)
        else:
            refused += 1
    assert used > 5 and refused > 100, (used, refused)
    assert all(len(line) < 2000 and line.isprintable() for line in said)


def test_sizes_far_beyond_the_model_are_refused_before_memory_is_taken():
    job = WHOLE[Job]
    whole = pack(WHOLE[Update])
    assert unpack(Update, whole, largest_answer(job)).samples == 12.0
    large = pack(Update("site", "skeleton", 2, {"conv.weight": torch.zeros(2_000_000)}, 1.0))
    with pytest.raises(MessageError, match=r"larger than the \d+ that are allowed"):
        unpack(Update, large, largest_answer(job))
    # A tensor that says it is larger than the bytes that are there.
    at = 8 + int.from_bytes(whole[:8], "little")
    inner = int.from_bytes(whole[at : at + 8], "little")
    header = json.loads(whole[at + 8 : at + 8 + inner])
    for shape, last in (([2, 3 << 40], 24), ([2, 3 << 40], (3 << 43) + 8), ([2**40, 2**40], 24)):
        header["0"] |= {"shape": shape, "data_offsets": [header["0"]["data_offsets"][0], last]}
        text = json.dumps(header).encode()
        lying = whole[:at] + len(text).to_bytes(8, "little") + text + whole[at + 8 + inner :]
        tracemalloc.start()
        with pytest.raises(MessageError):
            unpack(Update, lying)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
        tracemalloc.stop()


def test_a_million_numbers_or_a_megabyte_of_words_do_not_get_in():
    many = pack(Update("site", "skeleton", 2, TREE, 12.0, {f"m{i}": 0.0 for i in range(1_000_000)}))
    with pytest.raises(MessageError, match="their header would have"):
        unpack(Update, many)
    deep = b'{"kind":' + b"[" * 100_000
    with pytest.raises(MessageError, match="no message"):
        Message.unpack(len(deep).to_bytes(8, "little") + deep)
