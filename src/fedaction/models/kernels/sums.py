"""What the kernels of a unit share: sums over a block's rows."""

# Triton has no type stubs, and is not installed everywhere.
# pyright: reportMissingImports=false, reportUntypedFunctionDecorator=false, reportGeneralTypeIssues=false
# pyright: reportArgumentType=false, reportOperatorIssue=false, reportAttributeAccessIssue=false, reportIndexIssue=false

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def keep_moments(value, inside, count, partial, C: tl.constexpr, n):
    """Leaves a block's mean and its sum of squared distances from it, for each feature."""
    mean = tl.sum(tl.where(inside, value, 0.0), 0) / count
    distance = tl.where(inside, value - mean[None, :], 0.0)
    tl.store(partial + n, mean, mask=n < C)
    tl.store(partial + C + n, tl.sum(distance * distance, 0), mask=n < C)


@triton.jit
def keep_sums(slope, source, coefficients, partial, C: tl.constexpr, n):
    """Leaves a block's sum of gradients, and of gradients times normalised inputs `source`, for each feature."""
    inside = n < C
    mean = tl.load(coefficients + n, mask=inside, other=0.0)
    rstd = tl.load(coefficients + C + n, mask=inside, other=0.0)
    tl.store(partial + n, tl.sum(slope, 0), mask=inside)
    normalised = (source - mean[None, :]) * rstd[None, :]
    tl.store(partial + C + n, tl.sum(slope * normalised, 0), mask=inside)
