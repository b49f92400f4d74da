"""One unit of ST-GCN for many clients at once: graph convolution, normalisation, convolution over time, residual.

Nothing is unfolded, permuted or cloned between the kernels: each reads and writes whole activations as they lie.
"""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportIncompatibleMethodOverride=false

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

from fedaction.models.kernels import launch


class UnitTensors(NamedTuple):
    """What a unit computes with; of one client or, with a leading client axis, of several."""

    x: Tensor
    """(N, T, V, C)."""
    graph: Tensor
    """(K, V, V), [from, to]."""
    term: Tensor
    """(V, C'), what the graph convolution's biases give each joint."""
    spatial: Tensor
    """(K, C, C')."""
    spatial_weight: Tensor
    """Of the first normalisation, (C',)."""
    spatial_bias: Tensor
    temporal: Tensor
    """(taps, C', C')."""
    temporal_offset: Tensor
    """The convolution's own bias, (C',)."""
    temporal_weight: Tensor
    temporal_bias: Tensor
    shortcut: Tensor | None
    """(1, C, C'), where the residual is mapped."""
    shortcut_offset: Tensor | None
    shortcut_weight: Tensor | None
    shortcut_bias: Tensor | None


_SPATIAL = UnitTensors._fields.index("spatial") - 1  # behind x


class UnitOptions(NamedTuple):
    """What is not a tensor."""

    stride: int
    residual: bool
    eps: float


def _forward(t: UnitTensors, options: UnitOptions) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """What a stacked unit gives (output, then mean and biased variance of each normalisation), and what to keep."""
    dtype, eps = t.x.dtype, options.eps
    links, weights = t.graph.to(dtype), t.spatial.to(dtype)
    if launch.suits_matrix(t.x, weights):
        a = launch.spread_matrix(t.x, launch.fill_matrix(links, weights), t.term)
    else:
        a = launch.spread(t.x, links, weights, t.term)
    first, first_variance = launch.finish_moments(launch.moments(a), t.spatial_weight, t.spatial_bias, eps)
    h = launch.join(a, first)
    z, partial = launch.convolve(h, t.temporal.to(dtype), t.temporal_offset, options.stride)
    second, second_variance = launch.finish_moments(partial, t.temporal_weight, t.temporal_bias, eps)
    statistics = (first[:, 0].clone(), first_variance, second[:, 0].clone(), second_variance)
    if t.shortcut is None:
        y = launch.join(z, second, t.x if options.residual else None)
        return (y, *statistics), (a, h, z, y, first, second)
    assert t.shortcut_offset is not None and t.shortcut_weight is not None and t.shortcut_bias is not None
    mapped, partial = launch.convolve(t.x, t.shortcut.to(dtype), t.shortcut_offset, options.stride)
    third, third_variance = launch.finish_moments(partial, t.shortcut_weight, t.shortcut_bias, eps)
    y = launch.join(z, second, mapped, third)
    return (y, *statistics, third[:, 0].clone(), third_variance), (a, h, z, y, first, second, mapped, third)


