"""What a paper's item is run on: which data stand in for its clients, and how large the runs are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedaction.data.public.readers import READERS
from fedaction.federation.files import read_json
from fedaction.federation.settings import RecipeError
from fedaction.papers.item import DATASETS

Scale = Literal["tiny", "small", "paper"]
SCALES: tuple[Scale, ...] = ("tiny", "small", "paper")

REAL = ("utd_mhad", "msr_action3d", "kard", "florence3d", "hdm05")
"""Public datasets that need no agreement, standing in for the paper's five, in order."""
OWN = ("pku1", "pku2", "ntu60", "ntu120", "uestc")
"""The paper's datasets, as readers and folders are called."""

# The network and the schedule. "small" is the demo's, "paper" the paper's: see recipes/fsar.
_SCALES: dict[Scale, dict[str, Any]] = {
    "tiny": {
        **{"rounds": 2, "frames": 8, "batch_size": 8, "lr": 0.03, "report_samples": 0},
        **{"model_width": 4, "model_last": 0, "model_units": (1, 1, 1), "model_projection": 8},
    },
    "small": {
        **{"rounds": 20, "frames": 32, "batch_size": 16, "lr": 0.03},
        **{"model_width": 16, "model_last": 0, "model_units": (2, 1, 1), "model_projection": 64},
    },
    "paper": {"rounds": 300, "frames": 50, "batch_size": 128, "lr": 0.1, "engine": "vectorised"},
}

# Real recordings at the small scale: recipes/fsar/real.toml, with fewer evaluations.
_REAL: dict[str, Any] = {
    **{"rounds": 80, "evaluate_every": 4, "frames": 50, "batch_size": 32, "lr": 0.02},
    **{"model_width": 16, "model_last": 0, "model_units": (4, 3, 3), "model_projection": 0},
}

# What other backbones change of it; each wants widths of its own. At the paper's scale they are as their papers say.
_NETWORKS: dict[Scale, dict[str, dict[str, Any]]] = {
    "tiny": {"msg3d": {"model_width": 6, "model_scales": (2, 2)}},
    "small": {
        **{"ctrgcn": {"model_width": 8}, "mstgcn": {"model_width": 8}},
        "msg3d": {"model_width": 6, "model_scales": (5, 3)},
    },
    "paper": {},
}

_VIEWS = {"ntu120": "cross_setup", "uestc": "cross_subject"}
"""S-Table 6: the split of a dataset; of all others cross_view. The paper names none for UESTC."""

_ALONE = {"feature_by": "equal", "feature_clients": 1}
"""FDARN's Table 2 on stored features: a modality's samples (its people's, where they are dealt) are one client's."""

# Five synthetic sites. Values are dealt to clients in turn.
_STAGE: dict[Scale, dict[str, Any]] = {
    "tiny": {
        **{"stage_layouts": ("openni_15",), "stage_train": (6, 7, 8, 9, 10), "stage_test": 7},
        **{"stage_actions": (3, 4, 5, 6, 7)},
    },
    "small": {
        "stage_layouts": ("kinect_v2", "kinect_v1", "openni_15", "mocap_31", "coco_17"),
        **{"stage_train": (160, 120, 80, 100, 140), "stage_test": 100, "stage_actions": (16, 14, 10, 12, 12)},
    },
    "paper": {
        **{"stage_layouts": ("kinect_v2",), "stage_train": (1880, 530, 4000, 6300, 1140), "stage_test": 500},
        **{"stage_actions": (26, 20, 30, 36, 20)},
    },
}


