"""Keys of the network that most methods train."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fedaction.federation.settings import FILE, Settings

Few = Annotated[int, Field(ge=1, le=1000)]
"""A number of parts that a network has: a site builds what a server's recipe says, so there is a most."""


class NetworkSettings(Settings):
    """The network. Defaults are FSAR's: a quarter of ST-GCN's width, the last unit 256 wide, projection 128."""

    backbone: Literal["stgcn", "ctrgcn", "mstgcn", "msg3d", "perceptron", "resnet3d"] = "stgcn"
    """ST-GCN, CTR-GCN, MST-GCN, MS-G3D; 3D ResNet for video; or an encoder that fits the samples, with two layers."""
    model_width: int = Field(0, ge=0)
    """Channels of the first block, doubled in each next; 0: 16 (ST-GCN, a quarter), or as its paper has them."""
    model_depth: int = 18
    """3D ResNet: 18, 22, 24, 26, 28, 30 or 34; a pretrained file's own where there is one."""
    model_frozen: int = Field(0, ge=0, le=6)
    """3D ResNet: stages that do not learn, from the first; 6: all but the classifier. They see each clip once."""
    pretrained: str = Field("", json_schema_extra=FILE)
    """3D ResNet: a model file to start from; its classifier is used only where it names the clients' classes."""
    model_last: int = Field(256, ge=0)
    """ST-GCN: channels of the very last unit; 0: as its block."""
    model_units: tuple[Few, Few, Few] = (4, 3, 3)
    """Units in each block (MS-G3D has one)."""
    model_scales: tuple[Few, Few] = (13, 6)
    """MS-G3D: how many hops far its graph and its space-time windows reach, plus one."""
    model_projection: int = Field(128, ge=0)
    """Shared layer before the classifier; 0: none, the classifier reads the pooled features."""
    model_dropout: float = Field(0.0, ge=0, lt=1)
    """ST-GCN: dropout rate inside units."""
    model_graph: Literal["spatial_legacy", "spatial_full", "inward_outward"] = "spatial_legacy"
    """ST-GCN: partition of the body's graph; the other networks have their own."""
    model_importance: bool = True
    """ST-GCN: whether every unit has a learned mask on the graph's edges."""
    model_features: int = Field(1024, ge=1)
    """Perceptron, FDARN: features that an encoder gives."""
    model_hidden: int = Field(1024, ge=1)
    """Perceptron, FDARN: width of hidden layers."""
    model_norm: bool = False
    """Perceptron, FDARN: whether the encoder of feature vectors normalises over the batch."""
    classifier: Literal["local", "shared"] = "local"
    """Who has the classifier: each client its own, or all together, each class by the clients that name it."""
    buffers: Literal["local", "average"] = "local"
    """What becomes of normalisation statistics: kept by each client, or averaged with the weights."""
