"""Optimisers are torch.optim's, whichever engine takes their steps."""

from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from fedaction.data.samples import in_memory
from fedaction.engines.base import plan_batches, undecayed_names
from fedaction.engines.optimisers import FusedOptimiser, StackedOptimiser
from fedaction.engines.sequential import SequentialEngine
from fedaction.engines.vectorised import VectorisedEngine
from fedaction.federation.seeds import generator
from fedaction.methods.start import fresh, initial_state
from tests.conftest import federation_for, few
from tests.engines.test_engines_agree import CPU, TRAINING, jobs_of, rounds
from tests.engines.test_fast import video_method

OURS = replace(TRAINING, batch_size=3, local_epochs=2, lr=0.01, weight_decay=0.1, clip_norm=0.5, augment=None)
# Where a gradient is near 0, Adam's step makes rounding up to 1e8 times larger, here to 3e-6; a step is 1e-2.
TOLERANCE = 1e-4
RULES = {
    "sgd": lambda groups: torch.optim.SGD(groups, 0.01, 0.9, nesterov=True),
    "adam": lambda groups: torch.optim.Adam(groups, 0.01),
    "adamw": lambda groups: torch.optim.AdamW(groups, 0.01),
}


def train_by_hand(method, client, job, training, tensors):
    """Local training as anybody would write it with torch.optim; the network's tensors afterwards."""
    net = fresh(method, client.info, training.seed).train()
    net.load_state_dict({**net.state_dict(), **tensors})
    plain = undecayed_names(method.plan(client.info))
    optimiser = RULES[training.optimiser](
        [{"params": [p], "weight_decay": 0.0 if n in plain else 0.1} for n, p in net.named_parameters()]
    )
    data, norms = in_memory(client.train), []
    for rows in plan_batches(training, job, len(data)):
        optimiser.zero_grad()
        F.cross_entropy(net(data.take(rows)), data.labels[rows]).backward()
        norms.append(float(nn.utils.clip_grad_norm_(net.parameters(), training.clip_norm)))
        optimiser.step()
    assert max(norms) > training.clip_norm  # else nothing was clipped
    return net.state_dict()


@pytest.mark.parametrize("engine", [SequentialEngine, VectorisedEngine])
@pytest.mark.parametrize("name", few(RULES, "sgd", "adamw"))
def test_engines_step_as_torch_optim_does(double, name, engine):
    """In a network with batch normalisation, with weight decay and clipping, anew in the second round."""
    clients, method = video_method("resnet3d")
    training = replace(OURS, optimiser=name)
    made = engine(method, clients, training, CPU)
    state = initial_state(method, 3)
    for round in (1, 2):
        jobs = jobs_of(method, state, clients, round)
        before = [made.tensors(job) for job in jobs]
        for job, tensors, update in zip(jobs, before, made.train(jobs), strict=True):
            expected = train_by_hand(method, clients[job.client], job, training, tensors)
            for n, tensor in {**update.tree, **made.store.pending(job.client)}.items():
                torch.testing.assert_close(tensor, expected[n], atol=TOLERANCE, rtol=TOLERANCE)
    made.close()


@pytest.mark.parametrize("nesterov", [False, True])
@pytest.mark.parametrize("name", RULES)
def test_one_networks_steps_are_torch_optims_to_the_last_bit(name, nesterov):
    """Parameters of two kinds of numbers; one has a gradient in every other step alone; then all is forgotten."""
    random, shapes = generator(5), ((3, 4), (3,), (2,))

    def make() -> list[nn.Parameter]:
        return [nn.Parameter(torch.ones(s, dtype=torch.float64 if len(s) > 1 else torch.float32)) for s in shapes]

    def group(weights: list[nn.Parameter]) -> list[dict[str, object]]:
        return [{"params": weights[:2], "weight_decay": 0.1}, {"params": weights[2:], "weight_decay": 0.0}]

    mine = make()
    ours = FusedOptimiser(name, group(mine), 0.01, momentum=0.9, nesterov=nesterov)
    for _ in range(2):
        theirs = [nn.Parameter(weight.detach().clone()) for weight in mine]
        rule = {"sgd": torch.optim.SGD, "adam": torch.optim.Adam, "adamw": torch.optim.AdamW}[name]
        more = {"momentum": 0.9, "nesterov": nesterov} if name == "sgd" else {}
        expected = rule(group(theirs), lr=0.01, fused=True, **more)
        for step in range(4):
            for place, (one, other) in enumerate(zip(mine, theirs, strict=True)):
                slope = torch.randn(one.shape, generator=random, dtype=one.dtype)
                one.grad, other.grad = (None, None) if place == 2 and step % 2 else (slope, slope.clone())
            ours.step()
            expected.step()
        ours.zero_grad()
        assert all(weight.grad is None for weight in ours.parameters())
        assert all(torch.equal(one, other) for one, other in zip(mine, theirs, strict=True))
        assert not torch.equal(mine[0], torch.ones_like(mine[0]))
        ours.reset(0.01)


@pytest.mark.parametrize("name", RULES)
def test_stacked_steps_are_torch_optims_client_by_client(double, name):
    """Clients that are done drop off the end; tensors without a gradient are left alone, and so is their memory."""
    random, training = generator(5), replace(OURS, optimiser=name, clip_norm=0.0)
    shapes = {"weight": (3, 4), "bias": (3,), "turn": (2,)}
    stack = {n: torch.randn(3, *shape, generator=random) for n, shape in shapes.items()}
    singles = [{n: nn.Parameter(t[i].clone()) for n, t in stack.items()} for i in range(3)]
    rules = [
        RULES[name]([{"params": [p], "weight_decay": 0.0 if n == "bias" else 0.1} for n, p in own.items()])
        for own in singles
    ]
    ours = StackedOptimiser(stack, {"bias"}, training)
    for step, active in enumerate((3, 3, 2, 2, 1)):
        names = [n for n in shapes if n != "turn" or step % 2]
        gradients = {n: torch.randn(active, *shapes[n], generator=random) for n in names}
        for i in range(active):
            for n, parameter in singles[i].items():
                parameter.grad = gradients[n][i].clone() if n in gradients else None
            rules[i].step()
        ours.step({n: t[:active] for n, t in stack.items()}, gradients, 0.01)
    for i, own in enumerate(singles):
        for n, parameter in own.items():
            torch.testing.assert_close(stack[n][i], parameter.detach(), atol=1e-13, rtol=1e-13)


@pytest.mark.parametrize("name", ["adam", "adamw"])
def test_a_part_that_some_epochs_leave_alone_counts_its_own_steps(double, name):
    """FedRep trains the head first, then the rest: both engines correct Adam's start for each tensor's own steps."""
    clients, method = federation_for("fedrep", model_dropout=0.2)
    training = replace(TRAINING, optimiser=name, lr=0.01, augment=None)
    kinds = {"one": SequentialEngine, "many": VectorisedEngine}
    found = {k: rounds(kind(method, clients, training, CPU), method, clients) for k, kind in kinds.items()}
    for one, many in zip(found["one"][0], found["many"][0], strict=True):
        kept = [found[k][3][one.client] for k in kinds]
        for mine, theirs in ((one.tree, many.tree), kept):
            for n in mine:
                torch.testing.assert_close(mine[n], theirs[n], atol=TOLERANCE, rtol=TOLERANCE, msg=n)
