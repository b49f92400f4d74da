"""Whether clients can be stacked: asked of every method, and the reason where they cannot."""

import re

import pytest
import torch
from torch import nn

from fedaction.data.client import ClientData, ClientInfo
from fedaction.data.samples import Examples
from fedaction.engines.stackable import find_unstackable
from fedaction.federation.seeds import generator
from fedaction.methods import METHODS
from fedaction.methods.central import arrange
from fedaction.methods.perfedavg import PerFedAvg
from fedaction.methods.pfedme import PFedMe
from fedaction.models.layers import take_windows
from fedaction.runs.ready import check_ready
from fedaction.runs.recipe import parse_recipe
from tests.conftest import LABELLED, PHONES, TINY, federation_for, few, make_client, make_method

OWN_STEPS = [name for name, kind in METHODS.items() if kind.overrides("step")]


@pytest.mark.parametrize("name", LABELLED)
def test_every_method_stacks_at_home(name):
    _, method = federation_for(name, few=True, model_dropout=0.2)
    before = torch.random.get_rng_state()
    assert find_unstackable(method, 0) == ""
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("name", ["fedvssl", "fedu"])
def test_methods_that_learn_without_labels_stack_with_what_their_task_makes(name):
    values = {**PHONES, "method": name}
    recipe = parse_recipe(values)
    clients = {
        f"phone-{i}": ClientData(
            ClientInfo(f"phone-{i}", "video", 4, ("a", "b"), (14, 20, 20, 3)),
            Examples(torch.zeros(4, 14, 20, 20, 3), torch.zeros(4, dtype=torch.int64)),
            Examples(torch.zeros(1, 14, 20, 20, 3), torch.zeros(1, dtype=torch.int64)),
        )
        for i in range(2)
    }
    infos = [client.info for client in arrange(METHODS[name], clients).values()]
    assert find_unstackable(METHODS[name](infos, recipe.methods[name]), 0) == ""


@pytest.mark.parametrize("name", OWN_STEPS)
@pytest.mark.parametrize("backbone", few(["stgcn", "ctrgcn", "mstgcn", "msg3d", "resnet3d"], "stgcn", "resnet3d"))
def test_own_steps_stack_on_convolutions(name, backbone):
    assert OWN_STEPS == ["pfedme", "perfedavg"]
    client = make_client(0, train=4)
    if backbone == "resnet3d":
        info = ClientInfo("client-0", "video", 4, ("a", "b"), (4, 16, 16, 3))
        client = ClientData(info, client.train, client.test)
    method = make_method(
        name,
        {"client-0": client},
        backbone=backbone,
        model_width=12 if backbone == "msg3d" else 8,
        model_scales=(4, 2),
        pfedme_steps=1,
        model_dropout=0.2,
    )
    assert find_unstackable(method, 0) == ""


@pytest.mark.parametrize(("frames", "stride", "dilation"), [(9, 1, 1), (9, 2, 1), (5, 2, 2), (3, 1, 3)])
def test_windows_are_the_same_from_slices(double, frames, stride, dilation):
    span = dilation * (frames - 1) + 1
    x = torch.randn(2, 21, 3, 4, generator=generator(0, "x")).requires_grad_()
    slopes = []
    for nested in (False, True):
        windows = take_windows(x, span, stride, dilation, nested=nested)
        assert windows.shape[-1] == frames
        weights = torch.randn(windows.shape, generator=generator(0, "w"))
        slopes.append((windows.detach(), torch.autograd.grad((windows * weights).sum(), x)[0]))
    assert torch.equal(slopes[0][0], slopes[1][0])
    torch.testing.assert_close(slopes[0][1], slopes[1][1])


class Inside(nn.Module):
    """Drops inside of itself, by torch's own generator."""

    def __init__(self, classes):
        super().__init__()
        self.rnn = nn.LSTM(3, 4, 2, dropout=0.5, batch_first=True)
        self.classifier = nn.Linear(4, classes)

    def forward(self, x):
        return self.classifier(self.rnn(x)[0][:, -1])


class Branching(PFedMe):
    """A step that looks at values."""

    def step(self, net, anchor, batch, lr):
        if batch.x.sum() > 0:
            return {}, {}
        return super().step(net, anchor, batch, lr)


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Branching, "what STGCN computes cannot be stacked \\(vmap: It looks like you're attempting to use a Tensor"),
        (
            type("Windows", (PerFedAvg,), {"build": lambda self, client: Inside(len(client.classes))}),
            "layer 'rnn', a LSTM, cannot be stacked",
        ),
    ],
)
def test_an_own_step_that_cannot_be_stacked_is_named(kind, said):
    client = make_client(0, train=4)
    if kind is not Branching:
        client = ClientData(ClientInfo("client-0", "watch", 4, ("a", "b"), (6, 3)), client.train, client.test)
    settings = kind.settings_type(**TINY)
    assert re.match(said, find_unstackable(kind([client.info], settings), 0))


def test_a_method_of_the_package_is_asked_too_before_anything_is_written(monkeypatch):
    clients = {"client-0": make_client(0, train=4)}
    recipe = parse_recipe({"method": "pfedme", "engine": "vectorised", **TINY})
    check_ready(recipe, clients)
    monkeypatch.setattr(PFedMe, "step", Branching.step)
    with pytest.raises(
        ValueError, match="engine = 'vectorised' trains many clients at once, but what STGCN computes"
    ):
        check_ready(recipe, clients)
