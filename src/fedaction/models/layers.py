"""The few layers that skeleton networks are made of, features last: activations are (N, T, V, C).

Each layer has two forms of the same function. The plain form is fastest for one client at a time. The stacked form
uses only matrix products and reductions, which `torch.func.vmap` turns into products over all clients at once
(a stacked convolution would become a grouped one, many times slower). `use_stacked_form` switches a whole network;
tests hold the two forms equal. On a CPU the plain form carries out products as convolutions (`TwoForm.convolves`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.models.recurrent import write_out


class TwoForm(nn.Module):
    """A layer with a plain and a stacked form."""

    stacked = False
    nested = False
    products = False
    """Whether its plain form keeps to matrix products on a CPU, too; benchmarks and tests compare with them."""

    def convolves(self, x: Tensor) -> bool:
        """Whether products are carried out as convolutions over single entries: sums of the same terms.

        oneDNN does those with all that a CPU has. The library behind torch's products of float32 does not on every
        processor, least of all those of small matrices, one for each frame.
        """
        suits = x.dtype is torch.float32 and x.device.type == "cpu" and torch.backends.mkldnn.is_available()
        return suits and not self.products and not self.stacked


def use_products(module: nn.Module) -> nn.Module:
    """Keeps every layer's plain form to matrix products, and returns the network."""
    for layer in module.modules():
        if isinstance(layer, TwoForm):
            layer.products = True
    return module


def use_stacked_form(module: nn.Module, stacked: bool = True, *, nested: bool = False) -> nn.Module:
    """Switches every two-form layer of a network, and returns the network; torch's recurrent ones are written out.

    `nested`: whether gradients are taken inside of `vmap`, as methods with steps of their own do, and not around it.
    """
    for layer in module.modules():
        if isinstance(layer, TwoForm):
            layer.stacked, layer.nested = stacked, nested
        elif stacked and isinstance(layer, nn.RNNBase):
            write_out(layer)
    return module


def take_windows(x: Tensor, frames: int, stride: int, dilation: int = 1, *, nested: bool = False) -> Tensor:
    """Windows of frames, one every `stride` frames: (N, T, ...) to (N, T', ..., taps), a tap every `dilation` frames.

    `vmap` has no rule for the gradient of `unfold`: where it is `nested`, windows are put together from slices.
    """
    if not nested:
        return x.unfold(1, frames, stride)[..., ::dilation]
    last = (x.shape[1] - frames) // stride * stride
    return torch.stack([x[:, tap : tap + last + 1 : stride] for tap in range(0, frames, dilation)], -1)