class StackedUnit(Function):
    """A unit over tensors with a leading client axis. Its gradient is written out; statistics have none."""

    @staticmethod
    def forward(ctx: Any, options: UnitOptions, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        """See `UnitTensors`; returns the output, then each normalisation's mean and biased variance, (B, C')."""
        t = UnitTensors(*(None if tensor is None else tensor.contiguous() for tensor in tensors))  # pyright: ignore[reportArgumentType]
        outputs, kept = _forward(t, options)
        ctx.options = options
        ctx.save_for_backward(t.x, t.graph, t.spatial, t.temporal, t.shortcut, *kept)
        ctx.mark_non_differentiable(*outputs[1:])
        ctx.set_materialize_grads(False)
        return outputs

    @staticmethod
    def backward(ctx: Any, slope: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
        """Gradients in the order of `forward`'s arguments."""
        if slope is None:
            return (None,) * (1 + len(UnitTensors._fields))
        options: UnitOptions = ctx.options
        x, graph, spatial, temporal, shortcut, a, h, z, y, first, second, *rest = ctx.saved_tensors
        dtype, time, stride, needs_input = x.dtype, x.shape[2], options.stride, ctx.needs_input_grad[1]
        mapped, third = rest or (None, None)
        rectified, partial, partial_mapped = launch.join_slopes(slope.contiguous(), y, z, second, mapped, third)
        slopes, of_temporal_weight, of_temporal_bias = launch.finish_sums(partial, second)
        behind = launch.before_norm(rectified, z, slopes)
        of_temporal = launch.convolve_slopes(h, behind, temporal.shape[1], stride)
        inner, partial, _ = launch.join_slopes(
            launch.convolve_back(behind, temporal.to(dtype), stride, time), h, a, first
        )
        residual = rectified if options.residual else None
        of_shortcut = of_shortcut_weight = of_shortcut_bias = None
        if shortcut is not None and mapped is not None and third is not None:
            slopes, of_shortcut_weight, of_shortcut_bias = launch.finish_sums(partial_mapped, third)
            behind = launch.before_norm(rectified, mapped, slopes)
            of_shortcut = launch.convolve_slopes(x, behind, 1, stride)
            residual = launch.convolve_back(behind, shortcut.to(dtype), stride, time) if needs_input else None
        slopes, of_spatial_weight, of_spatial_bias = launch.finish_sums(partial, first)
        behind, links, weights = launch.before_norm(inner, a, slopes), graph.to(dtype), spatial.to(dtype)
        of_x = None
        if launch.suits_matrix(x, weights):
            if needs_input:
                of_x = launch.spread_matrix_back(behind, launch.fill_matrix(links, weights), residual)
            of_graph, of_spatial, of_term = launch.spread_matrix_slopes(x, behind, links, weights)
        else:
            of_x = launch.spread_back(behind, links, weights, residual) if needs_input else None
            of_graph, of_spatial, of_term = launch.spread_slopes(x, behind, links, weights)
        # A bias in front of a normalisation shifts its mean alone: it has no gradient.
        of_offset = torch.zeros_like(of_temporal_bias)
        return (
            None, of_x, of_graph, of_term, of_spatial, of_spatial_weight, of_spatial_bias, of_temporal, of_offset,
            of_temporal_weight, of_temporal_bias, of_shortcut, None if shortcut is None else of_offset,
            of_shortcut_weight, of_shortcut_bias,
        )  # fmt: skip


class ClientUnit(Function):
    """A unit of one client, which `torch.func.vmap` turns into `StackedUnit` over all of them."""

    @staticmethod
    def forward(options: UnitOptions, *tensors: Tensor | None) -> tuple[Tensor, ...]:
        """See `StackedUnit.forward`, without the client axis."""
        stacked = UnitTensors(*(None if t is None else t.unsqueeze(0).contiguous() for t in tensors))  # pyright: ignore[reportArgumentType]
        return tuple(output.squeeze(0) for output in _forward(stacked, options)[0])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        """Nothing is kept: only the stacked unit has a gradient."""
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx: Any, *slopes: Any) -> Any:
        """Not here."""
        raise NotImplementedError("a unit by kernels has its gradient under torch.func.vmap alone")

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], options: UnitOptions, *tensors: Tensor | None) -> Any:
        """All clients' units at once."""
        stacked = [
            None if t is None else t.expand(info.batch_size, *t.shape) if d is None else t.movedim(d, 0)
            for t, d in zip(tensors, in_dims[1:], strict=True)
        ]
        outputs = StackedUnit.apply(options, *stacked)
        return outputs, (0,) * len(outputs)  # pyright: ignore[reportArgumentType]


def apply_unit(options: UnitOptions, stacked: bool, *tensors: Tensor | None) -> tuple[Tensor, ...]:
    """A client's unit, in the precision that autocast asks for.

    Args:
        options: see there.
        stacked: whether `torch.func.vmap` stacks clients around it.
        tensors: see `UnitTensors`.

    Returns:
        The output (N, T', V, C'), then the mean and the biased variance (C',) of each normalisation.
    """
    x, *others = tensors
    assert x is not None
    if torch.is_autocast_enabled("cuda"):
        x = x.to(torch.get_autocast_dtype("cuda"))
    spatial = others[_SPATIAL]
    if (missing := -x.shape[-1] % 8) and not options.residual and spatial is not None:
        # Whole rows of 16 bytes, for products of whole frames; a residual would need its features as they are.
        x, others[_SPATIAL] = F.pad(x, (0, missing)), F.pad(spatial, (0, 0, 0, missing))
    if stacked:
        return ClientUnit.apply(options, x, *others)  # pyright: ignore[reportReturnType]
    one = (None if t is None else t.unsqueeze(0) for t in (x, *others))
    return tuple(output.squeeze(0) for output in StackedUnit.apply(options, *one))  # pyright: ignore[reportOptionalIterable, reportGeneralTypeIssues]
