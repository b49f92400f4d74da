"""How kernels are called: grids, tiles, and the tensors that they fill. All are (clients, ...) and contiguous."""

# pyright: reportMissingImports=false, reportIndexIssue=false, reportArgumentType=false

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
from torch import Tensor

from fedaction.models.kernels import convolution, graph, norms

_TILE = 64  # features in or out that one product takes at most
_MATRIX = 16  # features up to which whole frames are multiplied at once
_SHARED = 200_000  # bytes of shared memory that a block may use
_PROGRAMS = 1024  # that a reduction over rows is split into, at least, where clients are few


class Launch(NamedTuple):
    """How a kernel is launched."""

    size: int
    """Rows of a block, or columns (frames times features) of a graph convolution's."""
    warps: int
    stages: int = 1


_LAUNCHES = {
    "spread": {16: Launch(256, 4, 2), 32: Launch(256, 4, 2), 64: Launch(256, 4, 2)},
    "spread_back": {16: Launch(256, 8, 2), 32: Launch(256, 8, 2), 64: Launch(256, 4, 2)},
    "spread_slopes": {16: Launch(64, 2, 3), 32: Launch(64, 2, 1), 64: Launch(64, 2, 1)},
    "convolve": {16: Launch(128, 2, 4), 32: Launch(128, 4, 4), 64: Launch(128, 4, 4)},
    "convolve_back": {16: Launch(256, 4, 4), 32: Launch(128, 4, 4), 64: Launch(64, 4, 2)},
    "convolve_slopes": {16: Launch(64, 2, 2), 32: Launch(32, 2, 2), 64: Launch(64, 4, 2)},
}
"""By kernel and the largest tile of features; the fastest of those tried on an H200 (docs/speed.md)."""
_FINISHED = 16  # features whose partial results one program adds up
_ENTRIES = 4096  # of a block of the kernels that go entry by entry


class Partial(NamedTuple):
    """What a reduction over rows has left, block by block."""

    values: Tensor
    """(B, blocks, 2, C) float32."""
    rows: int
    """Of a client."""
    per_block: int
    """Rows of a block."""


class _Flat(NamedTuple):
    """An activation as (clients, rows, C), cut into blocks of rows."""

    clients: int
    rows: int
    blocks: int
    options: dict[str, int]
    """What the kernels that go entry by entry are specialised to."""

    def partial(self, like: Tensor) -> Partial:
        return Partial(_partial(like, self.blocks, self.options["C"]), self.rows, self.options["ROWS"])


def choose(kernel: str, *features: int) -> Launch:
    """How a kernel is launched for so many features in and out."""
    return _LAUNCHES[kernel][max(map(_tile, features))]


