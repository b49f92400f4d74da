"""Normalisation over a client's rows: partial moments to coefficients, and a unit's last step with its gradient."""

# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false, reportGeneralTypeIssues=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportIndexIssue=false

from __future__ import annotations

import triton
import triton.language as tl

from fedaction.models.kernels.sums import keep_moments, keep_sums


@triton.jit
def finish_moments(
    partial,  # (B, blocks, 2, C): mean, sum of squared distances from it
    weight,  # (B, C)
    bias,
    coefficients,  # (B, 4, C): mean, rstd, scale, shift
    variance,  # (B, C), biased
    blocks,
    rows,
    per_block,
    eps,
    C: tl.constexpr,
    BC: tl.constexpr,
    BP: tl.constexpr,
):
    """A client's moments from those of its blocks, which are put together exactly."""
    client = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    total = tl.zeros((BC,), dtype=tl.float32)
    for start in range(0, blocks, BP):
        p = start + tl.arange(0, BP)
        count = tl.maximum(tl.minimum(rows - p * per_block, per_block), 0).to(tl.float32)
        keep = (p < blocks)[:, None] & (c[None, :] < C)
        mean = tl.load(partial + (client * blocks + p)[:, None] * 2 * C + c[None, :], mask=keep, other=0.0)
        total += tl.sum(mean * count[:, None], 0)
    centre = total / rows
    spread = tl.zeros((BC,), dtype=tl.float32)
    for start in range(0, blocks, BP):
        p = start + tl.arange(0, BP)
        count = tl.maximum(tl.minimum(rows - p * per_block, per_block), 0).to(tl.float32)
        keep = (p < blocks)[:, None] & (c[None, :] < C)
        at = (client * blocks + p)[:, None] * 2 * C + c[None, :]
        distance = tl.load(partial + at, mask=keep, other=0.0) - centre[None, :]
        within = tl.load(partial + at + C, mask=keep, other=0.0)
        spread += tl.sum(tl.where(keep, within + distance * distance * count[:, None], 0.0), 0)
    biased = spread / rows
    inside = c < C
    rstd = 1.0 / tl.sqrt(biased + eps)
    scale = rstd * tl.load(weight + client * C + c, mask=inside, other=0.0)
    shift = tl.load(bias + client * C + c, mask=inside, other=0.0) - centre * scale
    out = coefficients + client * 4 * C + c
    tl.store(out, centre, mask=inside)
    tl.store(out + C, rstd, mask=inside)
    tl.store(out + 2 * C, scale, mask=inside)
    tl.store(out + 3 * C, shift, mask=inside)
    tl.store(variance + client * C + c, biased, mask=inside)


@triton.jit
def finish_sums(
    partial,  # (B, blocks, 2, C): sums of gradients, of gradients times normalised inputs
    coefficients,  # (B, 4, C) of the normalisation
    slopes,  # (B, 3, C): k1, k2, k3 of the gradient in front of it
    weight_slope,  # (B, C)
    bias_slope,
    blocks,
    rows,
    C: tl.constexpr,
    BC: tl.constexpr,
    BP: tl.constexpr,
):
    """The gradient of a normalisation, from sums over blocks."""
    client = tl.program_id(0).to(tl.int64)
    c = tl.program_id(1) * BC + tl.arange(0, BC)
    plain = tl.zeros((BC,), dtype=tl.float32)
    scaled = tl.zeros((BC,), dtype=tl.float32)
    for start in range(0, blocks, BP):
        p = start + tl.arange(0, BP)
        keep = (p < blocks)[:, None] & (c[None, :] < C)
        at = (client * blocks + p)[:, None] * 2 * C + c[None, :]
        plain += tl.sum(tl.load(partial + at, mask=keep, other=0.0), 0)
        scaled += tl.sum(tl.load(partial + at + C, mask=keep, other=0.0), 0)
    inside = c < C
    of = coefficients + client * 4 * C + c
    mean, rstd = tl.load(of, mask=inside, other=0.0), tl.load(of + C, mask=inside, other=0.0)
    scale = tl.load(of + 2 * C, mask=inside, other=0.0)
    second = -scale * rstd * scaled / rows
    out = slopes + client * 3 * C + c
    tl.store(out, scale, mask=inside)
    tl.store(out + C, second, mask=inside)
    tl.store(out + 2 * C, -scale * plain / rows - second * mean, mask=inside)
    tl.store(weight_slope + client * C + c, scaled, mask=inside)
    tl.store(bias_slope + client * C + c, plain, mask=inside)


