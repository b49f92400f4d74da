"""Video in a federation: a 3D ResNet whose first stages may come from a model file and stay as they are."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path
from typing import Any

from torch import Tensor

from fedaction.data.client import ClientInfo
from fedaction.federation.tree import tensors_of
from fedaction.methods.settings import NetworkSettings
from fedaction.models.files import Card, load_resnet
from fedaction.models.resnet3d import ResNet3D


def build_video(client: ClientInfo, settings: NetworkSettings) -> ResNet3D:
    """A client's network; samples that are not clips (T, H, W, 3) are what its frozen stages gave."""
    if client.layout is not None or not settings.model_frozen:
        require_clips(client, 'backbone = "resnet3d"')
    arguments: dict[str, Any] = {"depth": settings.model_depth, "width": settings.model_width or 64}
    if settings.pretrained:
        arguments |= _model(settings.pretrained)[0].arguments
    arguments |= {"classes": len(client.classes), "frozen": settings.model_frozen}
    network = ResNet3D(**arguments)
    if not is_clip(client.shape):
        network.enters = settings.model_frozen
    return network


def require_clips(client: ClientInfo, what: str) -> None:
    """Refuses a client that holds something else than video; `what` is what is for clips."""
    if client.layout is not None or not is_clip(client.shape):
        raise ValueError(
            f"client {client.id!r} holds {client.group!r} samples of shape {client.shape}, and {what} is for clips "
            'of video; for skeletons say backbone = "stgcn", for features and signals "perceptron", and another '
            "method where this one learns from video alone"
        )


def is_clip(shape: tuple[int, ...]) -> bool:
    """Whether a sample of this shape is a clip."""
    return len(shape) == 4 and shape[-1] == 3


def frozen_parts(settings: NetworkSettings) -> tuple[str, ...]:
    """Names of what does not learn."""
    if settings.backbone != "resnet3d":
        return ()
    stages = (("conv1", "bn1"), *((f"layer{stage}",) for stage in range(1, 5)))
    return tuple(name for stage in stages[: settings.model_frozen] for name in stage)


def pretrained_values(client: ClientInfo, settings: NetworkSettings) -> dict[str, Tensor]:
    """What a client's network starts from in place of random values: a model file's tensors, if one is named.

    Its classifier is left out unless it is for the client's classes, in their order.
    """
    if settings.backbone != "resnet3d" or not settings.pretrained:
        return {}
    network, card = _model(settings.pretrained)
    keep = card.classes == client.classes
    return {n: t.detach() for n, t in tensors_of(network).items() if keep or not n.startswith("classifier.")}


@lru_cache(maxsize=2)
def _model(path: str) -> tuple[ResNet3D, Card]:
    if not Path(path).is_file():
        raise ValueError(f"pretrained = {path!r}: there is no such model file; `fedaction distil` writes them")
    return load_resnet(path)
