"""A federation whose sites are in another process: the server has descriptions, messages, and nothing else."""

import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from fedaction.data.client import ClientInfo
from fedaction.engines.messages import Message, MessageError, pack, unpack
from fedaction.evaluation.site import EVIDENCE, Evaluation, Question
from fedaction.federation.state import Job, Update
from fedaction.federation.tree import tree_bytes
from fedaction.methods import METHODS
from fedaction.methods.start import initial_state
from fedaction.runs.assembly import Assembly, make_federation, make_rounds
from fedaction.runs.recipe import Recipe, parse_recipe
from fedaction.runs.study import load_clients
from fedaction.server.state import FederationState
from tests.conftest import PHONES, TINY
from tests.server.sites import read_frame, write_frame

ROOT = Path(__file__).parents[2]
SKELETONS = {"stage_clients": 3, "stage_train": [6, 9, 12], "stage_test": 4, "stage_actions": [3, 4, 5], "frames": 12}
LAYOUTS = {"stage_layouts": ["kinect_v2", "openni_15", "kinect_v1"]}
VECTORS = {"stage_clients": 2, "stage_people": 2, "stage_train": 8, "stage_test": 4, "stage_actions": 3}
WIDTHS = {"model_features": 6, "model_hidden": 8, "feature_width": 16}
RECIPES: dict[str, dict[str, Any]] = {
    "fsar": {"method": "fsar", "rounds": 3, **SKELETONS, **LAYOUTS, **TINY, "failure_rate": 0.3, "quorum": 0.6},
    "fdarn": {
        **{"method": "fdarn", "rounds": 2, "data": "stage_features", **VECTORS, **WIDTHS},
        **{"stage_modalities": ["skeleton", "inertial"], "frames": 12, "fdarn_sphere": 5},
    },
    "edge": {
        **{"method": "edge", "rounds": 3, "updates_per_round": 2, "lr_decay": 0.5, "clients_per_round": 2},
        **{**SKELETONS, "stage_actions": [3], **TINY, "classifier": "shared"},
    },
    "fedvssl": {**PHONES, "rounds": 2, "vssl_beta": 1},
}


class RemoteEngine:
    """An `Engine` that writes messages to another process and reads its answers."""

    def __init__(self, process: subprocess.Popen[bytes], recipe: Recipe) -> None:
        assert process.stdin is not None and process.stdout is not None
        self._out, self._in = process.stdin, process.stdout
        self.received: list[tuple[Update, int]] = []
        self._send(Message("recipe", recipe.flat()).pack())
        self.clients = [unpack(ClientInfo, content) for content in self._answers()]
        self.tested = Message.unpack(read_frame(self._in)).values["clients"]

    def train(self, jobs: Iterable[Job]) -> Iterator[Update]:
        self._send(Message("train").pack())
        for job in jobs:
            self._send(pack(job))
        self._send(b"")
        for content in self._answers():
            self.received.append((unpack(Update, content), len(content)))
            yield self.received[-1][0]

    def evaluate(self, jobs: Iterable[Job], question: Question = Question()) -> Iterator[Evaluation]:  # noqa: B008
        self._send(Message("evaluate").pack())
        self._send(pack(question))
        for job in jobs:
            self._send(pack(job))
        self._send(b"")
        for content in self._answers():
            yield unpack(Evaluation, content)

    def commit(self, clients: Iterable[str]) -> None:
        self._send(Message("commit", {"clients": list(clients)}).pack())

    def drop(self, clients: Iterable[str]) -> None:
        self._send(Message("drop", {"clients": list(clients)}).pack())

    def close(self) -> None:
        self._send(b"")

    def _send(self, content: bytes) -> None:
        write_frame(self._out, content)

    def _answers(self) -> Iterator[bytes]:
        while content := read_frame(self._in):
            yield content


def carry_out(recipe, method, engine, tested):
    """All rounds, with tests after each: the rows, the last state, what sites reported at the end."""
    federation = make_federation(recipe, method, lambda _: None)
    rounds = make_rounds(recipe, federation)
    state, rows = FederationState(0, initial_state(method, recipe.run.seeds[0])), []
    for round in range(1, recipe.run.rounds + 1):
        state, more = rounds.advance(state, engine, round)
        rows += more
        rows += [report.metrics for report in federation.evaluate(state, engine, tested)]
    question = Question(tuple(EVIDENCE), samples=2)
    return rows, state, federation.evaluate(state, engine, tested, question)


@pytest.fixture(scope="module")
def process() -> Iterator[subprocess.Popen[bytes]]:
    """The sites' process, for one federation after another."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "tests.server.sites"]
    begun = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=ROOT)
    yield begun
    begun.communicate(timeout=60)
    assert begun.returncode == 0


@pytest.mark.parametrize("name", RECIPES)
def test_a_federation_in_another_process_comes_to_the_same_bytes(process, name):
    recipe = parse_recipe({**RECIPES[name], "seeds": [4], "lr": 0.05, "workers": 1, "device": "cpu"})
    here = Assembly.of(recipe, load_clients(recipe))
    engine = here.engine()
    expected = carry_out(recipe, here.method, engine, here.tested)
    engine.close()

    remote = RemoteEngine(process, recipe)
    method = METHODS[name](remote.clients, recipe.methods[name])
    rows, state, reports = carry_out(recipe, method, remote, remote.tested)
    remote.close()

    assert repr(rows) == repr(expected[0])  # as text: a loss may be no number
    assert repr(reports) == repr(expected[2]) and [r.evidence for r in reports] == [r.evidence for r in expected[2]]
    trees = [(state.server.shared, expected[1].server.shared), (state.server.ahead, expected[1].server.ahead)]
    trees += [(tree, expected[1].server.groups[group]) for group, tree in state.server.groups.items()]
    for one, other in trees:
        assert one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)
    assert len(state.flights) == len(expected[1].flights)
    # What travels is what the scope table says, and little besides.
    assert remote.received
    for update, size in remote.received:
        plan = method.plan(method.clients[update.client])
        assert update.tree.keys() == {*plan.shared} and tree_bytes(update.tree) <= size < plan.traffic + 20_000


def test_messages_come_back_as_they_were():
    job = Job("a|b", "g", 3, 7, {"x|y": torch.arange(6.0).view(2, 3).t(), "": torch.tensor(4)}, 9)
    back = unpack(Job, pack(job))
    assert (back.client, back.group, back.version, back.round, back.number) == ("a|b", "g", 3, 7, 9)
    assert back.payload.keys() == job.payload.keys()
    assert all(torch.equal(back.payload[n], t) and back.payload[n].dtype == t.dtype for n, t in job.payload.items())
    update = Update("a", "g", 3, {"w": torch.ones(2)}, 5.0, {"loss": float("nan")}, "no")
    again = unpack(Update, pack(update))
    assert (again.samples, again.fault) == (5.0, "no") and again.metrics["loss"] != again.metrics["loss"]


def test_bytes_that_are_no_message_are_refused():
    whole = pack(Job("a", "g", 0, 1, {"w": torch.ones(3)}))
    for content in (b"", b"x", whole[:20], whole[:-1], whole + b"1", b"\xff" * 40, whole.replace(b"Job", b"Jib")):
        with pytest.raises(MessageError, match=r"no message|expected a message of kind"):
            unpack(Job, content)
    with pytest.raises(MessageError, match="not whole"):
        unpack(Job, Message("Job", {"client": "a"}).pack())
    for cut in range(0, len(whole), 7):
        broken = bytearray(whole)
        broken[cut] ^= 0xFF
        try:
            unpack(Job, bytes(broken))
        except MessageError:
            continue
