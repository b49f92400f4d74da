"""What a network takes, and how a recording becomes it: what whoever uses a trained model must know of its data."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

from fedaction.data.layout import Layout

Kind = Literal["arrays", "skeleton", "signals", "features", "video"]
"""What recordings are: any arrays, skeletons, sensors' signals, feature vectors, video."""

_AXES: dict[Kind, int] = {"skeleton": 4, "signals": 2, "features": 1, "video": 4}
_MOST = 2**28  # numbers of one sample


class Input(BaseModel):
    """A client's kind of recording, and the steps from one to a sample. All of it is JSON."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)

    kind: Kind
    """What recordings are."""
    shape: Annotated[tuple[PositiveInt, ...], Field(strict=False)]
    """Of one sample: skeletons (bodies M, frames T, joints V, coordinates C), signals (T, C), features (F,)."""
    device: str = ""
    """Signals and features: what recorded them, such as "watch"; empty: it has no name of its own."""
    rate_hz: PositiveFloat | None = None
    """Frames or readings a second of a recording; None: not known."""
    layout: dict[str, Any] | None = None
    """Skeletons: name, joints, edges and centre, as `Layout.to_dict` gives them."""
    align: bool = False
    """Skeletons: whether every frame is turned about the vertical so that the shoulders lie along x."""
    body: dict[str, Any] | None = None
    """Skeletons: a layout with more joints, onto which these are put last of all; what a recording lacks is zero."""
    bodies: PositiveInt | None = None
    """With `body`: how many bodies there are then."""
    channels: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Signals: what is measured, in the order of a recording's columns."""
    hop: PositiveInt | None = None
    """Signals: readings from one window's beginning to the next's; a window has shape[0] of them. None: there are no
    windows, a whole recording is one sample, resized to shape[0] readings."""
    extractor: dict[str, Any] | None = None
    """Features: what they were made with, as a feature store's provenance says it, and of which "modality"."""
    scale: Literal["none", "unit", "client"] = "none"
    """Features, signals: as they are; each by its own size; or by `mean` and `factor` of a client's training data."""
    mean: Annotated[tuple[float, ...], Field(strict=False)] = ()
    """With scale "client": subtracted from each feature or channel."""
    factor: Annotated[tuple[float, ...], Field(strict=False)] = ()
    """With scale "client": then multiplied; what lies beyond 10 is cut there."""
    stride: PositiveInt = 1
    """Video: frames of a recording from one frame of a clip to the next."""
    resize: PositiveInt | None = None
    """Video: the shorter side that frames are brought to, in pixels, before a square of shape's size is cut out."""

    @model_validator(mode="after")
    def _fits(self) -> Self:
        wanted, shape = _AXES.get(self.kind), self.shape
        if not shape or (wanted is not None and len(shape) != wanted) or math.prod(shape) > _MOST:
            raise ValueError(f"{self.kind} samples cannot have shape {shape}")
        if self.kind == "skeleton" and len(self.joints) != shape[2]:
            raise ValueError(f"a layout of {len(self.joints)} joints for samples of {shape[2]}")
        if self.body is not None:
            self.joints.map_onto(Layout.from_dict(self.body))
        if self.kind == "signals" and self.channels and len(self.channels) != shape[1]:
            raise ValueError(f"{len(self.channels)} channels are named for samples of {shape[1]}")
        if self.scale == "client" and {len(self.mean), len(self.factor)} != {shape[-1]}:
            raise ValueError(
                f"{len(self.mean)} means and {len(self.factor)} factors for {shape[-1]} features or channels"
            )
        if self.kind == "video" and (shape[1] != shape[2] or shape[3] != 3 or shape[1] > (self.resize or 0)):
            side = self.resize or "unknown"
            raise ValueError(f"a crop of {shape[1:]} pixels does not fit into frames of {side}")
        return self

    @property
    def joints(self) -> Layout:
        """Skeletons: the layout."""
        if self.layout is None:
            raise ValueError("skeletons need a layout")
        return Layout.from_dict(self.layout)

    @property
    def network_shape(self) -> tuple[int, ...]:
        """Of one sample as the network sees it, after all steps."""
        if self.body is None:
            return self.shape
        bodies, frames, _, coordinates = self.shape
        return self.bodies or bodies, frames, len(Layout.from_dict(self.body)), coordinates


def skeleton_input(layout: Layout, shape: tuple[int, ...], align: bool, rate_hz: float | None = None) -> Input:
    """Of skeletons that were centred, resized to `shape`'s frames and, if asked for, aligned."""
    return Input(kind="skeleton", shape=shape, layout=layout.to_dict(), align=align, rate_hz=rate_hz or None)


def clip_input(shape: tuple[int, ...], stride: int, resize: int) -> Input:
    """Of clips (T, H, H, 3) of video."""
    return Input(kind="video", shape=shape, stride=stride, resize=resize)
