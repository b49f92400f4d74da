"""What FDARN's items are run on: which modalities stand in for the paper's, and how large the runs are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedaction.data.features import EGOCENTRIC, FeatureSet, dataset_of, load_features
from fedaction.data.sources.features import name_groups
from fedaction.federation.settings import RecipeError
from fedaction.papers.fdarn.items import COLUMNS, MODALITIES
from fedaction.papers.item import Column, ItemRow
from fedaction.papers.paper import note_stand_ins
from fedaction.papers.setting import Scale, Setting, data_folder, parse_scale

ORDER = ("video", "image", "skeleton", "flow", "audio", "inertial")
"""In this order modalities take the columns of a dataset: a camera's first, a worn sensor's last."""

_EQUAL = {"feature_by": "equal", "feature_deal": "all"}
_COMMON: dict[str, Any] = {
    **{"backbone": "perceptron", "classifier": "shared", "model_norm": True, "augment": False},
    **{"local_epochs": 2, "weight_decay": 1e-5},
}
_SCALES: dict[Scale, dict[str, Any]] = {
    "tiny": {
        **{"rounds": 2, "frames": 8, "batch_size": 8, "lr": 0.01, "report_samples": 0},
        **{"model_features": 8, "model_hidden": 8},
    },
    "small": {
        **{"rounds": 60, "evaluate_every": 5, "batch_size": 32, "lr": 0.05, "clip_norm": 2.0, "clip_by": "module"},
        **{"model_features": 256, "model_hidden": 256},
    },
    "paper": {
        **{"rounds": 300, "evaluate_every": 10, "batch_size": 32, "lr": 0.01, "engine": "vectorised"},
        "model_norm": False,
    },
}
_QUICK = {"metahar": {"meta_head": 2, "meta_adapt": 1}}
"""At the tiny scale: the usual 100 steps before every test would take longer than all the rest."""
_NORMALISED = {"fedbn": {"model_norm": True}}
"""At the paper's scale networks are the paper's, without a normalisation; FedBN needs one."""
_EPIC = {"batch_size": 64, "lr": 0.001}
"""At the paper's scale, for Epic-Kitchens only."""

POSITIONS = {
    dataset: tuple(COLUMNS.index(f"{dataset} {modality}") for modality in modalities)
    for dataset, modalities in MODALITIES.items()
}
"""Columns of Table 1 that each dataset has."""

FOLDERS = {dataset.title: name for name, dataset in EGOCENTRIC.items()}
"""What the folder of each dataset's stores is called, and the dataset by `fedaction features`."""

CLIENTS: dict[str, dict[str, Any]] = {
    "Epic-Kitchens": {"feature_by": "subject", "feature_deal": "alternate", "feature_keep": 4},
    "Multimodal-EA": {**_EQUAL, "feature_clients": 2, "feature_samples": 100},
    "Stanford-ECM": {**_EQUAL, "feature_clients": 5, "feature_samples": 112},
    "Ego-Exo-AR": {"feature_by": "subject", "feature_deal": "alternate", "feature_keep": 7, "feature_samples": 465},
}
"""Recipe keys of the paper's clients: so many of each modality, with so many samples."""

SIZES = {
    "Epic-Kitchens": (16, 34018),
    "Multimodal-EA": (4, 400),
    "Stanford-ECM": (10, 1120),
    "Ego-Exo-AR": (14, 6510),
}
"""The paper's clients and samples of each dataset."""

# Synthetic sites. At the small scale their sizes are the source's own; at the paper's those of Epic-Kitchens.
_STAGE: dict[Scale, dict[str, Any]] = {
    "tiny": {
        **{"stage_clients": 2, "stage_people": 2, "stage_train": 6, "stage_test": 3, "stage_actions": 3},
        "feature_width": 32,
    },
    "small": {"stage_clients": 4},
    "paper": {"stage_clients": 4, "stage_train": 1595, "stage_test": 531, "stage_actions": 36},
}


@dataclass(frozen=True)
class FdarnSetting(Setting):
    """See `Setting`; positions are columns of Table 1."""

    groups: Mapping[int, str]
    """The group of clients at each of the positions: a modality's, or a device's where two share a modality."""
    federations: Mapping[str, Mapping[str, Any]]
    """Recipe keys of each federation, by the dataset of the paper whose columns it fills."""
    own: bool = False
    """Whether these are the paper's own datasets."""

    @property
    def remarks(self) -> list[str]:
        """Which modality stands in for which column; of the paper's own datasets, which are not there."""
        if not self.own:
            return [note_stand_ins({COLUMNS[position]: group for position, group in self.groups.items()})]
        return [
            f"No feature stores of {dataset} are there (folder {FOLDERS[dataset]}): it has the paper's values alone."
            for dataset in MODALITIES
            if dataset not in self.federations
        ]

    def keys(self, among: Sequence[int] = ()) -> dict[str, Any]:
        """See `Setting`."""
        keys = next(keys for dataset, keys in self.federations.items() if {*among} <= {*POSITIONS[dataset]})
        return {**self.base, **self.source, **keys}

    def federation(self, column: Column) -> tuple[tuple[int, ...], str]:
        """See `Setting`: the columns of one dataset."""
        dataset = next(name for name, own in POSITIONS.items() if column.client in own)
        return POSITIONS[dataset], dataset if len(self.federations) > 1 else ""

    def row_keys(self, row: ItemRow) -> Mapping[str, Any]:
        """See `Setting`."""
        own = {"tiny": _QUICK, "paper": _NORMALISED}
        return own.get(self.scale, {}).get(row.method, {})

    def split(self, protocol: str) -> tuple[dict[str, Any], str]:
        """See `Setting`; "one_client": of stored features the first of a modality's clients (Table 2)."""
        if not protocol:
            return {}, ""
        return {"stage_clients" if self.source["data"] == "stage_features" else "feature_keep": 1}, ""

    def group(self, position: int) -> str:
        """See `Setting`."""
        return self.groups[position]


