"""The network that most methods train, and who shares it: a client's backbone, built from recipe keys."""

# torch's type stubs are partial.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import nn

from fedaction.data.client import ClientInfo
from fedaction.data.graph import disentangled, partition
from fedaction.data.layout import Layout, union_body
from fedaction.federation.scope import FROZEN, GLOBAL, LOCAL, Rule
from fedaction.federation.state import Part
from fedaction.methods.settings import NetworkSettings
from fedaction.methods.video import build_video, frozen_parts
from fedaction.models.backbone import Backbone, Coefficients
from fedaction.models.ctrgcn import CTRGCN
from fedaction.models.encoders import encoder_for
from fedaction.models.heads import Classifier
from fedaction.models.msg3d import MSG3D
from fedaction.models.mstgcn import MSTGCN
from fedaction.models.perceptron import Perceptron
from fedaction.models.stgcn import STGCN

_WIDTHS = {"stgcn": 16, "ctrgcn": 64, "mstgcn": 112, "msg3d": 96}


def build_network(
    client: ClientInfo, settings: NetworkSettings, adaptive: bool = False, coefficients: Coefficients | None = None
) -> nn.Module:
    """A client's network, over its own joints and with its own classes; `adaptive`: with FSAR's I and U."""
    if adaptive and settings.backbone not in _WIDTHS:
        raise ValueError(
            f"backbone = {settings.backbone!r} has no graph of joints, which this method learns: say one of "
            f"{', '.join(_WIDTHS)}"
        )
    if settings.backbone == "perceptron":
        return Perceptron(
            build_encoder(client, settings),
            features=settings.model_features,
            hidden=settings.model_hidden,
            classes=len(client.classes),
        )
    if settings.backbone == "resnet3d":
        return build_video(client, settings)
    layout = layout_of(client)
    common: dict[str, Any] = {
        "channels": client.shape[-1],
        "classes": len(client.classes),
        "width": settings.model_width or _WIDTHS[settings.backbone],
        "projection": settings.model_projection or None,
        "adaptive": adaptive,
        "coefficients": coefficients,
    }
    if settings.backbone == "stgcn":
        return STGCN(
            partition(layout, settings.model_graph),
            last=settings.model_last or None,
            units=settings.model_units,
            dropout=settings.model_dropout,
            importance=settings.model_importance,
            **common,
        )
    common["bodies"] = client.shape[0]
    if settings.backbone == "ctrgcn":
        return CTRGCN(partition(layout, "inward_outward_by_source"), units=settings.model_units, **common)
    if settings.backbone == "mstgcn":
        return MSTGCN(partition(layout, "inward_outward"), units=settings.model_units, **common)
    return MSG3D(disentangled(layout, settings.model_scales[0]), scales=settings.model_scales, **common)


def build_encoder(client: ClientInfo, settings: NetworkSettings) -> nn.Module:
    """The encoder that fits a client's samples: feature vectors, inertial signals or skeletons."""
    return encoder_for(
        client.shape,
        client.layout,
        outputs=settings.model_features,
        hidden=settings.model_hidden,
        width=settings.model_width or None,
        norm=settings.model_norm,
    )


def shared_backbone(settings: NetworkSettings, clients: Iterable[ClientInfo]) -> tuple[Rule, ...]:
    """Vanilla FSAR's scopes: the backbone is averaged, the classifier stays with the client.

    Tensors over joints are shared over joints that mean the same (`joint_parts`), shared classifiers over classes of
    the same name (`class_parts`). The input normalisation has the client's own joints: its weights are shared, as in
    the released code, where all clients have one layout, and else stay.
    """
    alike = len({(client.layout, client.shape) for client in clients}) < 2
    return (
        Rule("topology.A", FROZEN),
        Rule("encoder.backbone.topology.A", FROZEN),
        *(Rule(name, FROZEN) for name in frozen_parts(settings)),
        *((Rule("classifier", LOCAL),) if settings.classifier == "local" else ()),
        *(() if alike else (Rule("data_norm", LOCAL),)),
        Rule("**", LOCAL if settings.buffers == "local" else GLOBAL, kind="buffer"),
        Rule("**", GLOBAL),
    )


def layout_of(client: ClientInfo) -> Layout:
    """A client's layout; an error where its samples are not skeletons."""
    if client.layout is None:
        raise ValueError(
            f"client {client.id!r} holds {client.group!r} samples without a skeleton layout, which a network of "
            'joints needs; for features and signals say backbone = "perceptron", for video backbone = "resnet3d"'
        )
    return client.layout


def body_of(clients: Iterable[ClientInfo]) -> Layout:
    """The body that all clients' joints map onto."""
    return union_body(layout_of(client) for client in clients)


def joint_parts(client: ClientInfo, body: Layout, network: Backbone) -> dict[str, Part]:
    """Parts for tensors over joints: the client's among the body's; none where the client has all of them."""
    place = layout_of(client).map_onto(body)
    if place == tuple(range(len(body))):
        return {}
    index = torch.tensor(place)
    parts: dict[str, Part] = {}
    for name, axes in network.joint_axes().items():
        held = network.get_parameter(name).shape
        shape = tuple(len(body) if axis in axes else size for axis, size in enumerate(held))
        parts[name] = Part(shape, tuple(index if axis in axes else None for axis in range(len(held))))
    return parts


def class_parts(client: ClientInfo, everyone: Sequence[str], network: nn.Module) -> dict[str, Part]:
    """Parts for classifiers: the rows of the client's classes among everyone's; none where they are the same."""
    if client.classes == tuple(everyone):
        return {}
    rows = torch.tensor([everyone.index(name) for name in client.classes])
    parts: dict[str, Part] = {}
    for name, layer in network.named_modules():
        if isinstance(layer, Classifier):
            parts[f"{name}.weight"] = Part((len(everyone), layer.weight.shape[1]), (rows, None))
            parts[f"{name}.bias"] = Part((len(everyone),), (rows,))
    return parts
