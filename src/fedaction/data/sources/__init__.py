"""Everything that a recipe's `data` key may name."""

from __future__ import annotations

from fedaction.data.sources.arrays import ArraySource
from fedaction.data.sources.base import ClipSource, Source
from fedaction.data.sources.features import FeatureSource, StageFeatureSource
from fedaction.data.sources.given import GivenSource
from fedaction.data.sources.public import PublicSource
from fedaction.data.sources.signals import SignalSource
from fedaction.data.sources.stage import StageSource, StageVideoSource
from fedaction.data.sources.store import StoreSource
from fedaction.data.sources.video import VideoSource

CLIP_SOURCES: dict[str, type[ClipSource]] = {
    "stage_video": StageVideoSource,
    "video": VideoSource,
    "arrays": ArraySource,
}
"""Kinds of video by the name that recipes use: for `fedaction run`, `distil` and `evaluate`."""

SOURCES: dict[str, type[Source]] = {
    "stage": StageSource,
    "store": StoreSource,
    "public": PublicSource,
    "features": FeatureSource,
    "signals": SignalSource,
    "stage_features": StageFeatureSource,
    "given": GivenSource,
    **CLIP_SOURCES,
}
"""Kinds of data by the name that recipes use, for `fedaction run`."""
