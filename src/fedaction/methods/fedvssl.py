"""FedVSSL (Rehman et al., ECCV 2022): learning from unlabelled video; only the backbone travels."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from fedaction.data.client import ClientInfo
from fedaction.federation.average import Averages
from fedaction.federation.scope import GLOBAL, LOCAL, Rule, ScopeTable
from fedaction.federation.settings import Settings
from fedaction.federation.state import Report, ServerState, Weight
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.pretext import VCOP, CtP, Pretext, Speed
from fedaction.methods.pretext.ctp import Rounding

_LARGEST = 700.0
"""Of a loss in e^-L: beyond it the weight would be 0, or infinite, in floating point."""


class VSSLSettings(Settings):
    """Keys of methods that learn from unlabelled video."""

    pretext: Literal["vcop", "speed", "ctp"] = "ctp"
    """The task: the order of clips, the speed of playback, or where a pasted patch goes."""
    clip_frames: int = Field(16, ge=4)
    """Frames of a clip, which is cut from a client's longer recordings."""
    clip_size: int = Field(112, ge=16)
    """Rows and columns of a clip, in pixels."""
    model_depth: int = 18
    """Depth of the 3D ResNet."""
    model_width: int = Field(0, ge=0)
    """Channels of its first stage; 0: 64, as its paper."""
    heads: Literal["local", "shared"] = "local"
    """Whether the task's head stays with the client or is averaged too (FedAvg on the whole model)."""
    pretext_dropout: float = Field(0.5, ge=0, lt=1)
    """vcop and speed: dropout before the head's last layer."""
    vcop_clips: int = Field(3, ge=2, le=4)
    """vcop: clips that are shuffled."""
    vcop_interval: int = Field(8, ge=0)
    """vcop: frames between one clip and the next; fewer, where a recording is too short."""
    speed_strides: tuple[int, ...] = Field((-4, -2, -1, 0, 1, 2, 4), min_length=2)
    """speed: from one frame of a clip to the next, the classes; negative: backwards; 0: a still picture."""
    speed_short: Literal["skip", "clamp"] = "skip"
    """speed: strides that a recording is too short for are not drawn, or (clamp) its last frame is repeated."""
    speed_easy: tuple[int, ...] = (0, 1, 4)
    """speed: the strides that alone are drawn in the first `speed_easy_rounds` rounds."""
    speed_easy_rounds: int = Field(0, ge=0)
    """speed: rounds with easy strides, from which the others are learnt much sooner; 0: all from the first."""
    ctp_strides: tuple[int, ...] = Field((1, 2, 3, 4, 5), min_length=1)
    """ctp: from one frame of a clip to the next, one is drawn."""
    ctp_boxes: int = Field(3, ge=1)
    """ctp: patches in a clip."""
    ctp_rounding: Rounding = "auto"
    """ctp: boxes in whole pixels (pixels) or not (none); auto: whole from 112 x 112 on, as the authors have it."""

    @model_validator(mode="after")
    def _can_be_played(self) -> Self:
        self.make_task()  # which refuses what does not fit together
        return self

    def make_task(self) -> Pretext:
        """The task that `pretext` names."""
        clip = self.clip_frames, self.clip_size
        if self.pretext == "vcop":
            return VCOP(*clip, clips=self.vcop_clips, interval=self.vcop_interval, dropout=self.pretext_dropout)
        if self.pretext == "ctp":
            return CtP(*clip, strides=self.ctp_strides, boxes=self.ctp_boxes, rounding=self.ctp_rounding)
        return Speed(
            *clip,
            strides=self.speed_strides,
            short=self.speed_short,
            dropout=self.pretext_dropout,
            easy=self.speed_easy,
            easy_rounds=self.speed_easy_rounds,
        )


class VSSL(Method):
    """Learns by a pretext task: its network, its loss (Eq. 1)."""

    settings_type = VSSLSettings

    @property
    def task(self) -> Pretext:
        """The task that the recipe names."""
        s: VSSLSettings = self.settings
        return s.make_task()

    def build(self, client: ClientInfo) -> nn.Module:
        """R3D-18 and the task's head."""
        s: VSSLSettings = self.settings
        return self.task.network(s.model_depth, s.model_width or 64)

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """J_m (Eq. 1): the task's own loss."""
        return self.task.loss(net, batch.x, batch.y)


class FedVSSLSettings(VSSLSettings):
    """Keys of a recipe that this method reads. With alpha = beta = 0 and shared heads it is FedAvg."""

    vssl_alpha: float = Field(0.9, ge=0, le=1)
    """alpha: the share of the loss-weighted mean; the rest is weighted by samples."""
    vssl_beta: int = Field(0, ge=0)
    """beta: how many of the server's last models are averaged with the new one; the paper has 0 and 1."""
    server_lr: float = Field(1.0, gt=0)
    """eta_s: how far the server goes towards the mean of the clients."""


class FedVSSL(VSSL):
    """A mix of loss- and size-weighted means, averaged with the server's last models."""

    title = "FedVSSL"
    settings_type = FedVSSLSettings
    settings: FedVSSLSettings

    def scopes(self) -> ScopeTable:
        """The backbone travels with its statistics; the head stays and is kept between participations."""
        head = GLOBAL if self.settings.heads == "shared" else LOCAL
        return ScopeTable((Rule("backbone", GLOBAL), Rule("**", head)))

    def weigh(self, report: Report) -> Weight:
        """Alpha by loss, e^-L over the sum of all, the rest by samples: one weight for each client (Eq. 2)."""
        alpha = self.settings.vssl_alpha
        by_loss = math.exp(-max(-_LARGEST, min(report.metrics["loss"], _LARGEST)))
        return ((alpha, by_loss), (1 - alpha, report.samples))

    def advance(self, server: ServerState, mean: Averages) -> ServerState:
        """theta~ = theta_g + eta_s Delta, then theta_g <- the mean of theta~ and the last beta theta_g (Eqs. 2, 3).

        Delta is the weighted mean of theta_m - theta_g; the paper's minus sign would lead away from the clients. In
        the first round there is no model of the server's to average with.
        """
        past = self._past(server)

        def move(theta: Tensor, after: Tensor, name: str) -> Tensor:
            new = theta + self.settings.server_lr * (after - theta)
            return torch.stack([new, *(tree[name] for tree in past)]).mean(0) if past else new

        step = mean.step(server, lambda of, previous: of.apply(previous, move))
        return replace(step, memory=self._remember(server))

    def _past(self, server: ServerState) -> list[Mapping[str, Tensor]]:
        """The last beta models that the server has made, newest first; fewer where there are not so many yet."""
        if not self.settings.vssl_beta or server.version == 0:
            return []
        older = [
            {name: server.memory[f"past-{age}.{name}"] for name in server.shared}
            for age in range(1, self.settings.vssl_beta)
            if f"past-{age}.{next(iter(server.shared))}" in server.memory
        ]
        return [server.shared, *older]

    def _remember(self, server: ServerState) -> dict[str, Tensor]:
        """What the next round needs besides the model that it starts from."""
        kept = self._past(server)[: max(self.settings.vssl_beta - 1, 0)]
        return {f"past-{age}.{name}": tensor for age, tree in enumerate(kept, 1) for name, tensor in tree.items()}