@triton.jit
def join(
    z,  # (B, rows, C)
    z_coefficients,  # (B, 4, C)
    r,
    r_coefficients,
    out,
    rows,
    C: tl.constexpr,
    RESIDUAL: tl.constexpr,
    ROWS: tl.constexpr,
    BC: tl.constexpr,
):
    """A unit's last step: normalise, add the residual (0: none, 1: as it is, 2: normalised), rectify."""
    block, client = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i, c = block * ROWS + tl.arange(0, ROWS), tl.arange(0, BC)
    inside = c < C
    keep = (i < rows)[:, None] & inside[None, :]
    at = (client * rows + i)[:, None] * C + c[None, :]
    of = z_coefficients + client * 4 * C + c
    scale, shift = tl.load(of + 2 * C, mask=inside, other=0.0), tl.load(of + 3 * C, mask=inside, other=0.0)
    total = tl.load(z + at, mask=keep, other=0.0).to(tl.float32) * scale[None, :] + shift[None, :]
    if RESIDUAL == 1:
        total += tl.load(r + at, mask=keep, other=0.0).to(tl.float32)
    elif RESIDUAL == 2:
        of = r_coefficients + client * 4 * C + c
        scale, shift = tl.load(of + 2 * C, mask=inside, other=0.0), tl.load(of + 3 * C, mask=inside, other=0.0)
        total += tl.load(r + at, mask=keep, other=0.0).to(tl.float32) * scale[None, :] + shift[None, :]
    tl.store(out + at, tl.maximum(total, 0.0).to(out.dtype.element_ty), mask=keep)


@triton.jit
def join_slopes(
    slope,  # (B, rows, C), the gradient behind
    y,  # what `join` gave
    z,
    z_coefficients,
    r,
    r_coefficients,
    out,  # the gradient in front of the rectification
    z_partial,  # (B, blocks, 2, C)
    r_partial,
    rows,
    C: tl.constexpr,
    RESIDUAL: tl.constexpr,
    ROWS: tl.constexpr,
    BC: tl.constexpr,
):
    """The gradient of `join`, and the sums that the normalisations' own gradients need."""
    block, client = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i, c = block * ROWS + tl.arange(0, ROWS), tl.arange(0, BC)
    keep = (i < rows)[:, None] & (c < C)[None, :]
    at = (client * rows + i)[:, None] * C + c[None, :]
    passes = tl.load(y + at, mask=keep, other=0.0) > 0
    value = tl.where(passes, tl.load(slope + at, mask=keep, other=0.0), 0.0)
    tl.store(out + at, value.to(out.dtype.element_ty), mask=keep)
    value = value.to(tl.float32)
    left = (client * tl.num_programs(0) + block) * 2 * C
    source = tl.load(z + at, mask=keep, other=0.0).to(tl.float32)
    keep_sums(value, source, z_coefficients + client * 4 * C, z_partial + left, C, c)
    if RESIDUAL == 2:
        source = tl.load(r + at, mask=keep, other=0.0).to(tl.float32)
        keep_sums(value, source, r_coefficients + client * 4 * C, r_partial + left, C, c)


@triton.jit
def before_norm(
    p,  # (B, rows, C), the gradient behind the normalisation
    q,  # what was normalised
    slopes,  # (B, 3, C)
    out,
    rows,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    BC: tl.constexpr,
):
    """The gradient in front of a normalisation: k1 p + k2 q + k3."""
    block, client = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i, c = block * ROWS + tl.arange(0, ROWS), tl.arange(0, BC)
    inside = c < C
    keep = (i < rows)[:, None] & inside[None, :]
    at = (client * rows + i)[:, None] * C + c[None, :]
    of = slopes + client * 3 * C + c
    total = tl.load(p + at, mask=keep, other=0.0).to(tl.float32) * tl.load(of, mask=inside, other=0.0)[None, :]
    second = tl.load(of + C, mask=inside, other=0.0)[None, :]
    total += tl.load(q + at, mask=keep, other=0.0).to(tl.float32) * second
    total += tl.load(of + 2 * C, mask=inside, other=0.0)[None, :]
    tl.store(out + at, total.to(out.dtype.element_ty), mask=keep)


@triton.jit
def moments(
    x,  # (B, rows, C)
    partial,  # (B, blocks, 2, C)
    rows,
    C: tl.constexpr,
    ROWS: tl.constexpr,
    BC: tl.constexpr,
):
    """Moments of blocks of rows."""
    block, client = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i, c = block * ROWS + tl.arange(0, ROWS), tl.arange(0, BC)
    keep = (i < rows)[:, None] & (c < C)[None, :]
    value = tl.load(x + (client * rows + i)[:, None] * C + c[None, :], mask=keep, other=0.0).to(tl.float32)
    count = tl.minimum(rows - block * ROWS, ROWS).to(tl.float32)
    keep_moments(value, keep, count, partial + (client * tl.num_programs(0) + block) * 2 * C, C, c)
