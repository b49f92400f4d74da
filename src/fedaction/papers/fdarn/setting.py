"""What FDARN's items are run on: which modalities stand in for the paper's, and how large the runs are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fedaction.data.features import load_features
from fedaction.federation.settings import RecipeError
from fedaction.papers.fdarn.items import COLUMNS, MODALITIES
from fedaction.papers.item import ItemRow
from fedaction.papers.setting import Scale, Setting, data_folder, parse_scale

ORDER = ("video", "image", "skeleton", "flow", "audio", "inertial")
"""In this order modalities take the columns of a dataset: a camera's first, a worn sensor's last."""

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

    modalities: tuple[str, ...]
    """The one that stands in at each of the positions."""

    @property
    def stand_ins(self) -> dict[str, str]:
        """Which modality stands in for which column."""
        return dict(zip((COLUMNS[position] for position in self.positions), self.modalities, strict=True))

    def row_keys(self, row: ItemRow) -> Mapping[str, Any]:
        """See `Setting`."""
        own = {"tiny": _QUICK, "paper": _NORMALISED}
        return own.get(self.scale, {}).get(row.method, {})

    def split(self, protocol: str) -> tuple[dict[str, Any], str]:
        """See `Setting`; "one_client": of stored features a modality's samples are one client's (Table 2)."""
        if not protocol:
            return {}, ""
        if self.source["data"] == "stage_features":
            return {"stage_clients": 1}, ""
        return {"feature_by": "equal", "feature_clients": 1}, ""

    def group(self, place: int) -> str:
        """See `Setting`."""
        return self.modalities[place]


def fdarn_setting(data: str, scale: str) -> FdarnSetting:
    """What the command's `--data` and `--scale` mean for FDARN. Raises RecipeError with a message for people."""
    size = parse_scale(scale)
    if data == "stage":
        modalities = ("video", "flow", "audio", "inertial")
        source = {"data": "stage_features", "stage_modalities": modalities, **_STAGE[size]}
        return _setting(data, size, "the synthetic stage", modalities, source)
    if data == "real":
        source = {
            **{"data": "features", "feature_paths": ("public:utd_mhad", "public:utd_inertial")},
            **{"feature_by": "subject", "feature_deal": "alternate", "feature_holdout": 2},
        }
        about = "real recordings: UTD-MHAD, six people, all tested on the other two, whom nobody trains on"
        return _setting(data, size, about, ("skeleton", "inertial"), source)
    return _folder(data, size)


def _folder(data: str, scale: Scale) -> FdarnSetting:
    """Feature stores below a folder, one for each modality."""
    folders = sorted(data_folder(data).iterdir())
    stores = {path: load_features(path) for path in folders if (path / "features.json").is_file()}
    paths = sorted(stores, key=lambda path: ORDER.index(stores[path].modality))
    modalities = [stores[path].modality for path in paths]
    if len(modalities) not in (2, 4) or len(set(modalities)) < len(modalities):
        raise RecipeError(
            f"--data {data} holds feature stores of {', '.join(modalities) or 'nothing'}; FDARN's tables have "
            "columns for two or for four modalities, so keep that many stores there, each of another modality "
            "(folders with a features.json, as `fedaction features` writes them)"
        )
    source: dict[str, Any] = {"data": "features", "feature_paths": tuple(map(str, paths)), "feature_test": 0.25}
    if all(stores[path].subjects for path in paths):
        source |= {"feature_by": "subject", "feature_deal": "alternate"}
    else:
        source |= {"feature_by": "equal", "feature_deal": "all", "feature_clients": len(modalities)}
    about = f"feature stores: {', '.join(path.name for path in paths)}"
    return _setting(data, scale, about, modalities, source)


def _setting(data: str, scale: Scale, about: str, modalities: Sequence[str], source: dict[str, Any]) -> FdarnSetting:
    """Four modalities stand in for Epic-Kitchens, images and another for Ego-Exo-AR, other two for Multimodal-EA."""
    if len(modalities) == 4:
        dataset = "Epic-Kitchens"
    else:
        dataset = "Ego-Exo-AR" if modalities[0] == "image" else "Multimodal-EA"
    first = COLUMNS.index(f"{dataset} {MODALITIES[dataset][0]}")
    positions = tuple(range(first, first + len(modalities)))
    base = {**_COMMON, **_SCALES[scale], **(_EPIC if scale == "paper" and len(modalities) == 4 else {})}
    return FdarnSetting(data, scale, about, base, source, positions, tuple(modalities))