def fdarn_setting(data: str, scale: str) -> FdarnSetting:
    """What the command's `--data` and `--scale` mean for FDARN. Raises RecipeError with a message for people."""
    size = parse_scale(scale)
    if data == "stage":
        modalities = ("video", "flow", "audio", "inertial")
        source = {"data": "stage_features", "stage_modalities": modalities, **_STAGE[size]}
        return _stand_in("Epic-Kitchens", data, size, "the synthetic stage", modalities, source)
    if data == "real":
        source = {
            **{"data": "features", "feature_paths": ("public:utd_mhad", "public:utd_inertial")},
            **{"feature_by": "subject", "feature_deal": "alternate", "hold_out": 2},
        }
        about = "real recordings: UTD-MHAD, six people, all tested on the other two, whom nobody trains on"
        return _stand_in("Multimodal-EA", data, size, about, ("skeleton", "inertial"), source)
    return _folder(data, size)


def _folder(data: str, scale: Scale) -> FdarnSetting:
    """Feature stores in a folder, or in a folder for each of the paper's datasets."""
    root = data_folder(data)
    folders = [root, *(root / name for name in FOLDERS.values() if (root / name).is_dir())]
    paths = [path for folder in folders for path in sorted(folder.iterdir()) if (path / "features.json").is_file()]
    stores = {path: load_features(path) for path in paths}
    paths.sort(key=lambda path: ORDER.index(stores[path].modality))
    by_dataset: dict[str, list[Path]] = {}
    for path in paths:
        by_dataset.setdefault(_dataset(path, stores[path]), []).append(path)
    strange = by_dataset.pop("", [])
    if not by_dataset:
        return _other(data, scale, strange, [stores[path] for path in strange])
    if strange:
        names = ", ".join(map(str, strange))
        raise RecipeError(f"--data {data}: {names} is of none of the paper's datasets, as others are: move it away")
    groups: dict[int, str] = {}
    federations: dict[str, dict[str, Any]] = {}
    for dataset, own in by_dataset.items():
        found, name = [stores[path].modality for path in own], FOLDERS[dataset]
        wanted = EGOCENTRIC[name].modalities
        if sorted(found) != sorted(wanted):
            raise RecipeError(
                f"--data {data} holds feature stores of {', '.join(found)} for {dataset}, which has one each of "
                f"{', '.join(wanted)}: make them with `fedaction features {name} ROOT --modality ... --out "
                f"{root / name}/...`, or move those of {dataset} away"
            )
        groups |= zip(POSITIONS[dataset], wanted, strict=True)
        federations[dataset] = {**_stores(own), **CLIENTS[dataset], **_rates(dataset, scale)}
    federations = {dataset: federations[dataset] for dataset in MODALITIES if dataset in federations}
    about = f"feature stores of {', '.join(federations)}"
    base, positions = {**_COMMON, **_SCALES[scale]}, tuple(sorted(groups))
    return FdarnSetting(data, scale, about, base, {"data": "features"}, positions, groups, federations, own=True)


def _dataset(path: Path, store: FeatureSet) -> str:
    """The paper's dataset that a store is of: by its provenance, else by the name of the folder that it lies in."""
    name = dataset_of(store) or path.parent.name
    return EGOCENTRIC[name].title if name in EGOCENTRIC else ""


def _other(data: str, scale: Scale, paths: Sequence[Path], stores: Sequence[FeatureSet]) -> FdarnSetting:
    """Other datasets: four stores stand in for Epic-Kitchens, images and another for Ego-Exo-AR, or Multimodal-EA."""
    groups = name_groups(stores, [str(path) for path in paths])
    if len(groups) not in (2, 4) or len(set(groups)) < len(groups):
        raise RecipeError(
            f"--data {data} holds feature stores of {', '.join(groups) or 'nothing'}; FDARN's tables have columns "
            "for two or for four modalities, so keep so many stores there (folders with features.json, as `fedaction "
            f"features` writes them), or a folder for each of the paper's datasets: {', '.join(FOLDERS.values())}"
        )
    source: dict[str, Any] = {"data": "features", **_stores(paths)}
    if all(store.subjects for store in stores):
        source |= {"feature_by": "subject", "feature_deal": "alternate"}
    else:
        source |= {**_EQUAL, "feature_clients": len(groups)}
    two = "Ego-Exo-AR" if stores[0].modality == "image" else "Multimodal-EA"
    about = f"feature stores: {', '.join(path.name for path in paths)}"
    return _stand_in("Epic-Kitchens" if len(groups) == 4 else two, data, scale, about, groups, source)


def _stores(paths: Sequence[Path]) -> dict[str, Any]:
    return {"feature_paths": tuple(map(str, paths)), "test_share": 0.25}


def _rates(dataset: str, scale: Scale) -> dict[str, Any]:
    return _EPIC if scale == "paper" and dataset == "Epic-Kitchens" else {}


def _stand_in(
    dataset: str, data: str, scale: Scale, about: str, groups: Sequence[str], source: dict[str, Any]
) -> FdarnSetting:
    """Other data, whose groups take a dataset's columns."""
    base, positions = {**_COMMON, **_SCALES[scale]}, POSITIONS[dataset]
    federations = {dataset: _rates(dataset, scale)}
    return FdarnSetting(
        data, scale, about, base, source, positions, dict(zip(positions, groups, strict=True)), federations
    )
