"""What a network takes, and how a recording becomes it: what whoever uses a trained model must know of its data."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt

Kind = Literal["arrays", "skeleton", "signals", "features", "video"]
"""What recordings are: any arrays, skeletons, sensors' signals, feature vectors, video."""


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
    channels: Annotated[tuple[str, ...], Field(strict=False)] = ()
    """Signals: what is measured, in the order of a recording's columns."""
    hop: PositiveInt | None = None
    """Signals: readings from one window's beginning to the next's; a window has shape[0] of them. None: there are no
    windows, a whole recording is one sample, resized to shape[0] readings."""
    extractor: dict[str, Any] | None = None
    """Features: what they were made with, as a feature store's provenance says it."""
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
