"""What methods that learn from unlabelled video share: the keys of a pretext task, its network and its loss."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, model_validator
from torch import Tensor, nn

from fedaction.data.client import ClientInfo
from fedaction.federation.settings import Settings
from fedaction.methods.base import Batch, Method, Metrics, Net
from fedaction.methods.pretext import VCOP, CtP, Pretext, Speed
from fedaction.methods.pretext.ctp import Rounding
from fedaction.methods.video import require_clips


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
        require_clips(client, "learning without labels")
        return self.task.network(s.model_depth, s.model_width or 64)

    def loss(self, net: Net, anchor: Net, batch: Batch) -> tuple[Tensor, Metrics]:
        """J_m (Eq. 1): the task's own loss."""
        return self.task.loss(net, batch.x, batch.y)
