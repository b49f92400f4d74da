"""Convolution over a body's graph: mix joints, then features, for each of K partitions."""

# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false, reportGeneralTypeIssues=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportIndexIssue=false

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def spread(
    x,  # (B, frames, V, CI); frames: of all samples
    graph,  # (B, K, V, V): joints from by G_FROM, to by G_TO
    weight,  # (B, K, ...): features in by W_IN, out by W_OUT
    term,  # FORWARD: (B, V, CO), what biases give each joint
    residual,  # else, where HAS_RESIDUAL: what is added, as `out`
    out,  # (B, frames, V, CO)
    frames,
    joints,
    CI: tl.constexpr,
    CO: tl.constexpr,
    K: tl.constexpr,
    G_FROM,
    G_TO,
    W_IN: tl.constexpr,
    W_OUT: tl.constexpr,
    FORWARD: tl.constexpr,
    HAS_RESIDUAL: tl.constexpr,
    PRECISION: tl.constexpr,
    FRAMES: tl.constexpr,
    BV: tl.constexpr,
    BK: tl.constexpr,
    BN: tl.constexpr,
):
    """A block of frames of one client, BN of its features: sum over k of (graph_k x) W_k."""
    block, client = tl.program_id(0), tl.program_id(1).to(tl.int64)
    n = tl.program_id(2) * BN + tl.arange(0, BN)
    v = tl.arange(0, BV)
    j = tl.arange(0, FRAMES * BK)
    frame = block * FRAMES + j // BK
    links = (v[:, None] < joints) & (v[None, :] < joints)
    total = tl.zeros((BV * FRAMES, BN), dtype=tl.float32)
    for first in tl.static_range(0, CI, BK):
        c = first + j % BK
        place = ((client * frames + frame)[None, :] * joints + v[:, None]) * CI
        keep = (v[:, None] < joints) & ((frame < frames) & (c < CI))[None, :]
        tile = tl.load(x + place + c[None, :], mask=keep, other=0.0)  # BV, FRAMES * BK
        i = first + tl.arange(0, BK)
        for k in range(K):
            at = (client * K + k) * joints * joints + v[:, None] * G_TO + v[None, :] * G_FROM
            g = tl.load(graph + at, mask=links, other=0.0)
            mixed = tl.dot(g, tile, input_precision=PRECISION)
            mixed = tl.reshape(mixed.to(tile.dtype), (BV * FRAMES, BK))
            at = (client * K + k) * CI * CO + i[:, None] * W_IN + n[None, :] * W_OUT
            w = tl.load(weight + at, mask=(i[:, None] < CI) & (n[None, :] < CO), other=0.0)
            total = tl.dot(mixed, w, total, input_precision=PRECISION)
    r = tl.arange(0, BV * FRAMES)
    joint, of = r // FRAMES, block * FRAMES + r % FRAMES
    within = ((joint < joints) & (of < frames))[:, None] & (n[None, :] < CO)
    at = ((client * frames + of) * joints + joint)[:, None] * CO + n[None, :]
    if FORWARD:
        total += tl.load(term + (client * joints + joint)[:, None] * CO + n[None, :], mask=within, other=0.0)
    elif HAS_RESIDUAL:
        total += tl.load(residual + at, mask=within, other=0.0).to(tl.float32)
    tl.store(out + at, total.to(out.dtype.element_ty), mask=within)


