"""What the edge paper's items are run on: which videos stand in for its datasets, and how large everything is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedaction.federation.settings import RecipeError
from fedaction.papers.item import ItemRow
from fedaction.papers.setting import Scale, Setting, find_videos, parse_scale, side_before_crop

KINETICS, HMDB51, UCF101 = "Kinetics", "HMDB51", "UCF101"
"""The paper's datasets: the large one is for distillation, the others are the clients'."""

FLEETS = {HMDB51: "jetson_hmdb51", UCF101: "jetson_ucf101"}
"""The devices' times on either dataset: Tables IV and V."""

# Distillation. The paper's learning rate and its loss, summed over classes, diverge unless gradients are clipped.
_DISTIL: dict[Scale, dict[str, Any]] = {
    "tiny": {"width": 4, "epochs": (2,), "batch_size": 28, "lr": 0.02, "clip_norm": 5.0, "augment_pad": 1},
    "small": {
        **{"width": 16, "epochs": (15,), "batch_size": 32, "lr": 0.02, "lr_schedule": "cosine"},
        **{"warmup_epochs": 1, "clip_norm": 5.0},
    },
    "paper": {"width": 64, "epochs": (200,), "batch_size": 128, "lr": 0.1, "weight_decay": 1e-3, "clip_norm": 5.0},
}

# Fine-tuning. Only the classifier learns; one that starts anew wants larger steps where there are few of them.
_TUNE: dict[Scale, dict[str, Any]] = {
    "tiny": {"rounds": 2, "local_epochs": 1, "batch_size": 8, "lr": 0.01, "report_samples": 0},
    "small": {"rounds": 20, "local_epochs": 3, "batch_size": 8, "lr": 0.01, "report_samples": 0},
    "paper": {"rounds": 80, "local_epochs": 3, "batch_size": 8, "lr": 0.001, "report_samples": 0},
}
_SHARED = {"backbone": "resnet3d", "classifier": "shared", "model_frozen": 6, "frames": 8, "weight_decay": 0.0}

# The stage: wide for Kinetics (28 actions), home for HMDB51 (15), hall for UCF101 (16). At the paper's scale the
# small sets have about as many recordings of an action as theirs. At the small one recordings differ less, so that a
# network learns something of so few in minutes.
_WIDE: dict[Scale, dict[str, Any]] = {
    "tiny": {"stage_train": 1, "stage_test": 1, "stage_people": 2, "stage_test_people": 2},
    "small": {
        **{"stage_train": 60, "stage_test": 10, "stage_people": 40, "stage_test_people": 10},
        "stage_variety": 0.3,
    },
    "paper": {"stage_train": 400, "stage_test": 50, "stage_people": 200, "stage_test_people": 50},
}
_CAMERAS: dict[Scale, dict[str, Any]] = {
    "tiny": {"stage_actions": 3, "stage_train": 6, "stage_test": 4, "stage_people": 1, "stage_test_people": 1},
    "small": {"stage_train": 20, "stage_test": 12, "stage_variety": 0.3},
    "paper": {"stage_train": 70, "stage_test": 30, "stage_people": 8, "stage_test_people": 4},
}
_CLIENTS = {"stage_clips": 2, "stage_clients": 4, "stage_iid": True}
_SIDE: dict[Scale, int] = {"tiny": 16, "small": 64, "paper": 112}
"""Rows and columns of what networks see, in pixels."""

_WIDE_DOMAIN = "the stage's wide domain"
_FOLDERS = {KINETICS: "kinetics400", HMDB51: "hmdb51", UCF101: "ucf101"}


