"""What the skeleton methods share: the ST-GCN they build, and the joints that its graph tensors are parts of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

import torch
from pydantic import Field, PositiveInt
from torch import nn

from fedaction.data.client import ClientInfo
from fedaction.data.graph import partition
from fedaction.data.layout import Layout, union_body
from fedaction.federation.state import Part
from fedaction.methods.base import Settings
from fedaction.models.stgcn import STGCN, Coefficients


class BackboneSettings(Settings):
    """The network. Defaults are FSAR's: a quarter of ST-GCN's width, the last unit 256 wide, projection 128."""

    model_width: int = Field(16, ge=1)
    """Channels of the first of three blocks; each next has twice as many."""
    model_last: int = Field(256, ge=0)
    """Channels of the very last unit; 0: as its block."""
    model_units: tuple[PositiveInt, PositiveInt, PositiveInt] = (4, 3, 3)
    """Units in each block."""
    model_projection: int = Field(128, ge=0)
    """0: no projection, the classifier reads the pooled features."""
    model_dropout: float = Field(0.0, ge=0, lt=1)
    """Dropout rate inside units."""
    model_graph: str = "spatial_legacy"
    """Partition of the body's graph: spatial_legacy, spatial_full or inward_outward."""
    model_importance: bool = True
    """Whether every unit has a learned mask on the graph's edges."""
    buffers: Literal["local", "average"] = "local"
    """What becomes of normalisation statistics: kept by each client, or averaged with the weights."""

    def masks(self) -> list[str]:
        """The names of the edge masks, which are over joints."""
        return [f"importance.{unit}" for unit in range(sum(self.model_units))] if self.model_importance else []


def body_of(clients: Iterable[ClientInfo]) -> Layout:
    """The body that all clients' joints map onto."""
    return union_body(layout_of(client) for client in clients)


def layout_of(client: ClientInfo) -> Layout:
    """A client's layout; an error where its samples are not skeletons."""
    if client.layout is None:
        raise ValueError(f"client {client.id!r} holds {client.group!r} samples without a skeleton layout")
    return client.layout


def build_stgcn(
    client: ClientInfo, settings: BackboneSettings, adaptive: bool = False, coefficients: Coefficients | None = None
) -> nn.Module:
    """A client's ST-GCN, over its own joints and with its own classes."""
    return STGCN(
        torch.as_tensor(partition(layout_of(client), settings.model_graph)),
        channels=client.shape[-1],
        classes=len(client.classes),
        width=settings.model_width,
        last=settings.model_last or None,
        units=settings.model_units,
        projection=settings.model_projection or None,
        dropout=settings.model_dropout,
        adaptive=adaptive,
        coefficients=coefficients,
        importance=settings.model_importance,
    )


def joint_parts(client: ClientInfo, body: Layout, names: Iterable[str], partitions: int = 3) -> Mapping[str, Part]:
    """Parts for (K, V, V) tensors: the client's joints among the body's. None where the client has them all."""
    place = layout_of(client).map_onto(body)
    if place == tuple(range(len(body))):
        return {}
    index = torch.tensor(place)
    shape = (partitions, len(body), len(body))
    return {name: Part(shape, (None, index, index)) for name in names}
