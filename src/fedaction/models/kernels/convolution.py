"""Convolution over time: an activation's rows are (sample, frame, joint), a tap is a shift by whole frames.

Nothing is unfolded: the taps of a block are read one after another, out of the cache, and each is one product.
"""

# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false, reportGeneralTypeIssues=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportIndexIssue=false

from __future__ import annotations

import triton
import triton.language as tl

from fedaction.models.kernels.sums import keep_moments


@triton.jit
def convolve(
    x,  # (B, S, frames_in, V, CI)
    weight,  # (B, TAPS, ...), features in by W_IN, out by W_OUT
    bias,  # (B, CO)
    out,  # (B, S, frames_out, V, CO)
    partial,  # (B, blocks, 2, CO), moments of what comes out
    samples,
    frames_in,
    frames_out,
    joints,
    CI: tl.constexpr,
    CO: tl.constexpr,
    TAPS: tl.constexpr,
    STRIDE: tl.constexpr,
    W_IN: tl.constexpr,
    W_OUT: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    BK: tl.constexpr,
    BN: tl.constexpr,
):
    """A block of rows of one client, BN of its features.

    `TRANSPOSED`: the gradient to the convolution's input, without bias and moments.
    """
    block, client = tl.program_id(0), tl.program_id(1).to(tl.int64)
    n = tl.program_id(2) * BN + tl.arange(0, BN)
    rows = samples * frames_out * joints
    r = block * ROWS + tl.arange(0, ROWS)
    inside = r < rows
    joint = r % joints
    frame = (r // joints) % frames_out
    sample = r // (joints * frames_out)
    start = client * samples * frames_in * joints
    total = tl.zeros((ROWS, BN), dtype=tl.float32)
    for tap in range(TAPS):
        if TRANSPOSED:
            ahead = frame + (TAPS - 1) // 2 - tap
            origin = ahead // STRIDE
            there = inside & (ahead >= 0) & (ahead % STRIDE == 0) & (origin < frames_in)
        else:
            origin = frame * STRIDE + tap - (TAPS - 1) // 2
            there = inside & (origin >= 0) & (origin < frames_in)
        place = (start + (sample * frames_in + origin) * joints + joint) * CI
        for k in tl.static_range(0, CI, BK):
            c = k + tl.arange(0, BK)
            keep = there[:, None] & (c[None, :] < CI)
            tile = tl.load(x + place[:, None] + c[None, :], mask=keep, other=0.0, cache_modifier=".ca")
            at = (client * TAPS + tap) * CI * CO + c[:, None] * W_IN + n[None, :] * W_OUT
            w = tl.load(weight + at, mask=(c[:, None] < CI) & (n[None, :] < CO), other=0.0)
            total = tl.dot(tile, w, total, input_precision=PRECISION)
    within = inside[:, None] & (n[None, :] < CO)
    at = (client * rows + r)[:, None] * CO + n[None, :]
    if not TRANSPOSED:
        total += tl.load(bias + client * CO + n, mask=n < CO, other=0.0)[None, :]
        count = tl.minimum(rows - block * ROWS, ROWS).to(tl.float32)
        keep_moments(total, within, count, partial + (client * tl.num_programs(0) + block) * 2 * CO, CO, n)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=within)


@triton.jit
def convolve_slopes(
    x,  # (B, S, frames_in, V, CI)
    behind,  # (B, S, frames_out, V, CO), the gradient behind
    slopes,  # (B, splits, TAPS, CI, CO) float32
    samples,
    frames_in,
    frames_out,
    joints,
    blocks,  # of a split
    CI: tl.constexpr,
    CO: tl.constexpr,
    TAPS: tl.constexpr,
    STRIDE: tl.constexpr,
    PRECISION: tl.constexpr,
    ROWS: tl.constexpr,
    BK: tl.constexpr,
    BN: tl.constexpr,
):
    """The gradient of three taps' weights (or of the only one's), over a split of a client's rows."""
    split, client = tl.program_id(0), tl.program_id(1).to(tl.int64)
    groups: tl.constexpr = (TAPS + 2) // 3
    tiles_in: tl.constexpr = (CI + BK - 1) // BK
    combination = tl.program_id(2)
    tap = (combination % groups) * 3
    c = ((combination // groups) % tiles_in) * BK + tl.arange(0, BK)
    n = (combination // (groups * tiles_in)) * BN + tl.arange(0, BN)
    rows = samples * frames_out * joints
    start = client * samples * frames_in * joints
    first = tl.zeros((BK, BN), dtype=tl.float32)
    second = tl.zeros((BK, BN), dtype=tl.float32)
    third = tl.zeros((BK, BN), dtype=tl.float32)
    for block in range(split * blocks, split * blocks + blocks):
        r = block * ROWS + tl.arange(0, ROWS)
        inside = r < rows
        joint = r % joints
        frame = (r // joints) % frames_out
        sample = r // (joints * frames_out)
        keep = inside[:, None] & (n[None, :] < CO)
        slope = tl.load(behind + (client * rows + r)[:, None] * CO + n[None, :], mask=keep, other=0.0)
        for i in tl.static_range(0, 3 if TAPS > 1 else 1):
            origin = frame * STRIDE + tap + i - (TAPS - 1) // 2
            there = inside & (origin >= 0) & (origin < frames_in)
            place = (start + (sample * frames_in + origin) * joints + joint) * CI
            keep = there[:, None] & (c[None, :] < CI)
            tile = tl.trans(tl.load(x + place[:, None] + c[None, :], mask=keep, other=0.0, cache_modifier=".ca"))
            if i == 0:
                first = tl.dot(tile, slope, first, input_precision=PRECISION)
            elif i == 1:
                second = tl.dot(tile, slope, second, input_precision=PRECISION)
            else:
                third = tl.dot(tile, slope, third, input_precision=PRECISION)
    at = ((client * tl.num_programs(0) + split) * TAPS + tap) * CI * CO + c[:, None] * CO + n[None, :]
    keep = (c[:, None] < CI) & (n[None, :] < CO)
    tl.store(slopes + at, first, mask=keep)
    if TAPS > 1:
        tl.store(slopes + at + CI * CO, second, mask=keep & (tap + 1 < TAPS))
        tl.store(slopes + at + 2 * CI * CO, third, mask=keep & (tap + 2 < TAPS))
