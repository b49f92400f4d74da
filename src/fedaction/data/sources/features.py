"""Features of recordings, at clients whose modalities differ."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from fedaction.data.client import ClientData
from fedaction.data.features import (
    EGOCENTRIC,
    MODALITIES,
    SENSORS,
    FeatureSet,
    Modality,
    built_in,
    clients_from_features,
    from_public,
    load_features,
    take_features,
)
from fedaction.data.features.fewer import Fewer
from fedaction.data.features.store import HEADER, VALUES, is_feature_store
from fedaction.data.files import digest_files
from fedaction.data.public.cache import digest_public
from fedaction.data.public.readers import READERS
from fedaction.data.signals.store import HEADER as SIGNALS_HEADER
from fedaction.data.signals.store import VALUES as SIGNALS_VALUES
from fedaction.data.signals.windows import WindowSet
from fedaction.data.sources.base import PUBLIC, PeopleSource, SequenceSource, Tell, check_made, data_root, name_each
from fedaction.federation.settings import HOW
from fedaction.stage import VERSION
from fedaction.stage.modalities import stage_features


class _Features(SequenceSource):
    """What both kinds share."""

    per_seed: ClassVar[bool] = True

    feature_scale: Literal["client", "unit", "none"] = "client"
    """client: by mean and deviation of the client's own training samples; unit: every vector by its own size."""
    feature_shots: int = Field(0, ge=0)
    """Most training samples of a class at a client, drawn at random; 0: all. Tests stay as they are."""
    feature_missing: tuple[str, ...] = ()
    """As "inertial:9": inertial clients never train on nine classes, drawn at random, and are tested on those."""
    feature_rare: int = Field(0, ge=0)
    """Training samples of each class in feature_missing that a client keeps, drawn at random; 0: never seen."""
    feature_cache: str = Field("", json_schema_extra=HOW)
    """Folder where features are kept once made; empty: FEDACTION_CACHE, else ~/.cache/fedaction."""

    @field_validator("feature_missing")
    @classmethod
    def _counted(cls, words: tuple[str, ...]) -> tuple[str, ...]:
        for word in words:
            if not re.fullmatch(r"\w+:[1-9][0-9]{0,3}", word):
                raise ValueError(f'{word!r} is no modality and number of classes; write it as "inertial:9"')
        return words

    @model_validator(mode="after")
    def _rare_of_some(self) -> Self:
        if self.feature_rare and not self.feature_missing:
            raise ValueError('feature_rare is of the classes in feature_missing, which names none, as "inertial:9"')
        return self

    @property
    def _fewer(self) -> Fewer:
        pairs = (word.split(":") for word in self.feature_missing)
        return Fewer(self.feature_shots, {modality: int(count) for modality, count in pairs}, self.feature_rare)


