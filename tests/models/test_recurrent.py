"""Recurrent layers written out: what torch's own operation gives."""

import pytest
import torch
from torch import nn
from torch.func import functional_call, vmap

from fedaction.federation.seeds import generator
from fedaction.models.layers import use_stacked_form

CASES = [
    (nn.RNN, {"nonlinearity": "relu"}),
    (nn.RNN, {"bias": False}),
    (nn.GRU, {"num_layers": 2, "bidirectional": True}),
    (nn.GRU, {"batch_first": True}),
    (nn.LSTM, {"num_layers": 2, "batch_first": True}),
    (nn.LSTM, {"bidirectional": True}),
]


@pytest.mark.parametrize(("kind", "keys"), CASES)
def test_written_out_is_the_same(kind, keys):
    torch.default_generator.manual_seed(0)
    plain = kind(3, 5, **keys).double()
    written = use_stacked_form(kind(3, 5, **keys).double())
    written.load_state_dict(plain.state_dict())
    random = generator(0, "recurrent")
    x = torch.randn(4, 6, 3, generator=random, dtype=torch.float64)
    ways = 2 if keys.get("bidirectional") else 1
    shape = keys.get("num_layers", 1) * ways, 4 if keys.get("batch_first") else 6, 5
    hidden = [torch.randn(shape, generator=random, dtype=torch.float64) for _ in range(2)]
    start = tuple(hidden) if kind is nn.LSTM else hidden[0]
    for given in ((x,), (x, start)):
        torch.testing.assert_close(written(*given), plain(*given))
    for layer in (plain, written):
        layer(x)[0].square().sum().backward()
    for name, parameter in plain.named_parameters():
        torch.testing.assert_close(written.get_parameter(name).grad, parameter.grad)


def test_many_clients_at_once():
    torch.default_generator.manual_seed(0)
    layers = [nn.GRU(3, 5, batch_first=True).double() for _ in range(3)]
    stack = {
        name: torch.stack([dict(own.named_parameters())[name].detach() for own in layers])
        for name, _ in layers[0].named_parameters()
    }
    x = torch.randn(3, 4, 6, 3, generator=generator(0, "recurrent"), dtype=torch.float64)
    network = use_stacked_form(nn.GRU(3, 5, batch_first=True).double())
    outputs = vmap(lambda tensors, x: functional_call(network, tensors, (x,))[0])(stack, x)
    torch.testing.assert_close(outputs, torch.stack([layer(own)[0] for layer, own in zip(layers, x, strict=True)]))


def test_what_cannot_be_written_out_stays():
    layer = use_stacked_form(nn.LSTM(3, 5, 2, dropout=0.1))
    assert "forward" not in vars(layer)
