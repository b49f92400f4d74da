"""Graph partitions: a layout's links sorted into subsets, each with its own weights in a graph convolution.

Every partition is float32 (K subsets, V, V), indexed [k, source v, target w], so that a graph convolution
computes `out[w] = sum over k and v of x[k, v] * A[k, v, w]`.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from fedaction.data.layout import Layout


def hops_to_centre(layout: Layout) -> Tensor:
    """Links between each joint and the layout's centre, (V,) float; infinity where there is no way."""
    links = _links(layout)
    hops = torch.full((len(layout),), torch.inf)
    reached = torch.zeros(len(layout), dtype=torch.bool)
    reached[layout.centre] = True
    distance = 0
    while torch.isinf(hops[reached]).any():
        hops[reached & torch.isinf(hops)] = distance
        reached = reached | links[reached].any(dim=0)
        distance += 1
    return hops


def spatial_legacy(layout: Layout) -> Tensor:
    """ST-GCN's 'spatial' partition as its code builds it, (3, V, V): own, not nearer, nearer.

    The code follows hops no further than one link, so every joint beyond the centre's neighbours has distance
    infinity, and infinity equals infinity: a link between two such joints counts as 'same distance' in both
    directions. Published ST-GCN results (and FSAR's) were obtained with this matrix. `spatial_full` is the
    partition that the paper describes.
    """
    hops = hops_to_centre(layout)
    return _spatial(layout, torch.where(hops > 1, torch.inf, hops))


def spatial_full(layout: Layout) -> Tensor:
    """ST-GCN's 'spatial' partition as its paper describes it, (3, V, V), with true distances to the centre.

    Subsets: the joint itself; links whose source is as far from the centre as the target or farther; links
    whose source is nearer. Each column of the three together sums to 1.
    """
    return _spatial(layout, hops_to_centre(layout))


def inward_outward(layout: Layout) -> Tensor:
    """The partition of the 2s-AGCN, CTR-GCN and MST-GCN line, (3, V, V): identity, inward, outward.

    Inward links carry features towards the centre, outward ones away from it; links between joints equally
    far count as inward. Unlike in ST-GCN each subset is normalised on its own: its columns sum to 1, or to 0
    where no link of the subset ends. (The line's code has the last two in the other order.)
    """
    inward, outward = _directed_links(layout)
    return torch.stack([torch.eye(len(layout)), _normalise_columns(inward), _normalise_columns(outward)])


def inward_outward_by_source(layout: Layout) -> Tensor:
    """The partition as CTR-GCN applies it, (3, V, V): identity, inward, outward, with rows that sum to 1 or 0.

    CTR-GCN builds the matrices of `inward_outward` but contracts them over their second index. Read so, what is
    normalised is the weights of a source's links, not of a target's: a joint gets the sum of the joints outside it,
    and its share of the joint inside it.
    """
    inward, outward = _directed_links(layout)
    return torch.stack([torch.eye(len(layout)), _normalise_columns(inward.T).T, _normalise_columns(outward.T).T])


def disentangled(layout: Layout, scales: int = 13) -> Tensor:
    """MS-G3D's k-adjacencies, (scales, V, V); see `k_adjacencies`."""
    return k_adjacencies(_links(layout), scales)


def k_adjacencies(links: Tensor, scales: int) -> Tensor:
    """The graphs of joints exactly k links apart, k = 0 to scales - 1, with self links, as (scales, V, V).

    Each is symmetric and normalised on both sides, D^-1/2 A D^-1/2. Beyond the body's diameter only the self
    links are left. `links` is symmetric (V, V) bool; self links in it change nothing.
    """
    itself = torch.eye(len(links), dtype=torch.bool)
    near = links | itself
    reached, graphs = itself, [itself]
    for _ in range(1, scales):
        further = (reached.float() @ near.float()) > 0
        graphs.append(further & ~reached | itself)
        reached = further
    matrices = torch.stack(graphs).to(torch.get_default_dtype())
    root = matrices.sum(2).rsqrt()
    return root[:, :, None] * matrices * root[:, None, :]


def window_adjacencies(links: Tensor, scales: int, frames: int) -> Tensor:
    """The k-adjacencies of MS-G3D's space-time windows, (scales, frames, V, frames, V), [k, source, target].

    In a window of some frames a joint is linked to itself and its neighbours in every frame.
    """
    near = links | torch.eye(len(links), dtype=torch.bool)
    shape = (scales, frames, len(links), frames, len(links))
    return k_adjacencies(near.repeat(frames, frames), scales).view(shape)


KINDS: dict[str, Callable[[Layout], Tensor]] = {
    "spatial_legacy": spatial_legacy,
    "spatial_full": spatial_full,
    "inward_outward": inward_outward,
    "inward_outward_by_source": inward_outward_by_source,
    "disentangled": disentangled,
}


def partition(layout: Layout, kind: str) -> Tensor:
    """A layout's graph partition by name, (K, V, V); see `KINDS` for the names."""
    try:
        build = KINDS[kind]
    except KeyError:
        raise ValueError(f"no graph partition is called {kind!r}; there are {', '.join(KINDS)}") from None
    return build(layout)


def _links(layout: Layout) -> Tensor:
    """Symmetric adjacency without self links, (V, V) bool."""
    links = torch.zeros(len(layout), len(layout), dtype=torch.bool)
    for a, b in layout.edges:
        links[a, b] = links[b, a] = True
    return links


def _directed_links(layout: Layout) -> tuple[Tensor, Tensor]:
    """Links towards the centre or between joints equally far, and links away from it, each (V, V) of 0 and 1."""
    links = _links(layout).float()
    hops = hops_to_centre(layout)
    outward = links * (hops[:, None] < hops[None, :])
    return links - outward, outward


def _normalise_columns(matrix: Tensor) -> Tensor:
    return matrix / matrix.sum(dim=0, keepdim=True).clamp(min=1)


def _spatial(layout: Layout, hops: Tensor) -> Tensor:
    links = _links(layout).float()
    itself = torch.eye(len(layout))
    weights = _normalise_columns(links + itself)
    nearer = (hops[:, None] < hops[None, :]).float()
    return torch.stack([itself * weights, links * weights * (1 - nearer), links * weights * nearer])