class BatchNorm(TwoForm):
    """Batch normalisation over all axes but the last (C features)."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self, features: int, eps: float = 1e-5, momentum: float = 0.1, *, scale: float = 1.0, spread: float = 0.02
    ) -> None:
        """Weights start from N(scale, spread); the default is what ST-GCN's training code does."""
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.bias = nn.Parameter(torch.zeros(features))
        self.register_buffer("running_mean", torch.zeros(features))
        self.register_buffer("running_var", torch.ones(features))
        self.eps, self.momentum, self.track_running_stats = eps, momentum, True
        self.scale, self.spread = scale, spread

    def initialise(self, generator: torch.Generator) -> None:
        """Weights from N(scale, spread); biases 0; statistics fresh."""
        self.weight.normal_(self.scale, self.spread, generator=generator)
        self.bias.zero_()
        self.running_mean.zero_()
        self.running_var.fill_(1.0)

    def forward(self, x: Tensor) -> Tensor:
        """(..., C) to (..., C)."""
        if not self.stacked:
            # Channels-last memory seen as (N, C, L, 1): no copy is made, and the fast kernels apply.
            flat = x.reshape(x.shape[0], -1, 1, x.shape[-1]).permute(0, 3, 1, 2)
            kept = self.track_running_stats or not self.training
            running = (self.running_mean, self.running_var) if kept else (None, None)
            y = F.batch_norm(flat, *running, self.weight, self.bias, self.training, self.momentum, self.eps)
            return y.permute(0, 2, 3, 1).reshape(x.shape)
        if self.training:
            axes = tuple(range(x.dim() - 1))
            var, mean = torch.var_mean(x, axes, correction=0)
            if self.track_running_stats:
                self.track(mean.detach(), var.detach(), x.numel() // x.shape[-1])
        else:
            mean, var = self.running_mean, self.running_var
        scale = torch.rsqrt(var + self.eps) * self.weight
        return torch.addcmul(self.bias - mean * scale, x, scale)

    @torch.no_grad()
    def track(self, mean: Tensor, var: Tensor, count: int) -> None:
        """Moves the running statistics towards a batch's mean and biased variance over `count` rows."""
        unbiased = var * (count / max(count - 1, 1))
        self.running_mean.mul_(1 - self.momentum).add_(mean, alpha=self.momentum)
        self.running_var.mul_(1 - self.momentum).add_(unbiased, alpha=self.momentum)


class GraphConv(TwoForm):
    """Graph convolution over K partitions: out[w] = sum_k sum_v x[v] graph[k, v, w] W_k (Eq. 1 of FSAR).

    Args:
        inputs: features per joint.
        outputs: features per joint, after.
        partitions: K.
        std: see `draw`; ST-GCN's by default.
        bias: "before" the graph, one per partition (ST-GCN), or "after" it, one in all (MS-G3D).
    """

    outputs_last = True  # in its weights

    def __init__(
        self,
        inputs: int,
        outputs: int,
        partitions: int,
        *,
        std: float | None = 0.02,
        bias: Literal["before", "after"] = "before",
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(partitions, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(partitions, outputs) if bias == "before" else torch.empty(outputs))
        self.std, self.before = std, bias == "before"

    def initialise(self, generator: torch.Generator) -> None:
        """See `draw`."""
        draw(self.weight, self.bias, self.std, generator)

    def forward(self, x: Tensor, graph: Tensor) -> Tensor:
        """(N, T, V, C) and a (K, V, V) graph to (N, T, V, C')."""
        count, frames, joints, channels = x.shape
        partitions = graph.shape[0]
        each, weight = x.reshape(-1, joints, channels), self.weight.flatten(0, 1)
        convolves = self.convolves(x)
        if self.stacked or (joints > 64 and not convolves):  # a large graph: no gradient of it for every frame
            mixed = torch.einsum("nvc,kvw->nwkc", each, graph)
        else:
            # One row per (target joint, partition): the products come out with the partitions side by side.
            rows = graph.permute(2, 0, 1).reshape(joints * partitions, joints)
            mixed = F.conv1d(each, rows[..., None]) if convolves else rows.expand(len(each), -1, -1).bmm(each)
        mixed = mixed.reshape(count, frames, joints, partitions * channels)
        if convolves:
            y = F.conv2d(mixed.permute(0, 3, 1, 2), weight.t()[..., None, None]).permute(0, 2, 3, 1)
        else:
            y = mixed @ weight
        # A bias before the graph reaches a joint times the weight of its incoming links.
        return y + (graph.sum(1).transpose(0, 1) @ self.bias if self.before else self.bias)


class TemporalConv(TwoForm):
    """Convolution over time alone, with 'same' padding: kernel (k, 1), stride (s, 1), dilation (d, 1).

    `kernel` is odd; `std` is ST-GCN's by default, see `draw`.
    """

    outputs_last = True  # in its weights

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int = 1, *, dilation: int = 1, std: float | None = 0.02
    ) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(kernel, inputs, outputs))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.kernel, self.stride, self.dilation, self.std = kernel, stride, dilation, std

    def initialise(self, generator: torch.Generator) -> None:
        """See `draw`."""
        draw(self.weight, self.bias, self.std, generator)

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, V, C) to (N, ceil(T / stride), V, C')."""
        if self.kernel == 1 and not self.convolves(x):
            return x[:, :: self.stride] @ self.weight[0] + self.bias
        margin = self.dilation * (self.kernel - 1) // 2
        if not self.stacked:
            kernel = self.weight.permute(2, 1, 0).unsqueeze(-1)  # C', C, k, 1
            y = F.conv2d(x.permute(0, 3, 1, 2), kernel, self.bias, (self.stride, 1), (margin, 0), (self.dilation, 1))
            return y.permute(0, 2, 3, 1)
        span = self.dilation * (self.kernel - 1) + 1
        padded = F.pad(x, (0, 0, 0, 0, margin, margin))
        windows = take_windows(padded, span, self.stride, self.dilation, nested=self.nested).flatten(-2)
        return windows @ self.weight.transpose(0, 1).flatten(0, 1) + self.bias


def maximum_over_time(x: Tensor, stride: int = 1) -> Tensor:
    """Maxima over three neighbouring frames, (N, T, V, C) to (N, ceil(T / stride), V, C).

    One form for all engines: where frames are equal, `max_pool2d` would send the gradient elsewhere.
    """
    padded = F.pad(x, (0, 0, 0, 0, 1, 1), value=-math.inf)
    span = x.shape[1]
    before, here, after = (padded[:, i : i + span : stride] for i in range(3))
    return torch.maximum(torch.maximum(before, here), after)


class MultiScaleTemporal(nn.Module):
    """Convolution over time in parallel branches of equal width (MS-TCN of CTR-GCN and MS-G3D), without a residual.

    One branch for each dilation, one for maxima over three frames, one that only mixes features. All but the last
    first map the input to their own width, normalise and rectify it; here that is one product for all of them.
    """

    def __init__(
        self, inputs: int, outputs: int, kernel: int, stride: int, dilations: Sequence[int], *, fan_out: bool
    ) -> None:
        """Starts as CTR-GCN does (`fan_out`), or from torch's usual rule as MS-G3D does."""
        super().__init__()
        branches = len(dilations) + 2
        if outputs % branches:
            raise ValueError(f"{outputs} channels do not split into {branches} temporal branches of equal width")
        width = outputs // branches
        std, spread = (fan_out_std(width), 0.02) if fan_out else (None, 0.0)
        self.enter = TemporalConv(inputs, outputs - width, 1, std=std)
        self.enter_norm = BatchNorm(outputs - width, spread=spread)
        self.scales = nn.ModuleList(
            TemporalConv(
                width, width, kernel, stride, dilation=d, std=fan_out_std(width, kernel) if fan_out else None
            )
            for d in dilations
        )
        self.plain = TemporalConv(inputs, width, 1, stride, std=std)
        self.norm = BatchNorm(outputs, spread=spread)
        self.width, self.stride = width, stride

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, V, C) to (N, ceil(T / stride), V, C')."""
        *convolved, pooled = self.enter_norm(self.enter(x)).relu().split(self.width, -1)
        branches = [scale(part) for scale, part in zip(self.scales, convolved, strict=True)]
        branches += [maximum_over_time(pooled, self.stride), self.plain(x)]
        return self.norm(torch.cat(branches, -1))


def shortcut(inputs: int, outputs: int, stride: int = 1, *, std: float | None) -> nn.Module:
    """A residual path: nothing where the shape stays, else a normalised map of each frame's features."""
    if inputs == outputs and stride == 1:
        return nn.Identity()
    return nn.Sequential(TemporalConv(inputs, outputs, 1, stride, std=std), BatchNorm(outputs, spread=0.0))


class Dropout(nn.Module):
    """Dropout whose mask is a hash of a key: no generator is involved, so it is the same on every engine and device.

    The engine sets `key` from the run's seed, the client and the round (`set_dropout_keys`); every call moves it on.
    """

    key: Tensor

    def __init__(self, rate: float) -> None:
        super().__init__()
        self.rate = rate
        self.register_buffer("key", torch.zeros((), dtype=torch.int64), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Zeroes a share `rate` of the entries and scales up the rest; in evaluation mode, nothing."""
        if not self.training or self.rate == 0.0:
            return x
        count = torch.arange(x.numel(), device=x.device, dtype=torch.int64)
        key = self.key
        if torch.compiler.is_compiling():
            # Compiled, the backward pass may make the mask anew, from a key that has moved on by then (pytorch
            # #197039). A cumulative sum, here of one number, is never computed twice but kept.
            key = key.cumsum(0)
        h = _mix(_mix(count + key * 0x9E3779B1) + key)
        keep = (h & 0xFFFFFF).to(x.dtype) >= self.rate * 0x1000000
        self.key.add_(1)
        return x * keep.view(x.shape).to(x.dtype) / (1 - self.rate)


def _mix(h: Tensor) -> Tensor:
    """An integer hash (xor-shift and multiply) within 62 bits; wrap-around is the same everywhere."""
    h = (h ^ (h >> 31)) * 0x7FB5D329728EA185
    h = (h ^ (h >> 27)) * 0x1DADEF4BC2DD44D5
    return h ^ (h >> 33)


def fan_out_std(outputs: int, kernel: int = 1) -> float:
    """The spread of He's normal initialisation of a convolution, by its fan out."""
    return math.sqrt(2 / (outputs * kernel))


def draw(weight: Tensor, bias: Tensor, std: float | None, generator: torch.Generator) -> None:
    """Fills a convolution's (..., inputs, outputs) weight and its bias.

    Weights come from N(0, std) and biases are 0; None: both uniform within 1 / sqrt(fan in), torch's usual rule.
    """
    if std is not None:
        weight.normal_(0.0, std, generator=generator)
        bias.zero_()
        return
    bound = 1 / math.sqrt(weight[..., 0].numel())
    weight.uniform_(-bound, bound, generator=generator)
    bias.uniform_(-bound, bound, generator=generator)


def initialise(module: nn.Module, generator: torch.Generator) -> None:
    """Fills one module's own tensors (not its children's).

    A module with an `initialise(generator)` method fills itself. Other modules with weights get torch's usual rule
    (uniform within 1 / sqrt(fan in)), normalisations 1 and 0; nothing ever draws from the global generator.
    """
    with torch.no_grad():
        own = getattr(module, "initialise", None)
        if own is not None:
            own(generator)
        elif isinstance(module, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
            bound = 1 / math.sqrt(module.weight[0].numel())
            module.weight.uniform_(-bound, bound, generator=generator)
            if module.bias is not None:
                module.bias.uniform_(-bound, bound, generator=generator)
        elif isinstance(module, nn.ParameterList | nn.ParameterDict):
            pass  # its owner fills it
        elif list(module.parameters(recurse=False)):
            reset = getattr(module, "reset_parameters", None)
            if reset is None or "Norm" not in type(module).__name__:
                raise TypeError(f"{type(module).__name__} holds parameters but has no initialise(generator) method")
            reset()  # normalisations: ones and zeros, no randomness