@triton.jit
def spread_slopes(
    x,  # (B, frames, V, CI)
    behind,  # (B, frames, V, CO), the gradient behind
    graph,  # (B, K, V, V), [from, to]
    weight,  # (B, K, CI, CO)
    slopes_graph,  # (B, splits, K, tiles, V, V) float32
    slopes_weight,  # (B, splits, K, CI, CO) float32
    slopes_term,  # (B, splits, V, CO) float32
    frames,
    joints,
    blocks,  # of a split
    CI: tl.constexpr,
    CO: tl.constexpr,
    K: tl.constexpr,
    PRECISION: tl.constexpr,
    FRAMES: tl.constexpr,
    BV: tl.constexpr,
    BK: tl.constexpr,
    BN: tl.constexpr,
):
    """The gradients of one partition's graph and weights, over a split of a client's frames."""
    split, client = tl.program_id(0), tl.program_id(1).to(tl.int64)
    tiles_in: tl.constexpr = (CI + BK - 1) // BK
    tiles: tl.constexpr = tiles_in * ((CO + BN - 1) // BN)
    k, tile = tl.program_id(2) % K, tl.program_id(2) // K
    i = (tile % tiles_in) * BK + tl.arange(0, BK)
    n = (tile // tiles_in) * BN + tl.arange(0, BN)
    v = tl.arange(0, BV)
    j, r = tl.arange(0, FRAMES * BK), tl.arange(0, BV * FRAMES)
    c = (tile % tiles_in) * BK + j % BK
    links = (v[:, None] < joints) & (v[None, :] < joints)
    at = (client * K + k) * joints * joints + v[:, None] + v[None, :] * joints
    g = tl.load(graph + at, mask=links, other=0.0)  # to, from
    at = (client * K + k) * CI * CO + i[:, None] * CO + n[None, :]
    w = tl.load(weight + at, mask=(i[:, None] < CI) & (n[None, :] < CO), other=0.0)
    of_weight = tl.zeros((BK, BN), dtype=tl.float32)
    of_graph = tl.zeros((BV, BV), dtype=tl.float32)
    of_term = tl.zeros((BV, BN), dtype=tl.float32)
    for block in range(split * blocks, split * blocks + blocks):
        frame = block * FRAMES + j // BK
        place = ((client * frames + frame)[None, :] * joints + v[:, None]) * CI
        keep = (v[:, None] < joints) & ((frame < frames) & (c < CI))[None, :]
        tile_x = tl.load(x + place + c[None, :], mask=keep, other=0.0)  # from, FRAMES * BK
        joint, of = r // FRAMES, block * FRAMES + r % FRAMES
        keep = ((joint < joints) & (of < frames))[:, None] & (n[None, :] < CO)
        place = ((client * frames + of) * joints + joint)[:, None] * CO
        slope = tl.load(behind + place + n[None, :], mask=keep, other=0.0)  # to * FRAMES, BN
        mixed = tl.reshape(tl.dot(g, tile_x, input_precision=PRECISION).to(tile_x.dtype), (BV * FRAMES, BK))
        of_weight = tl.dot(tl.trans(mixed), slope, of_weight, input_precision=PRECISION)
        back = tl.dot(slope, tl.trans(w), input_precision=PRECISION).to(tile_x.dtype)
        back = tl.reshape(back, (BV, FRAMES * BK))
        of_graph = tl.dot(tile_x, tl.trans(back), of_graph, input_precision=PRECISION)
        of_term += tl.sum(tl.reshape(slope.to(tl.float32), (BV, FRAMES, BN)), 1)
    line = client * tl.num_programs(0) + split
    at = (line * K + k) * CI * CO + i[:, None] * CO + n[None, :]
    tl.store(slopes_weight + at, of_weight, mask=(i[:, None] < CI) & (n[None, :] < CO))
    at = ((line * K + k) * tiles + tile) * joints * joints + v[:, None] * joints + v[None, :]
    tl.store(slopes_graph + at, of_graph, mask=links)
    if (k == 0) & (tile % tiles_in == 0):
        place_term = (line * joints + v)[:, None] * CO + n[None, :]
        tl.store(slopes_term + place_term, of_term, mask=(v[:, None] < joints) & (n[None, :] < CO))


@triton.jit
def fill_matrix(
    graph,  # (B, K, V, V), [from, to]
    weight,  # (B, K, CI, CO)
    matrix,  # (B, V, CI, V, CO)
    joints,
    CI: tl.constexpr,
    CO: tl.constexpr,
    K: tl.constexpr,
    BV: tl.constexpr,
    BK: tl.constexpr,
    BN: tl.constexpr,
):
    """A graph convolution of whole frames as one matrix, the rows of one joint: sum over k of graph_k times W_k."""
    source, client = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i, j = tl.arange(0, BK), tl.arange(0, BV * BN)
    to, d = j // BN, j % BN
    columns = (to < joints) & (d < CO)
    keep = (i[:, None] < CI) & columns[None, :]
    total = tl.zeros((BK, BV * BN), dtype=tl.float32)
    for k in range(K):
        g = tl.load(graph + ((client * K + k) * joints + source) * joints + to, mask=columns, other=0.0)
        at = (client * K + k) * CI * CO + i[:, None] * CO + d[None, :]
        total += g[None, :].to(tl.float32) * tl.load(weight + at, mask=keep, other=0.0).to(tl.float32)
    at = ((client * joints + source) * CI + i[:, None]) * joints * CO + (to * CO + d)[None, :]
    tl.store(matrix + at, total.to(matrix.dtype.element_ty), mask=keep)


@triton.jit
def matrix_slopes(
    slopes,  # (B, V, CI, V, CO), the gradient of `fill_matrix`'s matrix
    graph,
    weight,
    slopes_graph,  # (B, K, V, V) float32
    slopes_weight,  # (B, V, K, CI, CO) float32, by the joint that links come from
    joints,
    CI: tl.constexpr,
    CO: tl.constexpr,
    K: tl.constexpr,
    BV: tl.constexpr,
    BK: tl.constexpr,
    BN: tl.constexpr,
):
    """The gradients of graph and weights from that of their matrix, the rows of one joint."""
    source, client = tl.program_id(0), tl.program_id(1).to(tl.int64)
    i, j = tl.arange(0, BK), tl.arange(0, BV * BN)
    to, d = j // BN, j % BN
    columns = (to < joints) & (d < CO)
    keep = (i[:, None] < CI) & columns[None, :]
    at = ((client * joints + source) * CI + i[:, None]) * joints * CO + (to * CO + d)[None, :]
    tile = tl.load(slopes + at, mask=keep, other=0.0).to(tl.float32)
    inside = (client * joints + source) * K * CI * CO
    v, n = tl.arange(0, BV), tl.arange(0, BN)
    for k in range(K):
        place = (client * K + k) * CI * CO + i[:, None] * CO + d[None, :]
        w = tl.load(weight + place, mask=keep, other=0.0).to(tl.float32)
        of_graph = tl.sum(tl.reshape(tl.sum(tile * w, 0), (BV, BN)), 1)
        row = ((client * K + k) * joints + source) * joints
        tl.store(slopes_graph + row + v, of_graph, mask=v < joints)
        g = tl.load(graph + row + to, mask=columns, other=0.0).to(tl.float32)
        of_weight = tl.sum(tl.reshape(tile * g[None, :], (BK, BV, BN)), 1)
        own = inside + (k * CI + i[:, None]) * CO + n[None, :]
        tl.store(slopes_weight + own, of_weight, mask=(i[:, None] < CI) & (n[None, :] < CO))
