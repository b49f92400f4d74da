"""FDARN (Yang et al., AAAI 2022): two encoders, two activity classifiers and a modality discriminator."""

from __future__ import annotations

import math
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedaction.models.heads import Classifier

Part = Literal["predict", "altruistic", "egocentric", "shared", "private", "sphere", "modality", "own"]
Streams = Literal["both", "shared", "private"]


class ActivityClassifier(nn.Module):
    """Linear, ReLU, Linear to logits; its softmax is psi_sc or psi_pc."""

    def __init__(self, features: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.head = nn.Linear(features, hidden)
        self.classifier = Classifier(hidden, classes)

    def forward(self, h: Tensor) -> Tensor:
        """(N, features) to (N, classes) logits."""
        return self.classifier(self.head(h).relu())


class Discriminator(nn.Module):
    """psi_md: a rectified layer phi, then one prototype per modality, the columns of W, without a bias."""

    outputs_last = True  # in its weights

    def __init__(self, features: int, sphere: int, modalities: int) -> None:
        super().__init__()
        self.phi = nn.Linear(features, sphere)
        self.W = nn.Parameter(torch.empty(sphere, modalities))

    def initialise(self, generator: torch.Generator) -> None:
        """Prototypes are uniform on the sphere.

        Only their directions count, but the shorter they are the farther a step turns them; hence length 1.
        """
        self.W.copy_(F.normalize(torch.randn(self.W.shape, generator=generator), dim=0))

    def embed(self, h: Tensor) -> Tensor:
        """(N, features) to (N, sphere) of length 1, or zero where phi is zero."""
        return F.normalize(self.phi(h).relu(), dim=-1)

    def forward(self, h: Tensor) -> Tensor:
        """(N, features) to (N, modalities) logits W^T phi(h), nothing normalised."""
        return self.phi(h).relu() @ self.W


class FDARNNetwork(nn.Module):
    """The network of a client. Its parts are separate, because each belongs to other clients' averages.

    The paper's ablations leave parts out; a part that is left out has no tensors.

    Args:
        altruistic: encoder phi_a of what modalities have in common, (N, *sample shape) to (N, features); or None,
            where `streams` is "private".
        egocentric: encoder phi_e of what the client's modality has alone; or None, where `streams` is "shared".
        classes: N, number of the client's classes.
        modalities: M, of the whole federation; 0: no discriminator.
        features: d, the encoders' outputs.
        hidden: width of the classifiers' first layer.
        sphere: dimensions of the discriminator's sphere.
        streams: which of the two classifiers there are.
        predicts: which of them predict; None: those there are.
        own: index of the client's own modality among them.
    """

    def __init__(
        self,
        altruistic: nn.Module | None,
        egocentric: nn.Module | None,
        *,
        classes: int,
        modalities: int,
        features: int = 1024,
        hidden: int = 1024,
        sphere: int = 128,
        streams: Streams = "both",
        predicts: Streams | None = None,
        own: int = 0,
    ) -> None:
        super().__init__()
        self.own = own
        for name, encoder, alone in (("altruistic", altruistic, "private"), ("egocentric", egocentric, "shared")):
            if encoder is None and streams != alone:
                raise ValueError(f"FDARN with streams={streams!r} needs an {name} encoder")
        self.altruistic, self.egocentric = altruistic, egocentric
        self.predicts: Streams = predicts or streams
        self.shared = None if streams == "private" else ActivityClassifier(features, hidden, classes)
        self.private = None if streams == "shared" else ActivityClassifier(features, hidden, classes)
        self.discriminator = Discriminator(features, sphere, modalities) if modalities else None

    def forward(self, x: Tensor, *, part: Part = "predict", streams: Streams | None = None) -> Tensor:
        """The prediction, or any part of the network.

        Args:
            x: (N, *sample shape) for "predict" and the encoders, (N, features) for the other parts.
            part: "predict": (N, classes) log-probabilities, the mean of the streams' probabilities (Eq. 2: what is
                added are softmax outputs, not logits); "altruistic", "egocentric": (N, features);
                "shared", "private": (N, classes) logits; "sphere": (N, sphere) of length 1, for the spherical
                losses; "modality": (N, modalities) logits, for a plain cross-entropy; "own": (N,) the client's own
                modality, for every sample.
            streams: which streams predict; None: those that the network was built to ask.
        """
        if part == "own":
            return torch.full((len(x),), self.own, device=x.device)
        if part == "predict":
            return self._predict(x, streams or self.predicts)
        if part in ("sphere", "modality"):
            discriminator = self.discriminator
            if discriminator is None:
                raise ValueError("this FDARN was built without a modality discriminator")
            return discriminator.embed(x) if part == "sphere" else discriminator(x)
        module: nn.Module | None = getattr(self, part)
        if module is None:
            raise ValueError(f"this FDARN was built without its {part} part")
        return module(x)

    def _predict(self, x: Tensor, streams: Streams) -> Tensor:
        if streams != "private":
            shared = F.log_softmax(self(self(x, part="altruistic"), part="shared"), -1)
            if streams == "shared":
                return shared
            private = self._predict(x, "private")
            return torch.logaddexp(shared, private) - math.log(2)
        return F.log_softmax(self(self(x, part="egocentric"), part="private"), -1)