def _stages(how: Launch, x: Tensor, features: int) -> int:
    """Stages of a pipeline over the taps of a convolution, as many as shared memory holds."""
    tile = _tile(features)
    stage = (how.size + _TILE) * tile * triton.cdiv(features, tile) * x.element_size()
    return max(1, min(how.stages, _SHARED // stage))


def _precision() -> str:
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def _tile(features: int) -> int:
    return min(_TILE, _width(features))


def _width(features: int) -> int:
    return max(16, triton.next_power_of_2(features))


def _partial(like: Tensor, blocks: int, features: int) -> Tensor:
    return torch.empty(len(like), blocks, 2, features, device=like.device, dtype=torch.float32)


def _splits(clients: int, others: int, blocks: int) -> tuple[int, int]:
    """Into how many splits blocks are divided, and blocks of a split."""
    splits = max(1, min(blocks, triton.cdiv(_PROGRAMS, clients * others)))
    each = triton.cdiv(blocks, splits)
    return triton.cdiv(blocks, each), each


def _flatten(x: Tensor) -> _Flat:
    clients, features = len(x), x.shape[-1]
    rows, width = x[0].numel() // features, _width(features)
    size = max(16, _ENTRIES // width)
    return _Flat(clients, rows, triton.cdiv(rows, size), {"C": features, "ROWS": size, "BC": width, "num_warps": 4})


def spread(x: Tensor, links: Tensor, weight: Tensor, term: Tensor) -> Tensor:
    """Graph convolution of (B, S, T, V, C) activations over (B, K, V, V) graphs by (B, K, C, C') weights.

    `term` (B, V, C') is what biases give each joint.
    """
    clients, samples, time, joints, features = x.shape
    outputs, frames = weight.shape[-1], samples * time
    how, tile = choose("spread", features, outputs), _tile(outputs)
    size = max(1, how.size // _tile(features))
    out = x.new_empty(*x.shape[:-1], outputs)
    graph.spread[(triton.cdiv(frames, size), clients, triton.cdiv(outputs, tile))](
        x, links, weight, term, x, out, frames, joints,
        CI=features, CO=outputs, K=links.shape[1], G_FROM=joints, G_TO=1, W_IN=outputs, W_OUT=1,
        FORWARD=True, HAS_RESIDUAL=False, PRECISION=_precision(),
        FRAMES=size, BV=_width(joints), BK=_tile(features), BN=tile, num_warps=how.warps, num_stages=how.stages,
    )  # fmt: skip
    return out


def spread_back(behind: Tensor, links: Tensor, weight: Tensor, residual: Tensor | None) -> Tensor:
    """The gradient to a graph convolution's input, from that behind it, (B, S, T, V, C'); `residual` is added."""
    clients, samples, time, joints, features = behind.shape
    outputs, frames = weight.shape[-2], samples * time
    how, tile = choose("spread_back", features, outputs), _tile(outputs)
    size = max(1, how.size // _tile(features))
    out = behind.new_empty(*behind.shape[:-1], outputs)
    graph.spread[(triton.cdiv(frames, size), clients, triton.cdiv(outputs, tile))](
        behind, links, weight, links, out if residual is None else residual, out, frames, joints,
        CI=features, CO=outputs, K=links.shape[1], G_FROM=1, G_TO=joints, W_IN=1, W_OUT=features,
        FORWARD=False, HAS_RESIDUAL=residual is not None, PRECISION=_precision(),
        FRAMES=size, BV=_width(joints), BK=_tile(features), BN=tile, num_warps=how.warps, num_stages=how.stages,
    )  # fmt: skip
    return out


def spread_slopes(x: Tensor, behind: Tensor, links: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of graphs, weights and terms of `spread`, from the gradient behind it."""
    clients, samples, time, joints, features = x.shape
    partitions, outputs, frames = links.shape[1], weight.shape[-1], samples * time
    inner, outer, how = _tile(features), _tile(outputs), choose("spread_slopes", features, outputs)
    size = max(1, how.size // max(inner, outer))
    tiles = triton.cdiv(features, inner) * triton.cdiv(outputs, outer)
    splits, each = _splits(clients, partitions * tiles, triton.cdiv(frames, size))
    shapes = ((partitions, tiles, joints, joints), (partitions, features, outputs), (joints, outputs))
    of_graph, of_weight, of_term = (
        torch.empty(clients, splits, *shape, device=x.device, dtype=torch.float32) for shape in shapes
    )
    graph.spread_slopes[(splits, clients, partitions * tiles)](
        x, behind, links, weight, of_graph, of_weight, of_term, frames, joints, each,
        CI=features, CO=outputs, K=partitions, PRECISION=_precision(),
        FRAMES=size, BV=_width(joints), BK=inner, BN=outer, num_warps=how.warps, num_stages=how.stages,
    )  # fmt: skip
    return of_graph.sum((1, 3)), of_weight.sum(1), of_term.sum(1)


def suits_matrix(x: Tensor, weight: Tensor) -> bool:
    """Whether a graph convolution is faster as one product of whole frames: where features are few."""
    return max(x.shape[-1], weight.shape[-1]) <= _MATRIX and x.shape[-1] % 8 == 0


def fill_matrix(links: Tensor, weight: Tensor) -> Tensor:
    """The (B, V C, V C') matrix by which `spread` multiplies whole frames."""
    clients, partitions, joints, _ = links.shape
    features, outputs = weight.shape[-2:]
    out = weight.new_empty(clients, joints, features, joints, outputs)
    graph.fill_matrix[(joints, clients)](
        links, weight, out, joints, CI=features, CO=outputs, K=partitions,
        BV=_width(joints), BK=_width(features), BN=_width(outputs), num_warps=4,
    )  # fmt: skip
    return out.view(clients, joints * features, joints * outputs)


def spread_matrix(x: Tensor, matrix: Tensor, term: Tensor) -> Tensor:
    """See `spread`."""
    clients, samples, time, joints, _ = x.shape
    flat = x.reshape(clients, samples * time, -1)
    out = torch.baddbmm(term.to(x.dtype).reshape(clients, 1, -1), flat, matrix)
    return out.view(clients, samples, time, joints, -1)


def spread_matrix_back(behind: Tensor, matrix: Tensor, residual: Tensor | None) -> Tensor:
    """See `spread_back`."""
    clients, samples, time, joints, _ = behind.shape
    flat, turned = behind.reshape(clients, samples * time, -1), matrix.transpose(1, 2)
    if residual is None:
        out = torch.bmm(flat, turned)
    else:
        out = torch.baddbmm(residual.reshape(clients, samples * time, -1), flat, turned)
    return out.view(clients, samples, time, joints, -1)


def spread_matrix_slopes(x: Tensor, behind: Tensor, links: Tensor, weight: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """See `spread_slopes`."""
    clients, samples, time, joints, features = x.shape
    partitions, outputs = links.shape[1], weight.shape[-1]
    first = x.reshape(clients, samples * time, -1).transpose(1, 2)
    slopes = torch.bmm(first, behind.reshape(clients, samples * time, -1))
    of_graph = torch.empty(links.shape, device=x.device, dtype=torch.float32)
    of_weight = torch.empty(clients, joints, partitions, features, outputs, device=x.device, dtype=torch.float32)
    graph.matrix_slopes[(joints, clients)](
        slopes, links, weight, of_graph, of_weight, joints, CI=features, CO=outputs, K=partitions,
        BV=_width(joints), BK=_width(features), BN=_width(outputs), num_warps=4,
    )  # fmt: skip
    return of_graph, of_weight.sum(1), behind.sum((1, 2), dtype=torch.float32)


def convolve(x: Tensor, weight: Tensor, bias: Tensor, stride: int) -> tuple[Tensor, Partial]:
    """Convolution over time of (B, S, T, V, C) activations by (B, taps, C, C') weights, and its partial moments."""
    clients, samples, time, joints, features = x.shape
    taps, outputs, after = weight.shape[1], weight.shape[-1], triton.cdiv(time, stride)
    how, tile = choose("convolve", features, outputs), _tile(outputs)
    blocks = triton.cdiv(samples * after * joints, how.size)
    out, partial = x.new_empty(clients, samples, after, joints, outputs), _partial(x, blocks, outputs)
    convolution.convolve[(blocks, clients, triton.cdiv(outputs, tile))](
        x, weight, bias, out, partial, samples, time, after, joints,
        CI=features, CO=outputs, TAPS=taps, STRIDE=stride, W_IN=outputs, W_OUT=1, TRANSPOSED=False,
        PRECISION=_precision(), ROWS=how.size, BK=_tile(features), BN=tile,
        num_warps=how.warps, num_stages=_stages(how, x, features),
    )  # fmt: skip
    return out, Partial(partial, samples * after * joints, how.size)


def convolve_back(behind: Tensor, weight: Tensor, stride: int, time: int) -> Tensor:
    """The gradient to a convolution's input, `time` frames long."""
    clients, samples, before, joints, features = behind.shape
    taps, outputs = weight.shape[1], weight.shape[-2]
    how, tile = choose("convolve_back", features, outputs), _tile(outputs)
    out = behind.new_empty(clients, samples, time, joints, outputs)
    convolution.convolve[(triton.cdiv(samples * time * joints, how.size), clients, triton.cdiv(outputs, tile))](
        behind, weight, weight, out, weight, samples, before, time, joints,
        CI=features, CO=outputs, TAPS=taps, STRIDE=stride, W_IN=1, W_OUT=features, TRANSPOSED=True,
        PRECISION=_precision(), ROWS=how.size, BK=_tile(features), BN=tile,
        num_warps=how.warps, num_stages=_stages(how, behind, features),
    )  # fmt: skip
    return out


def convolve_slopes(x: Tensor, behind: Tensor, taps: int, stride: int) -> Tensor:
    """The gradient of a convolution's weights, (B, taps, C, C'), from that behind it."""
    clients, samples, time, joints, features = x.shape
    after, outputs = behind.shape[2], behind.shape[-1]
    inner, outer, how = _tile(features), _tile(outputs), choose("convolve_slopes", features, outputs)
    others = triton.cdiv(taps, 3) * triton.cdiv(features, inner) * triton.cdiv(outputs, outer)
    splits, each = _splits(clients, others, triton.cdiv(samples * after * joints, how.size))
    out = torch.empty(clients, splits, taps, features, outputs, device=x.device, dtype=torch.float32)
    convolution.convolve_slopes[(splits, clients, others)](
        x, behind, out, samples, time, after, joints, each,
        CI=features, CO=outputs, TAPS=taps, STRIDE=stride, PRECISION=_precision(),
        ROWS=how.size, BK=inner, BN=outer, num_warps=how.warps, num_stages=how.stages,
    )  # fmt: skip
    return out.sum(1)


def moments(x: Tensor) -> Partial:
    """Partial moments of an activation."""
    flat = _flatten(x)
    partial = flat.partial(x)
    norms.moments[(flat.blocks, flat.clients)](x, partial.values, flat.rows, **flat.options)
    return partial


def finish_moments(partial: Partial, weight: Tensor, bias: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """(B, 4, C) coefficients of a normalisation (mean, rstd, scale, shift) and (B, C) biased variances."""
    clients, blocks, _, features = partial.values.shape
    coefficients = torch.empty(clients, 4, features, device=weight.device, dtype=torch.float32)
    variance = torch.empty(clients, features, device=weight.device, dtype=torch.float32)
    norms.finish_moments[(clients, triton.cdiv(features, _FINISHED))](
        partial.values, weight, bias, coefficients, variance, blocks, partial.rows, partial.per_block, eps,
        C=features, BC=_FINISHED, BP=256, num_warps=4,
    )  # fmt: skip
    return coefficients, variance


def finish_sums(partial: Partial, coefficients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(B, 3, C) coefficients of the gradient in front of a normalisation; the gradients of its weight and bias."""
    clients, blocks, _, features = partial.values.shape
    slopes = torch.empty(clients, 3, features, device=coefficients.device, dtype=torch.float32)
    of_weight, of_bias = (
        torch.empty(clients, features, device=coefficients.device, dtype=torch.float32) for _ in range(2)
    )
    norms.finish_sums[(clients, triton.cdiv(features, _FINISHED))](
        partial.values, coefficients, slopes, of_weight, of_bias, blocks, partial.rows,
        C=features, BC=_FINISHED, BP=256, num_warps=4,
    )  # fmt: skip
    return slopes, of_weight, of_bias


def join(
    z: Tensor, coefficients: Tensor, residual: Tensor | None = None, residual_coefficients: Tensor | None = None
) -> Tensor:
    """Normalises `z`, adds the residual (normalised, where it has coefficients) and rectifies."""
    flat, out = _flatten(z), torch.empty_like(z)
    kind = 0 if residual is None else 1 if residual_coefficients is None else 2
    norms.join[(flat.blocks, flat.clients)](
        z, coefficients, z if residual is None else residual,
        coefficients if residual_coefficients is None else residual_coefficients, out, flat.rows,
        RESIDUAL=kind, **flat.options,
    )  # fmt: skip
    return out


def join_slopes(
    slope: Tensor,
    y: Tensor,
    z: Tensor,
    coefficients: Tensor,
    residual: Tensor | None = None,
    residual_coefficients: Tensor | None = None,
) -> tuple[Tensor, Partial, Partial]:
    """The gradient in front of the rectification of `join`, and the sums for `z`'s and the residual's normalisation.

    `residual` is only needed where it has coefficients.
    """
    flat, out, kind = _flatten(z), torch.empty_like(z), 0 if residual_coefficients is None else 2
    first, second = flat.partial(z), flat.partial(z if kind else z[:0])
    norms.join_slopes[(flat.blocks, flat.clients)](
        slope, y, z, coefficients, z if residual is None else residual,
        coefficients if residual_coefficients is None else residual_coefficients,
        out, first.values, second.values if kind else first.values, flat.rows, RESIDUAL=kind, **flat.options,
    )  # fmt: skip
    return out, first, second


def before_norm(p: Tensor, q: Tensor, slopes: Tensor) -> Tensor:
    """The gradient in front of a normalisation of `q`, from that behind it and `finish_sums`' coefficients."""
    flat, out = _flatten(p), torch.empty_like(p)
    norms.before_norm[(flat.blocks, flat.clients)](p, q, slopes, out, flat.rows, **flat.options)
    return out
