"""Signals of worn sensors as they are, at clients who may wear different devices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from fedaction.data.client import ClientData
from fedaction.data.features import SENSORS, FeatureSet, clients_from_features, from_public, load_features
from fedaction.data.features.store import is_feature_store
from fedaction.data.signals.store import SignalSet, is_signal_store, load_signals
from fedaction.data.signals.windows import WindowSet, window_recordings
from fedaction.data.sources.base import PUBLIC, PeopleSource, Tell, data_root, name_each
from fedaction.data.sources.features import digest_place, name_groups
from fedaction.federation.settings import HOW


class SignalSource(PeopleSource):
    """Worn sensors: recordings imported with `fedaction data import --kind inertial`, one store for each device."""

    per_seed: ClassVar[bool] = True
    suited: ClassVar[Mapping[str, Any]] = {
        "backbone": "perceptron",
        "classifier": "shared",
        "buffers": "average",
        "model_features": 128,
        "model_hidden": 128,
        "model_width": 32,
    }

    signal_paths: tuple[str, ...] = Field(min_length=1)
    """One store for each device; feature stores may be among them; or "public:utd_inertial": a dataset's reader."""
    signal_groups: tuple[str, ...] = ()
    """What each store's clients are called; empty: its device or "inertial", or its folder where two share that."""
    signal_root: str = Field("", json_schema_extra=HOW)
    """Folder that holds a folder for each public dataset; empty: the environment variable FEDACTION_DATA."""
    signal_by: Literal["subject", "dataset", "equal", "dirichlet", "shards"] = "subject"
    """What makes a client: a person, a store; or recordings are dealt to signal_clients clients."""
    signal_deal: Literal["alternate", "all"] = "alternate"
    """Of several stores: each person is in one only, in turn (alternate), or in every one (all)."""
    signal_clients: int = Field(4, ge=1)
    """Where recordings are dealt: clients of each store."""
    signal_alpha: float = Field(0.5, gt=0)
    """Concentration of the Dirichlet partition: the smaller, the less alike clients are."""
    signal_window: float = Field(0.0, ge=0)
    """Seconds of a sample; 0: as the store was imported."""
    signal_hop: float = Field(0.0, ge=0)
    """Seconds from one sample to the next; 0: as imported, or half of signal_window."""
    signal_frames: int = Field(128, ge=8, le=10_000)
    """Where there are no windows, a recording is one sample, resized to so many readings."""
    signal_scale: Literal["client", "unit", "none"] = "none"
    """client: each channel by mean and deviation of the client's training samples, as features always are; unit: each
    sample by its size."""
    test_share: float = Field(0.25, gt=0, lt=1)
    """Where nobody is held out: the share of each client's recordings, or pieces of long ones, kept for test."""

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.signal_groups and len(self.signal_groups) != len(self.signal_paths):
            raise ValueError(
                f"signal_groups has {len(self.signal_groups)} names for {len(self.signal_paths)} signal_paths"
            )
        if self.signal_hop and self.signal_window and self.signal_hop > self.signal_window:
            raise ValueError("signal_hop is longer than signal_window, which would leave gaps between samples")
        return self

    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """See `Source.load`."""
        sets = [self._open(path) for path in self.signal_paths]
        return clients_from_features(
            sets,
            groups=self.signal_groups or name_groups(sets, self.signal_paths),
            by=self.signal_by,
            deal=self.signal_deal,
            clients=self.signal_clients,
            alpha=self.signal_alpha,
            test=self.test_share,
            hold_out=self.hold_out,
            scale=[self.signal_scale if isinstance(item, WindowSet) else "client" for item in sets],
            seed=seed,
        )

    def fingerprint(self, seed: int) -> dict[str, str]:
        """See `Source.fingerprint`."""
        digests = [digest_place(path, "signal_root", self.signal_root) for path in self.signal_paths]
        return dict(zip(name_each(self.signal_paths), digests, strict=True))

    def _open(self, path: str) -> FeatureSet | WindowSet:
        if path.startswith(PUBLIC):
            item = self._read_public(path.removeprefix(PUBLIC))
        elif is_feature_store(Path(path)):
            return load_features(path)
        elif Path(path).exists() and not is_signal_store(Path(path)):
            raise ValueError(
                f"signal_paths: {path} is no signal store: make one with `fedaction data import {path} --kind "
                "inertial --out DIR`, and name DIR"
            )
        else:
            item = load_signals(path)
        return window_recordings(
            item,
            window_s=self.signal_window,
            hop_s=self.signal_hop,
            frames=self.signal_frames,
            pieces=self.hold_out in (0, ()) or self.signal_by not in ("subject", "dataset"),
        )

    def _read_public(self, name: str) -> SignalSet:
        if name not in SENSORS:
            raise ValueError(f"signal_paths: no reader of signals is called {name!r}; there are {', '.join(SENSORS)}")
        reader = SENSORS[name]
        place = data_root(self.signal_root, "signal_root", (reader.folder or name,))
        given = from_public(name, place / (reader.folder or name))
        return SignalSet(
            name=name,
            device="",
            channels=reader.channels,
            rate_hz=reader.rate_hz,
            units="",
            window=0,
            hop=0,
            recordings=[np.asarray(given.read(i).array, dtype=np.float32) for i in range(len(given))],
            labels=np.array([given.classes.index(label) for label in given.labels], dtype=np.int64),
            classes=given.classes,
            names=given.names,
            subjects=given.subjects,
            provenance=given.source,
        )
