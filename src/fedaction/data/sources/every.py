"""Where a run's clients come from, by the recipe's `data` key."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field, field_validator

from fedaction.data.client import ClientData
from fedaction.data.features import (
    SENSORS,
    FeatureSet,
    Modality,
    built_in,
    cached_features,
    clients_from_features,
    from_public,
    load_features,
)
from fedaction.data.preprocess import normalise
from fedaction.data.public.cache import prepare_public
from fedaction.data.public.readers import READERS
from fedaction.data.samples import in_memory
from fedaction.data.sources.base import Source, Tell, data_root
from fedaction.data.sources.video import StageVideoSource, VideoSource
from fedaction.data.store import clients_from_store
from fedaction.federation.settings import HOW
from fedaction.stage import stage_federation
from fedaction.stage.modalities import stage_features


class StageSource(Source):
    """The embedded world: synthetic actors, any number of clients, nothing to download."""

    stage_clients: int = Field(5, ge=1, le=100_000)
    """How many clients."""
    stage_layouts: tuple[str, ...] = ("kinect_v2",)
    """Skeleton layouts, dealt to the clients in turn."""
    stage_train: tuple[int, ...] = (120,)
    """Training samples per client, dealt in turn."""
    stage_test: int = Field(80, ge=1)
    """Test samples per client."""
    stage_actions: tuple[int, ...] = (12,)
    """How many actions a client labels, dealt in turn."""
    stage_heterogeneity: float = Field(1.0, ge=0)
    """How much clients differ in people, habits, cameras and sensors; 0: not at all."""
    stage_noise: float = Field(1.0, ge=0)
    """Sensor noise and drop-outs; 1 is a consumer depth camera, 0 none."""

    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """See `Source.load`."""
        raw = stage_federation(
            clients=self.stage_clients,
            layouts=self.stage_layouts,
            train=self.stage_train,
            test=self.stage_test,
            actions=self.stage_actions,
            seed=seed,
            frames=self.frames,
            heterogeneity=self.stage_heterogeneity,
            noise=self.stage_noise,
        )
        return [_normalised(client, self.align) for client in raw]


class StoreSource(Source):
    """Your own data, imported with `fedaction data import`."""

    store_paths: tuple[str, ...]
    """Imported datasets; relative paths are looked up from where the command runs."""
    store_by: Literal["dataset", "subject", "dirichlet", "shards", "iid"] = "dataset"
    """How a dataset is dealt to clients: one client per dataset or person, or a partition."""
    store_clients: int = Field(0, ge=0)
    """How many clients to deal the data to; 0: as many as there are datasets or subjects."""
    store_alpha: float = Field(0.5, gt=0)
    """Concentration of the Dirichlet partition: the smaller, the less alike clients are."""
    store_test: float | tuple[str, ...] = 0.3
    """The share of samples (whole subjects where they are known) kept for testing, or the names of test subjects."""
    store_protocol: str = ""
    """One of the datasets' own splits in place of store_test, such as cross_subject; empty: store_test."""

    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """See `Source.load`."""
        split = list(self.store_test) if isinstance(self.store_test, tuple) else self.store_test
        return clients_from_store(
            [Path(path) for path in self.store_paths],
            split=split,
            protocol=self.store_protocol,
            by=self.store_by,
            clients=self.store_clients or None,
            alpha=self.store_alpha,
            frames=self.frames,
            align=self.align,
            seed=seed,
        )


Split = Literal["cross_subject", "cross_view", "cross_setup"]


class PublicSource(Source):
    """Public datasets, which you bring: one client for each, with the dataset's own split."""

    public_sets: tuple[str, ...] = Field(min_length=1)
    """Public datasets, one client each, by the names of their readers, such as utd_mhad or ntu60."""
    public_root: str = Field("", json_schema_extra=HOW)
    """Folder that holds a folder for each dataset, named like it; empty: the environment variable FEDACTION_DATA."""
    public_split: Split | tuple[Split, ...] = "cross_subject"
    """Which of the datasets' splits: cross_subject, cross_view or cross_setup; or one for each of public_sets."""
    public_cache: str = Field("", json_schema_extra=HOW)
    """Folder where datasets are kept once read; empty: FEDACTION_CACHE, else ~/.cache/fedaction."""

    @field_validator("public_sets")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        for name in names:
            if name not in READERS:
                raise ValueError(f"no reader is called {name!r}; there are {', '.join(READERS)}")
            if names.count(name) > 1:
                raise ValueError(f"{name!r} is named twice")
        return names

    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """See `Source.load`."""
        place = data_root(self.public_root, "public_root", self.public_sets)
        count = len(self.public_sets)
        splits = (self.public_split,) * count if isinstance(self.public_split, str) else self.public_split
        if len(splits) != count:
            raise ValueError(
                f"public_split has {len(splits)} entries for {count} datasets; give one, or one for each"
            )
        clients: list[ClientData] = []
        for name, split in zip(self.public_sets, splits, strict=True):
            has = READERS[name].protocols
            if split not in has:
                raise ValueError(f"{name} has no split {split}; it has {', '.join(has)}")
            store = prepare_public(name, place / name, cache=self.public_cache or None, progress=tell)
            clients += clients_from_store(store, protocol=split, frames=self.frames, align=self.align, seed=seed)
        return clients