class FeatureSource(_Features, PeopleSource):
    """Clients whose modalities differ: features of recordings, one store for each modality."""

    formerly: ClassVar[Mapping[str, str]] = {"test_share": "feature_test", "hold_out": "feature_holdout"}
    replaced: ClassVar[Mapping[str, str]] = {"feature_test": "test_share", "feature_holdout": "hold_out"}

    feature_paths: tuple[str, ...] = Field(min_length=1)
    """One store for each modality, made by `fedaction features`; or "public:utd_mhad": a dataset by its reader."""
    feature_groups: tuple[str, ...] = ()
    """What each store's clients are called; empty: its device or modality, or its folder where two share that."""
    feature_root: str = Field("", json_schema_extra=HOW)
    """Folder that holds a folder for each public dataset; empty: the environment variable FEDACTION_DATA."""
    feature_by: Literal["subject", "dataset", "equal"] = "subject"
    """What makes a client: a person, a store; or a modality's samples are dealt in equal shares."""
    feature_deal: Literal["alternate", "all"] = "alternate"
    """alternate: each person is in one modality only, in turn; all: everybody is in every modality."""
    feature_clients: int = Field(4, ge=1)
    """Equal shares: clients of each modality."""
    feature_keep: int = Field(0, ge=0)
    """Clients of each modality that take part, the first by name; 0: all."""
    feature_samples: int = Field(0, ge=0)
    """Most samples of a client, training and test together, drawn at random; 0: all."""
    test_share: float = Field(0.25, gt=0, lt=1)
    """Where nobody is held out: the share of each client's samples kept for test, at random, by class if possible."""

    @field_validator("feature_paths")
    @classmethod
    def _known(cls, paths: tuple[str, ...]) -> tuple[str, ...]:
        for path in paths:
            name = path.removeprefix(PUBLIC)
            if path.startswith(PUBLIC) and name not in {**READERS, **SENSORS}:
                raise ValueError(f"no reader is called {name!r}; there are {', '.join([*READERS, *SENSORS])}")
        return paths

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.feature_groups and len(self.feature_groups) != len(self.feature_paths):
            raise ValueError(
                f"feature_groups has {len(self.feature_groups)} names for {len(self.feature_paths)} feature_paths"
            )
        return self

    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """See `Source.load`."""
        sets = [self._features(path, tell) for path in self.feature_paths]
        return clients_from_features(
            sets,
            groups=self.feature_groups or name_groups(sets, self.feature_paths),
            by=self.feature_by,
            deal=self.feature_deal,
            clients=self.feature_clients,
            keep=self.feature_keep,
            samples=self.feature_samples,
            test=self.test_share,
            hold_out=self.hold_out,
            fewer=self._fewer,
            scale=self.feature_scale,
            seed=seed,
        )

    def fingerprint(self, seed: int) -> dict[str, str]:
        """See `Source.fingerprint`."""
        digests = [digest_place(path, "feature_root", self.feature_root) for path in self.feature_paths]
        return dict(zip(name_each(self.feature_paths), digests, strict=True))

    def _features(self, path: str, tell: Tell | None) -> FeatureSet:
        if not path.startswith(PUBLIC):
            if not Path(path).exists():
                raise FileNotFoundError(f"there is no feature store {path}: make it with `{_how(Path(path))}`")
            return load_features(path)
        name, cache = path.removeprefix(PUBLIC), self.feature_cache or None
        place = data_root(self.feature_root, "feature_root", (name,))
        folder = place / (SENSORS[name].folder if name in SENSORS else name)
        recordings = from_public(name, folder, cache=cache, progress=tell)
        extractor = built_in(recordings.modality, frames=self.frames, align=self.align, bodies=recordings.bodies)
        return take_features(recordings, extractor, cache, tell)


def name_groups(sets: Sequence[FeatureSet | WindowSet], paths: Sequence[str]) -> list[str]:
    """The device of each set, or its modality where it has no name; of sets that share one, the folder's name."""
    own = [item.device or item.modality for item in sets]
    return [
        name if own.count(name) == 1 else Path(path.removeprefix(PUBLIC)).name
        for name, path in zip(own, paths, strict=True)
    ]


def digest_place(path: str, key: str, root: str) -> str:
    """What lies at a path of stores of features or signals, or of a public dataset below the folder of a key."""
    if path.startswith(PUBLIC):
        name = path.removeprefix(PUBLIC)
        folder = (SENSORS[name].folder if name in SENSORS else "") or name
        return digest_public({**READERS, **SENSORS}[name], data_root(root, key, (folder,)) / folder)
    names = (HEADER, VALUES) if is_feature_store(Path(path)) else (SIGNALS_HEADER, SIGNALS_VALUES)
    return digest_files(Path(path), [Path(path) / name for name in names])


def _how(path: Path) -> str:
    """The command that makes the store at a path; of FDARN's datasets those are <dataset>/<modality>."""
    name, modality = path.parent.name, path.name
    source = f"{name} ROOT" if name in EGOCENTRIC else "SOURCE"
    return f"fedaction features {source} --modality {modality if modality in MODALITIES else 'WHAT'} --out {path}"


class StageFeatureSource(_Features):
    """The embedded world, seen by clients whose devices differ: skeletons, worn sensors, video, sound."""

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

    def load(self, seed: int, tell: Tell | None = None) -> list[ClientData]:
        """See `Source.load`."""
        places = len(self.stage_modalities) * self.stage_clients
        people, recordings = places * self.stage_people, places * (self.stage_train + self.stage_test)
        check_made(recordings, people, 4 * self.feature_width)
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
            fewer=self._fewer,
            scale=self.feature_scale,
            cache=self.feature_cache or None,
            progress=tell,
        )

    def fingerprint(self, seed: int) -> dict[str, str]:
        """See `Source.fingerprint`: the keys and the seed decide what a version of the stage makes."""
        return {"the stage": f"version {VERSION}"}