@dataclass(frozen=True)
class Setting:
    """Data and scale of a regeneration.

    Attributes:
        data: the word or path given to the command.
        scale: tiny, small or paper.
        about: what the data are, for captions.
        base: recipe keys that all rows share, without those of the data.
        positions: which of the paper's clients (FSAR's five; FDARN's ten columns of modalities) have a stand-in.
        parts: keys of the data that have one value per stand-in.
        rest: keys of the data that have one value for all.
        paper: whose items it is for.
        modalities: FDARN: the modality that stands in at each of the positions.
        methods: recipe keys of single methods at this scale.
        datasets: Edge: recipe keys of each of the paper's datasets that has a stand-in. FedVSSL: of each division.
        models: Edge: keys of the distillation that gives the clients' network. FedVSSL: of the evaluations.
        stand_ins: Edge, FedVSSL: what each of the paper's datasets is replaced by.
        downstream: FedVSSL: evaluation keys of each dataset that networks are evaluated on.
        tasks: FedVSSL: recipe keys of single pretext tasks at this scale.
    """

    data: str
    scale: Scale
    about: str
    base: Mapping[str, Any]
    positions: tuple[int, ...]
    parts: Mapping[str, Sequence[Any]]
    rest: Mapping[str, Any]
    paper: str = "fsar"
    modalities: tuple[str, ...] = ()
    methods: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    datasets: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    models: Mapping[str, Any] = field(default_factory=dict[str, Any])
    stand_ins: Mapping[str, str] = field(default_factory=dict[str, str])
    downstream: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])
    tasks: Mapping[str, Mapping[str, Any]] = field(default_factory=dict[str, Mapping[str, Any]])

    def keys(self, among: Sequence[int] = ()) -> dict[str, Any]:
        """Recipe keys of a federation of some of the five clients; all that there are by default."""
        parts = dict(self.parts)
        if among:
            chosen = [self.positions.index(client) for client in among]
            parts = {key: tuple(values[i % len(values)] for i in chosen) for key, values in parts.items()}
        count = {"stage_clients": len(among or self.positions)} if self.rest["data"] == "stage" else {}
        return {**self.base, **self.rest, **parts, **count}

    def network(self, backbone: str) -> Mapping[str, Any]:
        """Recipe keys that a backbone needs at this scale."""
        return _NETWORKS[self.scale].get(backbone, {})

    def split(self, protocol: str) -> tuple[dict[str, Any], str]:
        """Recipe keys of an item's protocol, and why the data do not have it; "" where they do."""
        if not protocol:
            return {}, ""
        if protocol == "alone":
            one = {"stage_clients": 1} if self.rest["data"] == "stage_features" else _ALONE
            return dict(one), ""
        if self.rest["data"] == "stage":
            return {}, "a recording's camera is drawn by chance, so there are no views to split by."
        if self.rest["data"] == "public":
            names = self.parts["public_sets"]
            missing = [name for name in names if _VIEWS.get(name, "cross_view") not in READERS[name].protocols]
            keys = {"public_split": tuple(_VIEWS.get(name, "cross_view") for name in names)}
        else:
            missing = [Path(path).name for path in self.parts["store_paths"] if "cross_view" not in _splits(path)]
            keys = {"store_protocol": "cross_view"}
        if missing:
            return {}, f"no split across views is known for {', '.join(missing)}."
        return keys, ""


def setting(data: str, scale: str) -> Setting:
    """What the command's `--data` and `--scale` mean for FSAR. Raises RecipeError with a message for people."""
    scale = known_scale(scale)
    five = tuple(range(len(DATASETS)))
    base = _SCALES[scale]
    if data == "stage":
        stage = _STAGE[scale]
        rest = {"data": "stage", "stage_test": stage["stage_test"]}
        parts = {key: stage[key] for key in ("stage_layouts", "stage_train", "stage_actions")}
        return Setting(data, scale, "the synthetic stage", base, five, parts, rest)
    if data == "real":
        about = f"real recordings: {', '.join(REAL)}"
        base = _REAL if scale == "small" else base
        return Setting(data, scale, about, base, five, {"public_sets": REAL}, {"data": "public"})
    return _folder(data, scale, base)


def known_scale(scale: str) -> Scale:
    """The scale of that name; RecipeError where there is none."""
    if scale not in SCALES:
        raise RecipeError(f"--scale {scale} is unknown; there are {', '.join(SCALES)}")
    return scale


def _folder(data: str, scale: Scale, base: Mapping[str, Any]) -> Setting:
    """The paper's own datasets, or imported ones, below a folder."""
    root = Path(data)
    if not root.is_dir():
        raise RecipeError(f"--data {data} is neither stage nor real nor a folder")
    stores = sorted(path for path in root.iterdir() if (path / "dataset.json").is_file())
    if stores:
        if not 2 <= len(stores) <= len(DATASETS):
            raise RecipeError(
                f"--data {data} holds {len(stores)} imported datasets; FSAR's tables have columns for two to five "
                "clients, so keep that many in the folder"
            )
        about = f"imported datasets: {', '.join(path.name for path in stores)}"
        paths = tuple(str(path) for path in stores)
        rest = {"data": "store"}
        if all("cross_subject" in _splits(path) for path in paths):  # else a share of the samples is kept for tests
            rest["store_protocol"] = "cross_subject"
        return Setting(data, scale, about, base, tuple(range(len(paths))), {"store_paths": paths}, rest)
    found = tuple(position for position, name in enumerate(OWN) if (root / name).is_dir())
    if len(found) < 2:
        raise RecipeError(
            f"--data {data} holds neither two or more of the folders {', '.join(OWN)} nor imported datasets "
            "(folders with a dataset.json, as `fedaction data import` writes them)"
        )
    names = tuple(OWN[position] for position in found)
    about = "the paper's datasets" + ("" if len(found) == len(OWN) else f": {', '.join(names)} only")
    rest = {"data": "public", "public_root": str(root)}
    return Setting(data, scale, about, base, found, {"public_sets": names}, rest)


def _splits(path: str) -> list[str]:
    """The splits of its own that an imported dataset has."""
    header: Any = read_json(Path(path) / "dataset.json")
    return [*header.get("splits", ())] if isinstance(header, dict) else []  # pyright: ignore[reportUnknownMemberType]
