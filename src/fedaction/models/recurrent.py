"""Recurrent layers written out step by step, for stacks of clients.

torch computes an RNN, a GRU or an LSTM by one operation, which `torch.func.vmap` cannot make one over many clients.
Written out, step by step in plain products, it can. Values are the same but for rounding.
"""

from __future__ import annotations

from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn


def write_out(layer: nn.RNNBase) -> None:
    """Gives a recurrent layer the written-out forward, where it can be: the others stay as they are.

    Dropout between its layers and projected LSTMs are not written out.
    """
    if layer.mode in _STEPS and not layer.dropout and not layer.proj_size:
        layer.forward = MethodType(_forward, layer)


def _forward(self: nn.RNNBase, x: Tensor, hx: Any = None) -> tuple[Tensor, Any]:
    """See `nn.RNN`, `nn.GRU` and `nn.LSTM`; no packed sequences."""
    if not isinstance(x, Tensor):
        raise TypeError("packed sequences cannot be stacked")
    if x.dim() != 3:
        raise ValueError("only batches of sequences can be stacked")
    x = x.transpose(0, 1) if self.batch_first else x  # T, N, C
    both = 2 if self.bidirectional else 1
    count = 2 if self.mode == "LSTM" else 1
    if hx is None:
        given = [x.new_zeros(self.num_layers * both, x.shape[1], self.hidden_size)] * count
    else:
        given = list(hx) if self.mode == "LSTM" else [hx]
    last: list[list[Tensor]] = [[] for _ in range(count)]
    for layer in range(self.num_layers):
        outputs: list[Tensor] = []
        for way in range(both):
            state = tuple(part[layer * both + way] for part in given)
            y, state = _run(self, x, state, f"l{layer}{'_reverse' if way else ''}", bool(way))
            outputs.append(y)
            for kept, part in zip(last, state, strict=True):
                kept.append(part)
        x = torch.cat(outputs, -1)
    ends = tuple(torch.stack(parts) for parts in last)
    return x.transpose(0, 1) if self.batch_first else x, ends if self.mode == "LSTM" else ends[0]


def _run(
    layer: nn.RNNBase, x: Tensor, state: tuple[Tensor, ...], name: str, backwards: bool
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """One direction of one layer over (T, N, C); its outputs (T, N, H) and last state."""
    step, recurrent = _STEPS[layer.mode], getattr(layer, f"weight_hh_{name}")
    first, second = (getattr(layer, f"bias_{side}_{name}", None) for side in ("ih", "hh"))
    inputs = torch.nn.functional.linear(x, getattr(layer, f"weight_ih_{name}"), first)
    outputs: list[Tensor] = []
    for t in reversed(range(len(x))) if backwards else range(len(x)):
        state = step(inputs[t], torch.nn.functional.linear(state[0], recurrent, second), state)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if backwards else outputs), state


def _tanh(inputs: Tensor, own: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return ((inputs + own).tanh(),)


def _relu(inputs: Tensor, own: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return ((inputs + own).relu(),)


def _gru(inputs: Tensor, own: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    (reset, update, new), (own_reset, own_update, own_new) = inputs.chunk(3, -1), own.chunk(3, -1)
    update = (update + own_update).sigmoid()
    new = (new + (reset + own_reset).sigmoid() * own_new).tanh()
    return (new + update * (state[0] - new),)


def _lstm(inputs: Tensor, own: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    enter, forget, new, leave = (inputs + own).chunk(4, -1)
    cell = forget.sigmoid() * state[1] + enter.sigmoid() * new.tanh()
    return leave.sigmoid() * cell.tanh(), cell


_STEPS = {"RNN_TANH": _tanh, "RNN_RELU": _relu, "GRU": _gru, "LSTM": _lstm}