@dataclass(frozen=True)
class EdgeSetting(Setting):
    """See `Setting`."""

    distillation: Mapping[str, Any]
    """Keys of the distillation that gives the clients' network."""
    datasets: Mapping[str, Mapping[str, Any]]
    """Recipe keys of each of the paper's small datasets that has a stand-in."""
    stand_ins: Mapping[str, str]
    """What each of the paper's datasets is replaced by."""

    def row_keys(self, row: ItemRow) -> Mapping[str, Any] | None:
        """See `Setting`."""
        if row.data not in self.datasets:
            return None
        epochs = {"local_epochs": 1} if row.method == "central" else {}  # the server has 80, one in each round
        return {**self.datasets[row.data], **epochs}


def edge_setting(data: str, scale: str) -> EdgeSetting:
    """What the command's `--data` and `--scale` mean for the edge paper. Raises RecipeError for people."""
    size = parse_scale(scale)
    if data == "stage":
        cameras = {"stage_size": _SIDE[size], **_CLIENTS, **_CAMERAS[size]}
        sets = {HMDB51: {"stage_domain": "home", **cameras}, UCF101: {"stage_domain": "hall", **cameras}}
        names = {HMDB51: "its home domain, four cameras", UCF101: "its hall domain, four cameras"}
        return _setting(data, size, "the synthetic stage", None, sets, names)
    if data == "real":
        sets = {
            HMDB51: {"video_set": "airtlab", "video_task": "action", "video_by": "camera"},
            UCF101: {"video_set": "utd_depth", "video_by": "person", "video_split": "share"},
        }
        # As far from frame to frame as in the clips that the student has learnt from.
        clips = {**_square(size), "video_stride": 8, "video_train_clips": 2}
        sets = {name: {**keys, **clips} for name, keys in sets.items()}
        names = {HMDB51: "AIRTLab, two cameras", UCF101: "UTD-MHAD depth, six people"}
        about = "real recordings: AIRTLab, UTD-MHAD depth; the student is distilled on the synthetic stage"
        return _setting(data, size, about, None, sets, names)
    return _folder(data, size)


def _folder(data: str, scale: Scale) -> EdgeSetting:
    """The paper's own datasets below a folder."""
    videos = find_videos(data, _FOLDERS)
    if not videos:
        raise RecipeError(f"--data {data} holds none of the folders {', '.join(_FOLDERS.values())}")
    sets = {
        name: {**videos[name], "video_by": "equal", **_square(scale)} for name in (HMDB51, UCF101) if name in videos
    }
    names = {name: f"{name} itself" for name in videos}
    about = f"the paper's datasets: {', '.join(videos)}"
    if KINETICS in videos:
        side = side_before_crop(_SIDE[scale])
        clips = {"data": "video", **videos[KINETICS], "video_side": side, "crop": _SIDE[scale]}
        return _setting(data, scale, about, clips, sets, names)
    return _setting(data, scale, f"{about}; the student is distilled on the synthetic stage", None, sets, names)


def _square(scale: Scale) -> dict[str, Any]:
    """Clips; but for the paper's scale always the same ones, so that frozen stages look at each once."""
    side = side_before_crop(_SIDE[scale])
    return {"video_side": side, "video_crop": _SIDE[scale], "video_fresh": scale == "paper"}


def _setting(
    data: str,
    scale: Scale,
    about: str,
    clips: Mapping[str, Any] | None,
    sets: Mapping[str, Mapping[str, Any]],
    names: Mapping[str, str],
) -> EdgeSetting:
    """`clips`: keys of the videos to distil on; None: the stage's."""
    if clips is None:
        clips = {"data": "stage_video", "stage_domain": "wide", "stage_size": _SIDE[scale], **_WIDE[scale]}
        clips |= {"stage_clients": 1, "stage_heterogeneity": 0.0}
        names = {KINETICS: _WIDE_DOMAIN, **names}
    return EdgeSetting(
        data,
        scale,
        about,
        base={**_SHARED, **_TUNE[scale]},
        source={"data": "stage_video" if data == "stage" else "video"},
        positions=(0,),
        distillation={**_DISTIL[scale], **clips},
        datasets={name: {"devices": FLEETS[name], **keys} for name, keys in sets.items()},
        stand_ins=names,
    )