class FeatureSource(Source):
    """Clients whose modalities differ: features of recordings, one store for each modality."""

    per_seed: ClassVar[bool] = True

    feature_paths: tuple[str, ...] = Field(min_length=1)
    """One store for each modality, made by `fedaction features`; or "public:utd_mhad": a dataset by its reader."""
    feature_root: str = Field("", json_schema_extra=HOW)
    """Folder that holds a folder for each public dataset; empty: the environment variable FEDACTION_DATA."""
    feature_by: Literal["subject", "equal"] = "subject"
    """How a modality is dealt to clients: one client for each person, or equal shares of its samples."""
    feature_deal: Literal["alternate", "all"] = "alternate"
    """alternate: each person is in one modality only, in turn; all: everybody is in every modality."""
    feature_clients: int = Field(4, ge=1)
    """Equal shares: clients of each modality."""
    feature_test: float = Field(0.25, gt=0, lt=1)
    """Share of each client's samples kept for test, at random, by class where possible."""
    feature_strangers: int = Field(0, ge=0)
    """People of each modality who are nobody's client; all its clients are tested on them, not by feature_test."""
    feature_scale: Literal["client", "unit", "none"] = "client"
    """client: by mean and deviation of the client's own training samples; unit: every vector by its own size."""
    feature_cache: str = Field("", json_schema_extra=HOW)
    """Folder where features of public datasets are kept; empty: FEDACTION_CACHE, else ~/.cache/fedaction."""

    @field_validator("feature_paths")
    @classmethod
    def _known(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            name = path.removeprefix(_PUBLIC)
            if path.startswith(_PUBLIC) and name not in {**READERS, **SENSORS}:
                raise ValueError(f"no reader is called {name!r}; there are {', '.join([*READERS, *SENSORS])}")
        return paths

    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """See `Source.load`."""
        return clients_from_features(
            [self._features(path) for path in self.feature_paths],
            by=self.feature_by,
            deal=self.feature_deal,
            clients=self.feature_clients,
            test=self.feature_test,
            hold_out=self.feature_strangers,
            scale=self.feature_scale,
            seed=seed,
        )

    def _features(self, path: str) -> FeatureSet:
        if not path.startswith(_PUBLIC):
            return load_features(path)
        name = path.removeprefix(_PUBLIC)
        place = data_root(self.feature_root, "feature_root", (name,))
        folder = SENSORS[name].folder if name in SENSORS else name
        cache = self.feature_cache or None
        recordings = from_public(name, place / folder, cache=cache)
        extractor = built_in(recordings.modality, frames=self.frames, align=self.align, bodies=recordings.bodies)
        return cached_features(recordings, extractor, cache)


class StageFeatureSource(Source):
    """The embedded world, seen by clients whose devices differ: skeletons, worn sensors, video, sound."""

    per_seed: ClassVar[bool] = True

    stage_seed: int = 0
    """What people, places and recordings are drawn from; data_seed and seeds only decide which are for test."""
    stage_modalities: tuple[Modality, ...] = Field(("skeleton", "inertial", "video", "audio"), min_length=1)
    """Kinds of device: skeleton, inertial, video, audio, flow, image."""
    stage_clients: int = Field(4, ge=1, le=10_000)
    """Clients of each modality."""
    stage_people: int = Field(8, ge=1)
    """People at each client; nobody is at two."""
    stage_train: int = Field(112, ge=1)
    """Training samples per client."""
    stage_test: int = Field(38, ge=1)
    """Test samples per client, of the same people: three to one with the default of stage_train, as in FDARN."""
    stage_actions: int = Field(12, ge=2)
    """How many actions there are, the same for all clients."""
    stage_heterogeneity: float = Field(1.0, ge=0)
    """How much clients differ in people, habits, cameras, rooms and in how common actions are; 0: not at all."""
    stage_noise: float = Field(1.0, ge=0)
    """Noise of cameras, sensors and rooms; 0 none."""
    feature_width: int = Field(1024, ge=8, le=65536)
    """Numbers per sample; video, flow and image have at most 1024."""
    feature_scale: Literal["client", "unit", "none"] = "client"
    """client: by mean and deviation of the client's own training samples; unit: every vector by its own size."""
    feature_cache: str = Field("", json_schema_extra=HOW)
    """Folder where features are kept once made; empty: FEDACTION_CACHE, else ~/.cache/fedaction."""

    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """See `Source.load`."""
        return stage_features(
            modalities=self.stage_modalities,
            clients=self.stage_clients,
            people=self.stage_people,
            train=self.stage_train,
            test=self.stage_test,
            actions=self.stage_actions,
            seed=self.stage_seed,
            division=seed,
            width=self.feature_width,
            frames=self.frames,
            align=self.align,
            heterogeneity=self.stage_heterogeneity,
            noise=self.stage_noise,
            scale=self.feature_scale,
            cache=self.feature_cache or None,
            progress=tell,
        )


SOURCES: dict[str, type[Source]] = {
    "stage": StageSource,
    "store": StoreSource,
    "public": PublicSource,
    "features": FeatureSource,
    "stage_features": StageFeatureSource,
    "video": VideoSource,
    "stage_video": StageVideoSource,
}
"""Sources by the name that recipes use."""

_PUBLIC = "public:"


def _normalised(client: ClientData, align: bool) -> ClientData:
    layout = client.info.layout
    assert layout is not None
    train, test = (replace(s, x=normalise(s.x, layout, align)) for s in map(in_memory, (client.train, client.test)))
    return replace(client, train=train, test=test)
